"""Errors of checkpoints, grouped by what can be done about them.

the checkpoint cannot be used as it is     DamagedCheckpoint, and aof.errors.NewerFormat
it cannot be opened or written just now    CheckpointError: nothing of the store is lost, and the log is kept
"""

from __future__ import annotations

from pathlib import Path

from tidelog.aof.errors import RESTORE, AofError, DamagedFile

ADVICE = (
    f"Restore a snapshot into another directory: {RESTORE}; or, if the log still begins at LSN 1, move the directory "
    "checkpoint/ aside, and it is rebuilt from the log"
)


class CheckpointError(AofError):
    """A checkpoint cannot be opened, read or written at present. The text says why, and what to do."""


class DamagedCheckpoint(DamagedFile):
    """The file of a checkpoint is not what was written, or was never a checkpoint. It was not mapped into memory."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason, ADVICE)
