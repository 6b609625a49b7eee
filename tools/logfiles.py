"""The files of a store's log. All tools read the log through this module.

It takes no lock and writes nothing, so the writer of the store may be running.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tidelog.aof import identity
from tidelog.aof.durable import Promise
from tidelog.aof.errors import RESTORE, Damage, MissingSegment, NotAStore, Vanished
from tidelog.aof.frame import HEADER, HEADER_BYTES, Frame
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import Scan, Segment, read_header, segment_paths, segments
from tidelog.aof.surplus import REPORT
from tidelog.aof.tail import Tail
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import Snapshot, read_snapshot
from tidelog.store.read_only import is_snapshot

# `readable=False`: click must not check readability, because the store does so with exit codes of its own.
STORE_PATH: Final = click.Path(path_type=Path, readable=False)


def place_of(disk: Disk, path: Path) -> Path:
    """The directory of a store or snapshot. `path` may also be the folder aof/ of a store."""
    if path.name == identity.AOF and disk.exists(path.parent / identity.NAME):
        path = path.parent
    disk.guard(path)
    return path


def store_root(disk: Disk, path: Path) -> Path:
    """As `place_of`, for tools that need files which a snapshot does not have. Raises NotAStore for a snapshot."""
    root = place_of(disk, path)
    if is_snapshot(disk, root):
        advice = f"Use  tidelog snapshot show  or  tidelog snapshot verify , or restore it into a new store: {RESTORE}"
        raise NotAStore(root, "it is a snapshot", advice)
    return root


def say_if_snapshot(files: LogFiles) -> None:
    """For a snapshot, print to standard error that it has no log."""
    if files.snapshot is not None:
        told = f"tidelog: {files.root} is a snapshot: it contains the state at LSN {files.snapshot.lsn} and no log"
        click.echo(told, err=True)


class LogFiles:
    """The log of the store in `root`; `root` may also be the store's folder aof/, and with `snapshots` a snapshot.

    With `surpluses` it may also be the directory of records that a follower gave up (aof/surplus.py): segments without
    a beginning.

    `uuid` is read from the store's own file unless it is given. Raises NotAStore, DamagedFile, NewerFormat, OSError;
    for a snapshot NotASnapshot, SnapshotDamaged, NewerSnapshot.

    snapshot   the snapshot in `root`, or None; its log has no segments
    """

    def __init__(
        self,
        root: Path,
        uuid: bytes | None = None,
        *,
        snapshots: bool = False,
        surpluses: bool = False,
    ) -> None:
        self.disk: Disk = RealDisk()
        self.root = place_of(self.disk, root)
        self.snapshot: Snapshot | None = None
        folder = self.root / identity.CHECKPOINT
        if snapshots and is_snapshot(self.disk, self.root):
            self.snapshot = read_snapshot(self.disk, self.root)
            folder, uuid = self.root, self.snapshot.manifest.uuid
        elif surpluses and self._holds_a_surplus():
            uuid = read_header(self.disk, segment_paths(self.disk, self.root)[0]).uuid
        else:
            self.root = store_root(self.disk, root)
        self.uuid = identity.read(self.disk, self.root) if uuid is None else uuid
        self._surplus = surpluses and self._holds_a_surplus()
        self.directory = self.root if self._surplus else self.root / identity.AOF
        self.checkpoint = folder / identity.DATA
        self._tail: Tail | None = None  # where `new` continues

    def _holds_a_surplus(self) -> bool:
        names = (identity.NAME, REPORT)
        return [self.disk.exists(self.root / name) for name in names] == [False, True]

    @property
    def has_checkpoint(self) -> bool:
        return self.disk.exists(self.checkpoint)

    def survey(self, *, released: bool = True) -> tuple[list[Promise], list[Segment]]:
        """The promises in DURABLE, and the segments, read in this order. Raises Damage, NewerFormat, OSError.

        released   the log need not begin with LSN 1 if a checkpoint holds the earlier records
        """
        if self.snapshot is not None:
            return [], []
        if self._surplus:
            return [], segments(self.disk, self.directory, self.uuid)
        try:
            return recovery.survey(self.disk, self.directory, self.uuid)
        except MissingSegment:
            # Look for the checkpoint only now: a writer's first checkpoint exists before the writer releases any
            # segment.
            if not (released and self.has_checkpoint):
                raise
        return recovery.survey(self.disk, self.directory, self.uuid, released=True)

    def size(self) -> int:
        """Bytes of all segments, prepared space included."""
        total = 0
        for info in self.survey()[1]:
            try:
                total += recipe.size(self.disk, info.path)
            except FileNotFoundError:
                continue  # released meanwhile
        return total

    def scans(self, *, released: bool = True) -> Iterator[Scan]:
        """Yield a scan of each segment, in order. The caller reads all frames of one before it asks for the next.

        Raises as `survey`. After the last, raises MissingSegment if a later one must have existed. Raises Vanished if
        a writer released one meanwhile.
        """
        promises, found = self.survey(released=released)
        if self.snapshot is not None:
            return
        scan: Scan | None = None
        for info in found:
            scan = self._scan(info, promises)
            yield scan
        recovery.check_lives(self.directory, promises, found, scan)

    def _scan(self, info: Segment, promises: list[Promise]) -> Scan:
        try:
            return Scan(self.disk, info, promises, live=True)
        except FileNotFoundError:
            raise Vanished(info.path) from None

    def frames(self) -> Iterator[tuple[Path, Frame]]:
        """Yield every frame of the log with its segment. Raises Damage at a corrupt one."""
        for scan in self.scans():
            for frame in scan.frames():
                yield scan.path, frame
            error = scan.error()
            if error is not None:
                raise error

    def frames_past_damage(self) -> Iterator[tuple[Path, Frame | Damage]]:
        """As `frames`, but yields damage as an item and continues with the frames after it that are intact."""
        try:
            for scan in self.scans():
                yield from self._pieces(scan)
        except MissingSegment as error:
            yield error.path, error

    def _pieces(self, scan: Scan) -> Iterator[tuple[Path, Frame | Damage]]:
        while True:
            for frame in scan.frames():
                yield scan.path, frame
            error = scan.error()
            if error is None:
                return
            yield scan.path, error
            if not self._resume_behind(scan):
                return

    def _resume_behind(self, scan: Scan) -> bool:
        """Let a stopped scan continue at the next intact header. Returns False if there is none."""
        file = self.disk.open(scan.path)
        try:
            for offset, frame in scan.later_headers(scan.offset + 1):
                fields = HEADER.unpack(file.pread(HEADER_BYTES, offset))
                scan.offset, scan.lsn, scan.crc = offset, frame.lsn, fields[6]
                scan.found_lsn = scan.verdict = None
                return True
        finally:
            file.close()
        return False

    def new(self) -> Iterator[tuple[Path, Frame]]:
        """Yield the frames that no earlier call has yielded, in order, to follow a writer. Raises as `frames`."""
        if self.snapshot is not None:
            return
        tail = self._tail
        if tail is None:
            self.survey()
            tail = self._tail = Tail(self.disk, self.directory, self.uuid)
        while (stretch := tail.look()) is not None:
            for fields in stretch.frames:
                yield stretch.path, Frame(*fields)
                tail.position = stretch.behind(fields)
