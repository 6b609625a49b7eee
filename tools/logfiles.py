"""The files of a store's log. All tools read the log through this module.

It takes no lock and writes nothing, so the writer of the store may be running.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from tidelog.aof import durable, identity, segment
from tidelog.aof.durable import Promise
from tidelog.aof.errors import (
    RESTORE,
    Damage,
    DamagedFile,
    MissingSegment,
    NotAStore,
    Vanished,
)
from tidelog.aof.frame import HEADER, HEADER_BYTES, Frame
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import (
    Scan,
    Segment,
    belongs_elsewhere,
    read_header,
    segment_paths,
    segments,
)
from tidelog.aof.reading.verdicts import Found
from tidelog.aof.segment import End, SegmentHeader
from tidelog.aof.start import Start, beginning
from tidelog.aof.surplus import REPORT
from tidelog.aof.tail import Tail
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.plain import Kind
from tidelog.disk.real import RealDisk
from tidelog.resp.urls import SERVER
from tidelog.snapshot.portable import Snapshot, read_snapshot
from tidelog.snapshot.rows.meta import read_meta
from tidelog.snapshot.rows.opened import Opened, open_copy
from tidelog.snapshot.still import still
from tidelog.store.directory import is_snapshot
from tidelog.tools.latest import newest


class StorePath(click.Path):
    """The directory of a store, and no server."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path."""
        if isinstance(value, str) and SERVER.match(value):
            self.fail(
                "a URL names a server; give the directory of a store on this machine", param, ctx
            )
        return super().convert(value, param, ctx)


# `readable=False`: click must not check readability, because the store does so with exit codes of its own.
STORE_PATH: Final = StorePath(path_type=Path, readable=False)


def place_of(disk: Disk, path: Path) -> Path:
    """The directory of a store or snapshot. `path` may also be the folder aof/ of a store, or snapshots/latest."""
    path = newest(disk, path)
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


def look_at(paths: Sequence[Path]) -> LogFiles:
    """The log that the command line names: a store, its aof/, a snapshot, a surplus, or segment files.

    Prints to standard error if the path is a snapshot, which has no log, or if segments are read without the file
    STORE of their store. Raises as LogFiles and SegmentFiles; click.UsageError for several directories.
    """
    disk = RealDisk()
    files: LogFiles
    if all(_is_segment(disk, path) for path in paths):
        files = SegmentFiles(paths)
    elif len(paths) > 1:
        raise click.UsageError("several paths may be given only if each of them is a segment file")
    else:
        files = LogFiles(paths[0], snapshots=True, surpluses=True, bare=True)
    if files.snapshot is not None:
        told = f"{files.root} is a snapshot: it contains the state at LSN {files.snapshot.lsn} and no log"
        click.echo(f"tidelog: {told}", err=True)
    elif files.bare:
        told = f"the segments are read without a file STORE; their headers name the store {files.uuid.hex()}"
        click.echo(f"tidelog: {told}", err=True)
    return files


def hold(files: LogFiles) -> None:
    """Let `files` stand still to the end of the command that runs."""
    click.get_current_context().with_resource(files.still())


def _is_segment(disk: Disk, path: Path) -> bool:
    """Whether `path` is a file that is named like a segment or begins like one."""
    try:
        if disk.kind(path) is not Kind.FILE:
            return False
        if path.suffix != segment.SUFFIX:
            read_header(disk, path)
    except (Damage, OSError):
        return False  # LogFiles says what is wrong
    return True


class Header(NamedTuple):
    """The header of a segment file.

    fields   None if it cannot be read
    fault    the reason, or why the segment does not belong here
    end      the end that the next segment's header states; None if there is none
    mended   the fault is known and made good: `fields` counts, not the file's own header or name
    """

    path: Path
    fields: SegmentHeader | None
    fault: DamagedFile | None
    end: End | None = None
    mended: bool = False

    @property
    def first_lsn(self) -> int:
        """From the file's name, or else from the header."""
        named = segment.first_lsn_of(self.path.name)
        if named is None or self.mended:
            assert self.fields is not None, "a file without a segment's name has a header"
            return self.fields.first_lsn
        return named

    def segment(self) -> Segment:
        """For a scan of a header with fields."""
        assert self.fields is not None, "a header that cannot be read has no segment"
        return Segment(self.path, self.fields, self.end, self.mended)


def with_ends(headers: list[Header]) -> list[Header]:
    """The headers, each with the end that the next one states. A header that does not belong here states nothing."""
    later = [
        header.fields.before if header.fields is not None and header.fault is None else None
        for header in headers[1:]
    ]
    return [header._replace(end=end) for header, end in zip(headers, [*later, None])]


class LogFiles:
    """The log of the store in `root`; `root` may also be the store's folder aof/, and with `snapshots` a snapshot.

    With `surpluses` it may also be the directory of records that a follower gave up (aof/surplus.py): segments without
    a beginning. With `bare` it may also be a directory of segments, or a store, whose file STORE is gone.

    `uuid` is read from the store's own file unless it is given. Raises NotAStore, DamagedFile, NewerFormat, OSError;
    for a snapshot NotASnapshot, SnapshotDamaged, NewerSnapshot.

    snapshot   the snapshot in `root`, or None; its log has no segments
    bare       there is no file STORE: `uuid` is that of the first segment whose header can be read
    """

    snapshot: Snapshot | None = None
    bare = False
    _surplus = False
    _tail: Tail | None = None  # where `new` continues
    _opened: Opened | None = None  # the checkpoint that `still` holds

    def __init__(
        self,
        root: Path,
        uuid: bytes | None = None,
        *,
        snapshots: bool = False,
        surpluses: bool = False,
        bare: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self.disk: Disk = RealDisk() if disk is None else disk
        self._disk = self.disk  # without `still`
        self.root = place_of(self.disk, root)
        folder = self.root / identity.CHECKPOINT
        self.directory = self.root / identity.AOF
        if snapshots and is_snapshot(self.disk, self.root):
            self.snapshot = read_snapshot(self.disk, self.root)
            folder, uuid = self.root, self.snapshot.manifest.uuid
        elif surpluses and self._holds_a_surplus():
            self._surplus, self.directory = True, self.root
            uuid = read_header(self.disk, segment_paths(self.disk, self.root)[0]).uuid
        elif bare and (directory := self._without_store()) is not None:
            self.bare, self.directory = True, directory
            uuid = self._uuid_of_segments()
        else:
            self.root = store_root(self.disk, root)
        self.uuid = identity.read(self.disk, self.root) if uuid is None else uuid
        self.checkpoint = folder / identity.DATA

    def _without_store(self) -> Path | None:
        """The directory of the segments if `root` is it, or has it as aof/, and no file STORE belongs to it."""
        marks = (identity.NAME, identity.RESTORING, identity.SWAP)
        if any(self.disk.exists(self.root / name) for name in marks):
            return None
        for directory in (self.root / identity.AOF, self.root):
            try:
                if segment_paths(self.disk, directory):
                    return directory
            except MissingSegment:
                continue
        return None

    def _uuid_of_segments(self) -> bytes:
        """Raises DamagedFile, NewerFormat if no header can be read."""
        paths = segment_paths(self.disk, self.directory)
        for path in paths:
            try:
                return read_header(self.disk, path).uuid
            except DamagedFile:
                continue
        return read_header(self.disk, paths[0]).uuid

    def _holds_a_surplus(self) -> bool:
        names = (identity.NAME, REPORT)
        return [self.disk.exists(self.root / name) for name in names] == [False, True]

    @property
    def has_checkpoint(self) -> bool:
        return self.disk.exists(self.checkpoint)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Inside the block the checkpoint and the log are those of one moment, whatever the writer does.

        For every tool that reads both, or a log to its end. Raises OSError.
        """
        if self.snapshot is not None or self.disk is not self._disk:
            yield
            return
        with still(self.disk, self.root, self.directory) as view:
            self.disk, self._opened = view.disk, view.opened
            try:
                yield
            finally:
                self.disk, self._opened = self._disk, None

    @contextmanager
    def opened_checkpoint(self) -> Iterator[Opened]:
        """The checkpoint: that of `still`, or else the newest. Raises as `open_copy`."""
        held = self._opened
        if held is not None:
            # The engine may change what it is given of the row META, so each caller gets its own.
            meta = read_meta(held.rows, self.checkpoint)
            assert meta is not None, "it was read before"
            yield held._replace(meta=meta)
            return
        with closing(open_copy(self.disk, self.checkpoint.parent)) as opened:
            yield opened

    def survey(self, *, released: bool = True) -> tuple[list[Promise], list[Segment]]:
        """The promises in DURABLE, and the segments, read in this order. Raises Damage, NewerFormat, OSError.

        released   the log need not begin with LSN 1 if a checkpoint holds the earlier records
        """
        if self.snapshot is not None:
            return [], []
        if self._surplus or self.bare:
            promises = durable.read(self.disk, self.directory, self.uuid)
            return promises, segments(self.disk, self.directory, self.uuid)
        try:
            return recovery.survey(self.disk, self.directory, self.uuid)
        except MissingSegment:
            # Look for the checkpoint only now: a writer's first checkpoint exists before the writer releases any
            # segment.
            if not (released and self.has_checkpoint):
                raise
        return recovery.survey(self.disk, self.directory, self.uuid, released=True)

    def paths(self) -> list[Path]:
        """The files of the log, in order, whether their headers can be read or not. Raises MissingSegment, OSError."""
        return [] if self.snapshot is not None else segment_paths(self.disk, self.directory)

    def headers(self) -> tuple[list[Promise], list[Header]]:
        """As `survey`, but with every file, also those whose header cannot be read. Nothing else is checked.

        Raises MissingSegment if the directory is missing; NewerFormat, OSError.
        """
        promises = durable.read(self.disk, self.directory, self.uuid)
        found = [header for path in self.paths() if (header := self._header(path)) is not None]
        return promises, with_ends(found)

    def missing_first(self, found: list[Header]) -> MissingSegment | None:
        """The error if the first segments are missing and no checkpoint holds their records."""
        if self.bare or self._surplus or self.snapshot is not None:
            return None
        if found and (found[0].first_lsn == 1 or self.has_checkpoint):
            return None
        try:
            self.survey()
        except MissingSegment as error:
            return error
        except Damage:
            pass  # the fault of a header, which the caller has
        return None

    def missing_last(
        self, promises: list[Promise], found: list[Header], scan: Scan | None
    ) -> MissingSegment | None:
        """The error if DURABLE proves that a later segment existed. `scan` is the finished scan of the last one."""
        if self.snapshot is not None or any(header.fields is None for header in found[-1:]):
            return None
        held = [Segment(header.path, header.fields, None) for header in found if header.fields]
        try:
            recovery.check_lives(self.directory, promises, held, scan)
        except MissingSegment as error:
            return error
        return None

    def _header(self, path: Path) -> Header | None:
        """The header of one file; None if the writer released the segment meanwhile."""
        try:
            fields = read_header(self.disk, path)
        except FileNotFoundError:
            return None
        except DamagedFile as error:
            return Header(path, None, error)
        return Header(path, fields, self.fault_of(path, fields))

    def fault_of(self, path: Path, fields: SegmentHeader) -> DamagedFile | None:
        """The fault of a valid header that does not belong in this place."""
        named = segment.first_lsn_of(path.name)
        if fields.uuid != self.uuid:
            return DamagedFile(path, 16, belongs_elsewhere(fields))
        if named is not None and fields.first_lsn != named:
            said = f"the header says that the segment begins with LSN {fields.first_lsn}"
            return DamagedFile(path, 40, f"{said}, but the file name says {named}")
        return None

    def durable_fault(self) -> DamagedFile | None:
        """The fault of the file DURABLE; None if it is sound, or missing."""
        path = self.directory / durable.NAME
        if not self.disk.exists(path):
            return None
        data = recipe.read(self.disk, path, durable.FILE_BYTES)
        if not any(data) or durable.read(self.disk, self.directory, self.uuid):
            return None
        return DamagedFile(path, 0, "both of its slots are damaged or belong to another store")

    def life_of(self, path: Path) -> int:
        """The incarnation that wrote a segment; 0 if its header does not tell the life of its records."""
        try:
            header = read_header(self.disk, path)
        except (Damage, FileNotFoundError):
            return 0  # damaged, or released meanwhile
        # A follower's segments have the records of its leader's lives.
        return header.incarnation if header.role == segment.LEADER else 0

    def size(self) -> int:
        """Bytes of all segments, prepared space included."""
        total = 0
        for path in self.paths():
            try:
                total += recipe.size(self.disk, path)
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

    def scans_behind(self, start: Start) -> Iterator[Scan]:
        """Yield a scan of the log behind `start` in each segment, as `scans`. Raises Damage where it is corrupt."""
        promises = durable.read(self.disk, self.directory, self.uuid)
        found, at = beginning(self.disk, self.directory, self.uuid, start)
        for info in found:
            scan = Scan(self.disk, info, promises, live=True, start=at)
            at = None
            yield scan
            error = scan.error()
            if error is not None:
                raise error

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
        promises, found = self.headers()
        error = self.missing_first(found)
        if error is not None:
            yield error.path, error
        scan: Scan | None = None
        for at, header in enumerate(found):
            if header.fault is not None or header.fields is None:
                if header.fault is not None:
                    yield header.path, header.fault
                continue
            scan = self._scan(header.segment(), promises)
            scan.last = scan.last and at == len(found) - 1
            # A damaged header states no end of the segment before it, but the name of its file says where it goes on.
            goes_on = [
                later.first_lsn for later in found[at + 1 : at + 2] if later.fault is not None
            ]
            yield from self._pieces(scan, *goes_on)
        error = self.missing_last(promises, found, scan)
        if error is not None:
            yield error.path, error

    def _pieces(
        self, scan: Scan, goes_on: int | None = None
    ) -> Iterator[tuple[Path, Frame | Damage]]:
        """The frames of one segment, and the damage between them. `goes_on` is the LSN that the next begins with."""
        while True:
            for frame in scan.frames():
                yield scan.path, frame
            error = scan.error()
            whole = scan.found is Found.BLANK and scan.lsn == goes_on
            if error is None or whole:
                return
            yield scan.path, error
            if not self._resume_behind(scan):
                return

    def _resume_behind(self, scan: Scan) -> bool:
        """Let a stopped scan continue at the next intact header. Returns False if there is none."""
        with closing(self.disk.open(scan.path)) as file:
            for offset, frame in scan.later_headers(scan.offset + 1):
                fields = HEADER.unpack(file.pread(HEADER_BYTES, offset))
                scan.offset, scan.lsn, scan.crc = offset, frame.lsn, fields[6]
                scan.found_lsn = scan.verdict = None
                return True
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


class SegmentFiles(LogFiles):
    """Segment files that are looked at one by one: each may lie anywhere and have any name.

    The end of a file is known if the next segment lies beside it. Records that are missing between the files are no
    damage. Raises DamagedFile if a header cannot be read, or if the files are of several stores; NewerFormat, OSError.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.disk = self._disk = RealDisk()
        self.root = self.directory = paths[0].parent
        self.bare = True
        self.checkpoint = self.root / identity.DATA
        headers = [(read_header(self.disk, path), path) for path in dict.fromkeys(paths)]
        self._found = sorted(headers, key=lambda pair: (pair[0].first_lsn, str(pair[1])))
        self.uuid = self._found[0][0].uuid
        for fields, path in self._found:
            if fields.uuid != self.uuid:
                raise DamagedFile(path, 16, belongs_elsewhere(fields))

    @property
    def has_checkpoint(self) -> bool:
        return False

    @contextmanager
    def still(self) -> Iterator[None]:
        yield  # the files that were named

    def paths(self) -> list[Path]:
        return [path for _, path in self._found]

    def survey(self, *, released: bool = True) -> tuple[list[Promise], list[Segment]]:
        promises, found = self.headers()
        return promises, [
            Segment(header.path, header.fields, header.end) for header in found if header.fields
        ]

    def headers(self) -> tuple[list[Promise], list[Header]]:
        promises = {
            promise
            for directory in {path.parent for _, path in self._found}
            for promise in durable.read(self.disk, directory, self.uuid)
        }
        found = [
            Header(path, fields, None, self._end(path, fields)) for fields, path in self._found
        ]
        return sorted(promises), found

    def _end(self, path: Path, fields: SegmentHeader) -> End | None:
        """The end that the next segment beside the file states; None if there is none of the same store.

        Without it DURABLE, which speaks of the end of the log, would prove that the file lost records.
        """
        for later in segment_paths(self.disk, path.parent):
            if int(later.stem) > fields.first_lsn:
                try:
                    header = read_header(self.disk, later)
                except (Damage, OSError):
                    return None
                return header.before if header.uuid == fields.uuid else None
        return None

    def scans(self, *, released: bool = True) -> Iterator[Scan]:
        promises, found = self.survey()
        for info in found:
            yield self._scan(info, promises)

    def new(self) -> Iterator[tuple[Path, Frame]]:
        raise click.UsageError(
            "--follow needs the directory of a store, since single files do not grow into the next"
        )
