"""Quota: how many bytes a store has on disk, and how many it may have (`maxdisk`).

    log          the frames and headers of the segments; what is prepared behind the last frame does not count
    checkpoint   the pages of checkpoint/data.mdb that are in use; LMDB fills the others before it lets the file grow
    snapshots    the copies in snapshots/

The files are looked at when the store is opened, after a checkpoint or snapshot, and at the quota once a second.
Meanwhile only the log grows, and the log knows by how much. So it is told where to be `full` (`Log.fill_to`), and a
call costs nothing until then. Near the quota, store/checkpoints.py makes room; at it, store/commit/landing.py refuses
units that only add (store/commit/adding.py).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.aof import identity
from tidelog.aof.log import NO_QUOTA, WRITTEN, Log
from tidelog.aof.reading.reader import segment_paths
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.snapshot.rows.datafile import read_head
from tidelog.store.errors import FULL
from tidelog.store.keepers import SPARE

if TYPE_CHECKING:
    from tidelog.store.commit.core import Core

# With a quota, a checkpoint is made after an eighth of it was logged: while it is written, the store has both. Near
# the quota, a log of more than that is released early.
PART: Final = 8


class Used(NamedTuple):
    """Bytes on disk."""

    log: int
    checkpoint: int
    snapshots: int

    @property
    def total(self) -> int:
        return sum(self)


class Quota:
    """The bytes that one open store has on disk, and its limit.

    limit   bytes; None = no quota
    """

    def __init__(self, disk: Disk, root: Path, limit: int | None) -> None:
        self.limit = limit
        self._disk, self._root = disk, root
        # held while the files are looked at; taken before the store's lock
        self._one = threading.Lock()
        self._found: Used | None = None
        self._log: Log | None = None  # the log that was looked at, and its `frames_bytes` then
        self._frames = 0

    def look(self, core: Core) -> Used:
        """Look at the files, and tell the log where it is full. Do not hold the store's lock.

        Raises AofError, OSError: what was found before stays.
        """
        with self._one:
            with core.lock:
                log = core.log
                newest, offset = log.good(WRITTEN)
                frames = log.frames_bytes
            disk, root = self._disk, self._root
            older = (
                recipe.size(disk, path)
                for path in segment_paths(disk, root / identity.AOF)
                if int(path.stem) < newest
            )
            found = Used(offset + sum(older), self._of_checkpoint(), self._of_snapshots())
            with core.lock:
                self._found, self._log, self._frames = found, log, frames
                log.fill_to(NO_QUOTA if self.limit is None else frames + self.limit - found.total)
            return found

    def used(self, core: Core) -> Used:
        """As it was found, and what the log has grown by since. Looks at the files if nobody has. Raises as `look`."""
        with core.lock:
            found = self._grown() if core.log is self._log else None
        return found or self.look(core)

    def _grown(self) -> Used | None:
        found, log = self._found, self._log
        if found is None or log is None:
            return None
        return found._replace(log=found.log + log.frames_bytes - self._frames)

    def short(self, used: Used) -> int:
        """Bytes that are missing until a tenth of the quota is free; 0 or less: none."""
        return 0 if self.limit is None else used.total - self.limit + self.limit // SPARE

    def text(self) -> str:
        """[lock] Why a call that adds data is refused."""
        used, limit = self._grown(), self.limit
        if used is None or limit is None:
            return f"{FULL}its quota, maxdisk, was changed just now; try again"
        return (
            f"{FULL}it has {used.total:,} bytes on disk (log {used.log:,}, checkpoint "
            f"{used.checkpoint:,}, snapshots {used.snapshots:,}), and its quota, maxdisk, is {limit:,}. The call "
            "stored nothing. Make room: let workers finish jobs, trim, delete, purge, or lower keep_snapshots. Or "
            "raise maxdisk"
        )

    def _of_checkpoint(self) -> int:
        try:
            file = self._disk.open(self._root / identity.CHECKPOINT / identity.DATA)
        except FileNotFoundError:
            return 0
        try:
            head = read_head(file)
            return 0 if head is None else head.used_bytes
        finally:
            file.close()

    def _of_snapshots(self) -> int:
        directory = self._root / identity.SNAPSHOTS
        if not self._disk.exists(directory):
            return 0
        from tidelog.snapshot import portable  # imported here: many stores never make one

        return portable.bytes_of_all(self._disk, directory)
