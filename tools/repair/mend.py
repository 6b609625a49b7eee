"""Mend: segment headers and names that are wrong, and what they must have been.

The frames of a log are chained, and their checksums begin with the store's uuid. So a segment whose header is damaged
still proves where it belongs, and most of what its header said:

    uuid          the checksum of its first frame
    first LSN     its name, and the first frame
    before        LSN and CRC: the first frame. Offset: the end of the segment before, whose last frame has this CRC;
                  or the checkpoint that ends there; 0 in the first segment of a restored store
    incarnation   the EPOCH record in its first frame; without one, the life of the segment before
    role, time    the segments beside it; the time of its first frame, which is not before that of the header

The header's own checksum decides: if it fits one combination of proven fields and of the bytes that stand there, that
is the header. If it fits none, the checksum itself is damaged, and the header is rebuilt from what is proven alone. The
time is then the one that stands there, if it lies between the frames before and behind it, or else that of the first
frame. It only decides how long the segment is retained.

A file under a wrong name says itself where it belongs: its header does, or its first frame if the header is damaged as
well. A file that the chain of its neighbours leaves no room for is no
part of the log. A file of which less is proven is left alone; a repair then cuts the log before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgpack

from tidelog.aof import durable, frame, layout, segment
from tidelog.aof.errors import DamagedFile
from tidelog.aof.reading.reader import Scan, Segment, read_header
from tidelog.aof.reading.verdicts import Verdict
from tidelog.aof.reading.window import Windows
from tidelog.aof.segment import End, SegmentHeader
from tidelog.aof.start import Start
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.effects.effect import EPOCH, OPCODE
from tidelog.tools.logfiles import Header, LogFiles, with_ends

_ALL_BUT_TIME: Final = "its neighbours prove every field but its time"
MISPLACED: Final = ".misplaced"  # suffix of a segment that a repair is giving its right name
# If a header was written at most this long before its first frame, its checksum finds its time.
SLACK_MS: Final = 3000


class Mend(NamedTuple):
    """The truth about a file whose header or name is wrong.

    path     the file
    fault    what is wrong
    fields   its header; None: it is no part of the log
    words    for people
    rebuilt  the file's own header is damaged
    """

    path: Path
    fault: DamagedFile
    fields: SegmentHeader | None
    words: str
    rebuilt: bool = False

    @property
    def place(self) -> Path | None:
        """The name that the file must have; None if it is no part of the log."""
        if self.fields is None:
            return None
        return self.path.with_name(segment.file_name(self.fields.first_lsn))


def mends(
    files: LogFiles, headers: list[Header], start: Start | None
) -> tuple[list[Header], list[Mend]]:
    """The headers as they must have been, and what was mended for it. `start`: where the checkpoint stands.

    Raises NewerFormat, OSError.
    """
    made: list[Mend] = []
    strays = [*_strays(files)]
    if not strays and all(header.fault is None for header in headers):
        return headers, []
    displaced = _displaced(files, headers, strays)
    headers = _renamed(headers, strays, displaced, made)
    headers = _rebuilt(files, headers, displaced, start, made)
    headers = _needed(files, headers, made)
    return with_ends(headers), made


# --- files under a wrong name


def _strays(files: LogFiles) -> Iterator[Header]:
    """Segments that an earlier repair had begun to rename."""
    for name in files.disk.listdir(files.directory):
        if not name.endswith(MISPLACED):
            continue
        path = files.directory / name
        try:
            fields = read_header(files.disk, path)
        except DamagedFile:
            continue
        if fields.uuid == files.uuid:
            fault = DamagedFile(path, 0, "the segment has no segment's name")
            yield Header(path, fields, fault)


def _displaced(files: LogFiles, headers: list[Header], strays: list[Header]) -> dict[Path, int]:
    """The first LSN of each file whose header is damaged and whose first frame says that its name is wrong, too."""
    taken = {header.fields.first_lsn for header in [*strays, *headers] if header.fields}
    found: dict[Path, int] = {}
    for header in headers:
        if header.fields is None and (lsn := _lsn_of_first_frame(files, header.path)) is not None:
            found[header.path] = lsn
            if lsn == header.first_lsn:
                taken.add(lsn)
    displaced: dict[Path, int] = {}
    for path, lsn in found.items():
        if lsn not in taken:
            taken.add(lsn)
            displaced[path] = lsn
    return displaced


def _renamed(
    headers: list[Header], strays: list[Header], displaced: dict[Path, int], made: list[Mend]
) -> list[Header]:
    held = {header.first_lsn for header in headers if header.fault is None}
    found: list[Header] = []
    for header in [*strays, *headers]:
        fields, fault = header.fields, header.fault
        if fields is None or fault is None or fault.offset not in (0, 40):
            found.append(header)  # sound, unreadable, or another store's
            continue
        if fields.first_lsn in held:
            same = f"the segment with LSN {fields.first_lsn} is there under its own name"
            if header in strays:
                made.append(Mend(header.path, fault, None, same))
            else:
                found.append(header)  # the chain says whether a segment is missing here
            continue
        held.add(fields.first_lsn)
        name = segment.file_name(fields.first_lsn)
        made.append(Mend(header.path, fault, fields, f"the file is the segment {name}"))
        found.append(header._replace(fault=None, mended=True))
    # A file that another one takes the place of says nothing about that place.
    mended = {header.first_lsn for header in found if header.mended}
    for header in [*found]:
        lsn = displaced.get(header.path, header.first_lsn)
        if not header.mended and header.fault is not None and lsn in mended:
            found.remove(header)
            made.append(
                Mend(header.path, header.fault, None, "another file is the segment of this name")
            )
    return with_ends(sorted(found, key=lambda header: header.first_lsn))


# --- headers that cannot be read


def _rebuilt(
    files: LogFiles,
    headers: list[Header],
    displaced: dict[Path, int],
    start: Start | None,
    made: list[Mend],
) -> list[Header]:
    headers = sorted(headers, key=lambda header: displaced.get(header.path, header.first_lsn))
    found: list[Header] = []
    for at, header in enumerate(headers):
        if header.fields is None and header.fault is not None:
            before = found[-1] if found else None
            after = headers[at + 1] if at + 1 < len(headers) else None
            lsn = displaced.get(header.path, header.first_lsn)
            proven = _Proven.of(files, header.path, lsn, before, after, start)
            fields, words = (None, "") if proven is None else proven.header()
            if fields is not None:
                if header.path in displaced:
                    words += f"; the file is the segment {segment.file_name(lsn)}"
                made.append(Mend(header.path, header.fault, fields, words, rebuilt=True))
                header = header._replace(fields=fields, fault=None, mended=True)
        found.append(header)
    return with_ends(sorted(found, key=lambda header: header.first_lsn))


def _lsn_of_first_frame(files: LogFiles, path: Path) -> int | None:
    with closing(Windows(files.disk, path)) as windows:
        found = _Proven.by_first_frame(files, windows)
    return None if found is None else found.first.lsn


class _Proven:
    """The facts that the neighbours of a damaged header prove. A list holds what a field can have been."""

    def __init__(self, bytes_: bytes, uuid: bytes, first: frame.Frame, prev: int) -> None:
        self.bytes = bytes_.ljust(segment.HEADER_BYTES, b"\0")
        self.uuid, self.first, self.prev = uuid, first, prev
        self.offsets: list[int] = []
        self.incarnations: list[int] = []
        self.roles: list[int] = []
        self.low = 0

    @classmethod
    def of(
        cls,
        files: LogFiles,
        path: Path,
        first_lsn: int,
        before: Header | None,
        after: Header | None,
        start: Start | None,
    ) -> _Proven | None:
        """None if the first frame is not there, or does not have the segment's first LSN."""
        with closing(Windows(files.disk, path)) as windows:
            proven = cls.by_first_frame(files, windows)
        if proven is None or proven.first.lsn != first_lsn:
            return None
        lsn = first_lsn - 1
        if lsn == 0:
            proven.offsets.append(0)
        elif before is not None:
            end, proven.low = _end_of(files, before)
            if end is not None and (end.lsn, end.crc) == (lsn, proven.prev):
                proven.offsets.append(end.offset)
        elif start is not None and (start.lsn, start.crc) == (lsn, proven.prev):
            proven.offsets += [0, start.offset]
        beside = [each.fields for each in (before, after) if each is not None and each.fields]
        proven.roles = sorted({each.role for each in beside})
        if not beside and not files.disk.exists(files.root / layout.REPLICA):
            proven.roles = [segment.LEADER]
        epoch = _epoch(proven.first)
        if epoch is not None:
            proven.incarnations.append(epoch)
        elif before is not None and before.fields is not None:
            proven.incarnations.append(before.fields.incarnation)
        elif start is not None and start.segment == first_lsn:
            proven.incarnations.append(start.incarnation)
        return proven

    @classmethod
    def by_first_frame(cls, files: LogFiles, windows: Windows) -> _Proven | None:
        """None if the first frame is not there whole, or is another store's."""
        head = windows.read(segment.HEADER_BYTES, frame.HEADER_BYTES)
        if len(head) < frame.HEADER_BYTES:
            return None
        magic, length, first, count, now, synced, prev, body_crc, crc = frame.HEADER.unpack(head)
        fits = magic == frame.MAGIC and first > 0 and 0 < length <= frame.BODY_BYTES_MAX
        if not fits or crc32c_after(crc32c_of(files.uuid), head[:44]) != crc:
            return None
        body = windows.read(segment.HEADER_BYTES + frame.HEADER_BYTES, length)
        if crc32c_of(body) != body_crc or (first == 1 and prev):
            return None
        found = frame.Frame(segment.HEADER_BYTES, first, count, now, synced, crc, body)
        return cls(windows.read(0, segment.HEADER_BYTES), files.uuid, found, prev)

    def header(self) -> tuple[SegmentHeader | None, str]:
        """The header, and how it was found; (None, "") if it is not proven."""
        stated = int.from_bytes(self.bytes[76:80], "little")
        own = _fields(self.bytes)
        times = range(max(self.low, self.first.now - SLACK_MS), self.first.now + 1)
        for made in self._with(own, [own.time, *reversed(times)]):
            if _crc(made) == stated:
                return made, "the header's own checksum proves what its neighbours say"
        # A follower's segment has an incarnation that nothing else in the log states.
        if not len(self.offsets) == len(self.incarnations) == 1 or self.roles != [segment.LEADER]:
            return None, ""
        if own.role == segment.FOLLOWER:
            return None, ""
        (made,) = self._with(None, [self.first.now])
        low = self.low or self.first.now - SLACK_MS
        if not low <= own.time <= self.first.now:
            return made, f"{_ALL_BUT_TIME}, which is that of its first frame"
        if made._replace(time=own.time) == own:
            return own, "only the header's checksum was damaged"
        return made._replace(time=own.time), f"{_ALL_BUT_TIME}, which stands in it and fits them"

    def _with(self, own: SegmentHeader | None, times: list[int]) -> Iterator[SegmentHeader]:
        """Every header of what is proven, and of the header `own` where nothing is."""
        lsn = self.first.lsn
        incarnations, offsets, roles = [*self.incarnations], [*self.offsets], [*self.roles]
        if own is not None:
            incarnations.append(own.incarnation)
            offsets.append(own.before.offset)
            roles += [segment.LEADER, segment.FOLLOWER]
        for incarnation, offset, role, time in itertools.product(
            *map(dict.fromkeys, (incarnations, offsets, roles, times))
        ):
            before = End(lsn - 1, offset, self.prev)
            yield SegmentHeader(self.uuid, incarnation, lsn, time, before, role)


def _fields(data: bytes) -> SegmentHeader:
    """The fields of a damaged header, whatever they are."""
    _, _, role, uuid, incarnation, first_lsn, time, *before = segment.UNCHECKED.unpack(data[:76])
    return SegmentHeader(uuid, incarnation, first_lsn, time, End(*before), role)


def _crc(header: SegmentHeader) -> int:
    return int.from_bytes(header.pack()[76:], "little")


def _epoch(first: frame.Frame) -> int | None:
    """The incarnation of the life that begins with a frame; None if none does."""
    if first.count != 1:
        return None
    try:
        record = msgpack.unpackb(first.body)
    except (ValueError, msgpack.UnpackException):
        return None
    if not isinstance(record, list) or len(record) != 3 or not isinstance(record[0], int):
        return None
    return record[2] if record[0] & OPCODE == EPOCH and isinstance(record[2], int) else None


def _end_of(files: LogFiles, header: Header) -> tuple[End | None, int]:
    """(where the frames of a segment end, the time of the last one)."""
    if header.fields is None or header.fault is not None:
        return None, 0
    scan = Scan(files.disk, Segment(header.path, header.fields, None, header.mended))
    for _ in scan.tuples():
        pass
    return End(scan.lsn - 1, scan.offset, scan.crc), scan.now


# --- files that are no part of the log


def _needed(files: LogFiles, headers: list[Header], made: list[Mend]) -> list[Header]:
    """The headers without files that the chain of the segments beside them leaves no room for."""
    found = [*headers]
    sound = [header for header in headers if header.fault is None]
    promises = durable.read(files.disk, files.directory, files.uuid)
    for before, after in zip(sound, sound[1:]):
        between = [
            header
            for header in found
            if header.fault is not None and before.first_lsn < header.first_lsn < after.first_lsn
        ]
        if not between or before.fields is None or after.fields is None:
            continue
        end = after.fields.before
        scan = Scan(files.disk, Segment(before.path, before.fields, end, before.mended), promises)
        for _ in scan.tuples():
            pass
        if scan.verdict is not Verdict.END:
            continue
        for header in between:
            found.remove(header)
            assert header.fault is not None
            names = f"{before.path.name} and {after.path.name}"
            words = f"no record is missing between {names}, so the file is no part of the log"
            made.append(Mend(header.path, header.fault, None, words))
    return found
