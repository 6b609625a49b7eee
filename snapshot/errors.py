"""Errors of checkpoints and snapshots, grouped by what the caller can do about them.

the checkpoint cannot be used as it is     DamagedCheckpoint, and aof.errors.NewerFormat
it cannot be opened or written just now    CheckpointError: no data is lost, and the log is kept
a snapshot cannot be used, or not now      SnapshotError and its subclasses
"""

from __future__ import annotations

from pathlib import Path

from tidelog.aof.errors import RESTORE, AofError, DamagedFile

ADVICE = (
    f"Restore a snapshot into another directory: {RESTORE}. If the log still begins at LSN 1, you can instead "
    "move the directory checkpoint/ away: the next open rebuilds it from the log"
)


class CheckpointError(AofError):
    """A checkpoint cannot be opened, read or written at present. The message says why, and what to do.

    full   it cannot be written because no space is left
    """

    full = False


class DamagedCheckpoint(DamagedFile):
    """The file of a checkpoint is damaged, or was never a checkpoint."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason, ADVICE)


class SnapshotError(AofError):
    """Base class for errors of snapshots. The message says what is wrong, where, and what to do."""


class NotASnapshot(SnapshotError):
    """The directory is not a snapshot: it is missing, empty, or contains something else."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a snapshot: {reason}. Give the path of a directory in snapshots/ of a store, or of a copy "
            "of one"
        )
        self.path = Path(path)


class SnapshotGone(SnapshotError):
    """The snapshot was there a moment ago, and was pruned or moved since."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"{path}: the snapshot is gone; it was pruned or moved away. Use a newer snapshot, and hold a lease on it "
            "while it is in use"
        )
        self.path = Path(path)


class SnapshotUnreachable(SnapshotError):
    """A file at a URL cannot be read or written just now. The snapshot itself may be sound."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"{where}: no access ({reason}). Check the URL, the credentials in the environment and the network, then "
            "try again"
        )
        self.where, self.reason = where, reason


class PackageMissing(SnapshotError):
    """URLs need a package that is not installed. The message has the command that installs it."""


class SnapshotDamaged(SnapshotError):
    """The snapshot's files are not those that were published."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. The snapshot is damaged: use another snapshot or another copy of this one"
        )
        self.path, self.reason = Path(path), reason


class NewerSnapshot(SnapshotError):
    """A newer tidelog wrote the snapshot."""

    def __init__(self, path: Path | str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has format version {found}, but this tidelog reads only up to version {known}. Use the version "
            "that wrote it or a newer one"
        )
        self.path, self.found = Path(path), found


class SnapshotsLocked(SnapshotError):
    """Another process or thread held the lock of the folder snapshots/ for longer than the caller waits."""

    def __init__(self, path: Path, pid: int | None, seconds: float) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"another snapshot or prune is still writing to {path.parent} after {seconds:.0f} s ({holder} holds "
            f"{path.name}). Check whether it hangs, then try again"
        )
        self.path, self.pid = path, pid


class SnapshotRefused(SnapshotError):
    """The request cannot be met. Nothing was changed."""
