"""Errors of checkpoints, grouped by what can be done about them.

the checkpoint cannot be used as it is     DamagedCheckpoint, and aof.errors.NewerFormat
it cannot be opened or written just now    CheckpointError: nothing of the store is lost, and the log is kept
a snapshot cannot be used, or not now      SnapshotError and its kin
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


class SnapshotError(AofError):
    """Base of what goes wrong with snapshots. The message says what, where and what to do."""


class NotASnapshot(SnapshotError):
    """The directory holds something else, or nothing."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} is not a snapshot: {reason}. Name a directory below snapshots/ of a store, or a copy of one"
        )
        self.path = path


class SnapshotDamaged(SnapshotError):
    """What lies on the disk is not what was published."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. The snapshot cannot be trusted: use another one, or a copy of this one"
        )
        self.path, self.reason = path, reason


class NewerSnapshot(SnapshotError):
    """Written by a newer tidelog."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{path}: format version {found}, and this tidelog reads up to {known}; "
            "use the version that wrote it, or a later one"
        )
        self.path, self.found = path, found


class SnapshotsLocked(SnapshotError):
    """Another process or thread has been making, sweeping or pruning snapshots there for longer than one waits."""

    def __init__(self, path: Path, pid: int | None, seconds: float) -> None:
        holder = "another one" if pid is None else f"process {pid}"
        super().__init__(
            f"{path.parent} is being written by another snapshot or prune ({holder} holds {path.name}), which was "
            f"waited for {seconds:.0f} s; see whether it is stuck, then try again"
        )
        self.path, self.pid = path, pid


class SnapshotRefused(SnapshotError):
    """What was asked for cannot be had. Nothing was changed."""
