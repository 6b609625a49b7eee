"""Make a snapshot of a store that another process may be writing: its checkpoint plus the log behind it.

The checkpoint is copied, the records behind it are applied to the copy and folded into it, and a compact copy of the
result is published. The store's own files are only read. The log that the snapshot contains is fsynced first, so a
power cut never leaves a snapshot that is ahead of its store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tidelog.aof import identity, layout
from tidelog.aof.errors import Damage, Vanished
from tidelog.aof.identity import CHECKPOINT, SNAPSHOTS
from tidelog.aof.layout import FOLD
from tidelog.aof.reading.reader import Scan
from tidelog.aof.reading.recovery import read_beside
from tidelog.aof.segment import HEADER_BYTES, Position
from tidelog.aof.start import Start
from tidelog.disk.interface import Disk
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.effect import Effect
from tidelog.engine.keys.state import State
from tidelog.snapshot.folding import fold_into
from tidelog.snapshot.portable import (
    Progress,
    Snapshot,
    beneath,
    copy_of,
    create,
    directory_name,
    held,
    publish,
    read_all,
    silent,
    sweep,
    there,
)
from tidelog.snapshot.rows.environment import open_environment
from tidelog.snapshot.rows.opened import Opened, open_copy
from tidelog.snapshot.tail import Bound, follow

BEGINNING = Position(0, 0, 1, HEADER_BYTES, 0)


def create_beside(
    disk: Disk, root: Path, *, created_ms: int | None = None, progress: Progress = silent
) -> Snapshot:
    """Make a snapshot of the store in `root`: its checkpoint and everything in its log now.

    Needs memory proportional to the log behind the newest checkpoint. `created_ms` is unix ms, default the wall clock.
    Raises NotAStore, Damage, NewerFormat, SnapshotsLocked, SnapshotDamaged, CheckpointError, CorruptBlock, OSError.
    """
    disk.guard(root)
    uuid = identity.read(disk, root)
    layout.check(disk, root)
    disk, root = beneath(disk, root)
    directory = root / SNAPSHOTS
    now_ms = time.time_ns() // 1_000_000 if created_ms is None else created_ms
    if _nothing_behind(disk, root, uuid):
        environment = open_environment(disk, root / CHECKPOINT, read_only=True)
        try:
            return create(disk, environment, directory, created_ms=now_ms, progress=progress)
        finally:
            environment.close()
    with held(disk, directory):
        folder = directory / FOLD
        if not disk.exists(folder):
            disk.mkdir(folder)
        existing = _fold(disk, root, uuid, folder, progress)
        if existing is not None:
            return existing

        def copy(work: Path) -> None:
            environment = open_environment(disk, folder, read_only=True)
            try:
                copy_of(disk, environment, work, progress)
            finally:
                environment.close()

        return publish(
            disk,
            directory,
            copy,
            lambda work: read_all(disk, work, now_ms, progress),
            now_ms,
            progress,
        )


def _nothing_behind(disk: Disk, root: Path, uuid: bytes) -> bool:
    """Return whether a checkpoint exists that covers the whole log."""
    try:
        opened = open_copy(disk, root / CHECKPOINT)
    except FileNotFoundError:
        return False
    start = opened.meta.start
    opened.close()
    try:
        bound = Bound(lsn=start.lsn)
        tail = follow(disk, root / identity.AOF, uuid, start, lambda records: None, bound)
        return not tail.bound
    except (Damage, Vanished):
        # Either the writer made a newer checkpoint meanwhile, or the log is damaged. In both cases the caller reads the
        # whole log, which also reports the damage.
        return False


class _Copied:
    """A copy of the newest checkpoint, and the state that the log is applied to."""

    def __init__(self, disk: Disk, root: Path, folder: Path, progress: Progress) -> None:
        self._disk, self._root, self._folder, self._progress = disk, root, folder, progress
        self.opened: Opened | None = None
        self.state = State()

    def begin(self) -> tuple[Start | None, Callable[[list[Effect]], object]]:
        """Start over: copy the newest checkpoint. Return its position, or None without one, and the applier."""
        self.close()
        sweep(self._disk, self._folder.parent)
        self.state = State()
        start = self._copy()
        return start, applier(self.state)

    def _copy(self) -> Start | None:
        try:
            environment = open_environment(self._disk, self._root / CHECKPOINT, read_only=True)
        except FileNotFoundError:  # no checkpoint, or the first one was cut short
            return None
        try:
            copy_of(self._disk, environment, self._folder, self._progress)
        finally:
            environment.close()
        try:
            self.opened = open_copy(self._disk, self._folder, write=True)
        except FileNotFoundError:
            return None
        self.state = self.opened.state()
        return self.opened.meta.start

    def close(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.close()


def _fold(disk: Disk, root: Path, uuid: bytes, folder: Path, progress: Progress) -> Snapshot | None:
    """Write a checkpoint of all that the store in `root` has into `folder`, or return the snapshot if one exists."""
    copied = _Copied(disk, root, folder, progress)
    try:
        scan, replay = read_beside(disk, root / identity.AOF, uuid, copied.begin)
        position = BEGINNING if scan is None else scan.position
        existing = there(disk, root / SNAPSHOTS / directory_name(position.lsn))
        if existing is not None:
            return existing
        if scan is not None:
            _settle(disk, scan)
        start = Start(*position, tuple(replay.epochs), replay.now)
        fold_into(disk, folder, copied.state, uuid, start)
        return None
    finally:
        copied.close()


def _settle(disk: Disk, scan: Scan) -> None:
    """Make the records that were read durable. Only the last segment needs an fsync.

    A segment gets its name only after the one before it was fsynced.
    """
    try:
        file = disk.open(scan.path)
    except FileNotFoundError:
        # the writer released the segment, so a durable checkpoint holds its records
        return
    try:
        file.fsync()
    finally:
        file.close()
