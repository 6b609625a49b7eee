"""The log of a store as it lies on the disk: the one way all tools read it.

Takes no lock and writes nothing, so it works beside a running writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tidelog.aof import identity, segment
from tidelog.aof.durable import Promise
from tidelog.aof.errors import RESTORE, Damage, MissingSegment, NotAStore, Vanished
from tidelog.aof.frame import HEADER, HEADER_BYTES, Frame
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import Scan, Segment
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import Snapshot, read_snapshot
from tidelog.store.read_only import is_snapshot

# Whether it can be read is for the store to say, with its own exit codes.
STORE_PATH: Final = click.Path(path_type=Path, readable=False)


def place_of(disk: Disk, path: Path) -> Path:
    """The directory of a store; its folder aof/ is taken for the store, too. It may be that of a snapshot."""
    if path.name == identity.AOF and disk.exists(path.parent / identity.NAME):
        path = path.parent
    disk.guard(path)
    return path


def store_root(disk: Disk, path: Path) -> Path:
    """The same for tools that look at files which a snapshot does not have. Raises NotAStore for one."""
    root = place_of(disk, path)
    if is_snapshot(disk, root):
        advice = f"Use  tidelog snapshot show  or  tidelog snapshot verify , or restore it into a new store: {RESTORE}"
        raise NotAStore(root, "it is a snapshot", advice)
    return root


def say_if_snapshot(files: LogFiles) -> None:
    """On standard error: why there is nothing of a log."""
    if files.snapshot is not None:
        told = f"tidelog: {files.root} is a snapshot: it contains the state at LSN {files.snapshot.lsn} and no log"
        click.echo(told, err=True)


class LogFiles:
    """The log of the store in `root`, or of which that is the folder aof/; with `snapshots`, `root` may be a snapshot.

    `uuid` is read from the store's own file unless it is given. Raises NotAStore, DamagedFile, NewerFormat, OSError;
    for a snapshot NotASnapshot, SnapshotDamaged, NewerSnapshot.

    snapshot   what `root` is, if it is a snapshot: a checkpoint, and a log without a segment
    """

    def __init__(self, root: Path, uuid: bytes | None = None, *, snapshots: bool = False) -> None:
        self.disk: Disk = RealDisk()
        self.root = place_of(self.disk, root)
        self.snapshot: Snapshot | None = None
        folder = self.root / identity.CHECKPOINT
        if snapshots and is_snapshot(self.disk, self.root):
            self.snapshot = read_snapshot(self.disk, self.root)
            folder, uuid = self.root, self.snapshot.manifest.uuid
        else:
            self.root = store_root(self.disk, root)
        self.uuid = identity.read(self.disk, self.root) if uuid is None else uuid
        self.directory = self.root / identity.AOF
        self.checkpoint = folder / identity.DATA
        # Where `new` goes on: (segment's name, offset, LSN expected there, header checksum of the frame before).
        self._position: tuple[str, int, int, int] | None = None

    @property
    def has_checkpoint(self) -> bool:
        return self.disk.exists(self.checkpoint)

    def survey(self, *, released: bool = True) -> tuple[list[Promise], list[Segment]]:
        """What was promised, and the segments, read in this order. Raises Damage, NewerFormat, OSError.

        released   the log need not begin with LSN 1 where a checkpoint holds what came before
        """
        if self.snapshot is not None:
            return [], []
        try:
            return recovery.survey(self.disk, self.directory, self.uuid)
        except MissingSegment:
            # Looked for now, since a writer's first checkpoint is there before anything is released.
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
        """A scan of each segment, in order; the caller goes through its frames before it asks for the next.

        Raises as `survey`, MissingSegment after the last if a later one must have been there, and Vanished if a
        writer released one meanwhile.
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
        """Every frame of the log with its segment. Raises Damage where one is corrupt."""
        for scan in self.scans():
            for frame in scan.frames():
                yield scan.path, frame
            error = scan.error()
            if error is not None:
                raise error

    def frames_past_damage(self) -> Iterator[tuple[Path, Frame | Damage]]:
        """As `frames`; damage comes as one more item, and after it whatever frames are whole by themselves."""
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
        """Let a stopped scan go on at the next header that is whole. False if there is none."""
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
        """The frames that no earlier call has yielded, in order. For following a writer. Raises as `frames`."""
        promises, found = self.survey()
        if self.snapshot is not None:
            return
        if self._position is not None and found and found[0].header.first_lsn > self._position[2]:
            raise Vanished(self.directory / self._position[0])
        scan: Scan | None = None
        for info in found:
            name = info.path.name
            if self._position is not None and name < self._position[0]:
                continue
            scan = self._scan(info, promises)
            # A segment without a frame may have been replaced by the next life's, of the same name.
            if (
                self._position is not None
                and name == self._position[0]
                and self._position[1] > segment.HEADER_BYTES
            ):
                _, scan.offset, scan.lsn, scan.crc = self._position
            for frame in scan.frames():
                yield info.path, frame
                self._position = name, scan.offset, scan.lsn, scan.crc
            self._position = name, scan.offset, scan.lsn, scan.crc
            error = scan.error()
            if error is not None:
                raise error
        recovery.check_lives(self.directory, promises, found, scan)
