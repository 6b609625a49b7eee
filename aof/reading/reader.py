"""Reads the log. Recovery, tools and followers all use this one decoder.

`segments` lists the segments of a directory. `Scan` walks the frames of one segment and ends with a
verdict. `Replay` turns frames into records. Nothing here writes, creates or locks anything, so it works
beside a running writer. The writer's last frame may be incomplete: a `live` scan then reads it again.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgpack

from tidelog.aof import segment
from tidelog.aof.durable import Promise
from tidelog.aof.errors import (
    CorruptFrame,
    Damage,
    DamagedFile,
    MissingSegment,
    NewerRecord,
    Vanished,
)
from tidelog.aof.frame import BODY_BYTES_MAX, HEADER, HEADER_BYTES, MAGIC, MAGIC_BYTES, Frame
from tidelog.aof.reading.verdicts import Found, Verdict, judge
from tidelog.aof.reading.window import WINDOW_BYTES, Windows
from tidelog.aof.segment import End, Position, SegmentHeader
from tidelog.disk.interface import Disk
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.effects.effect import END, EPOCH, Effect
from tidelog.engine.errors import UnknownEffect

# The reader feeds frames to one Unpacker and drains it when it holds this many bytes. Draining it after each frame
# would cost a third of the replay speed if a frame has one record.
DRAIN_BYTES: Final = 32 << 10

NO_END: Final = 1 << 63

_BRIEF_BYTES: Final = 4096  # the first window of a brief scan
# Fed behind records. It comes out as None only if no record before it is cut: the Unpacker's `tell` counts the bytes of
# a record that it has begun.
NIL: Final = b"\xc0"

# The errors that a record raises that is no effect, or that does not fit the state.
UNFIT: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
_ERROR_CHARS: Final = 200

_NO_HEADER: Final = bytes(HEADER_BYTES)

_LISTS_MAX: Final = 100
_LOOKS_MAX: Final = 5
_LOOK_AGAIN_S: Final = 0.002

# The fields of Frame as a plain tuple, because a NamedTuple takes 0.3 us to make.
FrameTuple = tuple[int, int, int, int, int, int, bytes]


class Segment(NamedTuple):
    """A segment of a directory. `end` is the end that the next segment's header states; None for the last.

    rebuilt   the file's own header is damaged, and `header` is what it must have been: for a repair
    """

    path: Path
    header: SegmentHeader
    end: End | None
    rebuilt: bool = False


def segments(
    disk: Disk, directory: Path, uuid: bytes | None = None, after: int = 0
) -> list[Segment]:
    """The segments in `directory` (a store's aof/), in order. Other files are ignored.

    Segments that end at or before the LSN `after` are skipped without reading them. Raises DamagedFile for a
    header that is damaged, another store's, or under a wrong name; NewerFormat; Vanished; MissingSegment if the
    directory is missing; OSError.
    """
    for _ in range(_LISTS_MAX):
        try:
            return _segments(disk, _after(segment_paths(disk, directory), after), uuid)
        except Vanished as error:
            vanished = error  # the writer released it after it was listed
    raise vanished


def _after(paths: list[Path], lsn: int) -> list[Path]:
    """`paths` without the segments that end at or before `lsn` according to their names."""
    begun = [path for path in paths if int(path.stem) <= lsn + 1]
    return paths[max(len(begun) - 1, 0) :]


def _segments(disk: Disk, paths: list[Path], uuid: bytes | None) -> list[Segment]:
    found: list[tuple[Path, SegmentHeader]] = []
    for path in paths:
        try:
            header = read_header(disk, path)
        except FileNotFoundError:
            raise Vanished(path) from None
        named = segment.first_lsn_of(path.name)
        if header.first_lsn != named:
            raise DamagedFile(
                path,
                40,
                f"the header says that the segment begins with LSN {header.first_lsn}, but the file name says {named}",
            )
        if uuid is not None and header.uuid != uuid:
            raise DamagedFile(path, 16, belongs_elsewhere(header))
        if header.before.lsn + 1 != header.first_lsn:
            raise DamagedFile(
                path,
                56,
                f"the header says that the previous segment ends with LSN {header.before.lsn}, but that this one "
                f"begins with LSN {header.first_lsn}",
            )
        found.append((path, header))
    ends: list[End | None] = [header.before for _, header in found[1:]]
    return [Segment(*pair, end) for pair, end in zip(found, [*ends, None])]


def segment_paths(disk: Disk, directory: Path) -> list[Path]:
    """The files in `directory` that have a segment's name, in order. Raises MissingSegment, OSError.

    The kernel lists a large directory in parts. If the writer creates two segments meanwhile, the listing may miss
    the first and have the second. So the directory is listed again until no name in the middle is new.
    """
    names = _names(disk, directory)
    for _ in range(_LISTS_MAX):
        again = _names(disk, directory)
        if not names or set(names).issuperset(n for n in again if names[0] < n < names[-1]):
            break
        names = again
    return [directory / name for name in names]


def _names(disk: Disk, directory: Path) -> list[str]:
    try:
        names = disk.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingSegment(directory, 1, 0, "the directory of the segments is missing") from None
    return [name for name in names if segment.first_lsn_of(name) is not None]


def belongs_elsewhere(header: SegmentHeader) -> str:
    """The reason in the error for a segment of another store."""
    return (
        f"the segment belongs to another store, {header.uuid.hex()}; "
        "if it was copied here by mistake, move it away"
    )


def read_header(disk: Disk, path: Path) -> SegmentHeader:
    """The header of one segment. Raises DamagedFile, NewerFormat, OSError."""
    file = disk.open(path)
    try:
        return segment.unpack(path, file.pread(segment.HEADER_BYTES, 0))
    finally:
        file.close()


class Scan:
    """The frames of one segment, up to the verdict that ends them.

    With `start`, a position in this segment, the scan begins there and reads only the header before it.
    A `brief` scan of the last segment ends where the next header is zeros, if nothing is promised there. It does not
    read the prepared space behind, and begins with small windows: for a reader that looks again and again.
    Iterate `frames()`, or `tuples()`, which is faster. Afterwards these attributes are set:

    verdict     END, TORN or CORRUPT
    offset      the byte that the verdict is about
    lsn         the LSN expected there
    crc         header checksum of the last frame before it
    found       the content there
    reason      the reason for the verdict, for an error message
    found_lsn   the LSN in a valid header there, else None
    """

    def __init__(
        self,
        disk: Disk,
        info: Segment,
        promises: Iterable[Promise] = (),
        *,
        live: bool = False,
        brief: bool = False,
        start: Position | None = None,
    ) -> None:
        self.path = info.path
        self._brief = brief and info.end is None
        self._windows = Windows(disk, info.path, _BRIEF_BYTES if self._brief else WINDOW_BYTES)
        if start is None:
            self._windows.at(0)  # the header and the first frames at once
        self.header = info.header
        if not info.rebuilt:
            self.header = segment.unpack(info.path, self._windows.read(0, segment.HEADER_BYTES))
        self.end = info.end
        self.last = info.end is None
        self.offset = segment.HEADER_BYTES if start is None else start.offset
        self.lsn = self.header.first_lsn if start is None else start.lsn + 1
        self.crc = self.header.before.crc if start is None else start.crc
        self.now = 0
        self.verdict: Verdict | None = None
        self.reason = ""
        self.found = Found.BLANK
        self.found_lsn: int | None = None
        self._seed = crc32c_of(self.header.uuid)
        self._promises = promises
        self._looks = _LOOKS_MAX if live and self.last else 0
        # True if a segment between this one and the next is missing. Then the end that the next segment states is not
        # the end of this one.
        self._gap = False

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._windows.size

    @property
    def position(self) -> Position:
        """The position that the scan has reached."""
        header = self.header
        return Position(self.lsn - 1, self.crc, header.first_lsn, self.offset, header.incarnation)

    def frames(self) -> Iterator[Frame]:
        for fields in self.tuples():
            yield Frame(*fields)

    def tuples(self) -> Generator[FrameTuple, None, None]:
        """Every valid frame that continues the chain, as a plain tuple of `Frame`'s fields."""
        try:
            while True:
                before = self.offset
                yield from self._walk()
                if (
                    self.end is not None
                    and self.offset >= self.end.offset
                    and self.lsn <= self.end.lsn
                ):
                    self._gap = True  # read on: a repair can keep the valid frames that follow
                    yield from self._walk()
                found = self._look()
                if found is Found.BLANK or not self._looks:
                    break
                # The bytes may be new: the writer wrote them after the reader read this window, or is writing them now.
                if found is not Found.WHOLE:
                    if found is Found.FOREIGN:
                        break
                    if self.offset == before:
                        self._looks -= 1
                        time.sleep(_LOOK_AGAIN_S)
                    self._windows.forget()
            self._conclude(found)
        finally:
            self._windows.close()

    def skim(self, nbytes: int) -> int:
        """Go on behind the next frames, until they have `nbytes` bytes or more, and return how many bytes they have.

        Their chain is checked, but no record is read: for a planner whose tasks verify the same frames. So only frames
        are taken whose records are proven to have existed, because others may be torn.
        """
        windows = self._windows
        lsn, prev, proven = self.lsn, self.crc, self._proven_lsn()
        unpack = HEADER.unpack_from
        end = NO_END if self.end is None else self.end.offset
        start = last = self.offset
        offset, base, until = start, 0, start + nbytes
        while offset + base < until:
            offset += base
            data, base = windows.at(offset, HEADER_BYTES)
            offset -= base
            stop = min(len(data) - HEADER_BYTES + 1, end - base, until - base)
            if offset >= stop:
                break
            while offset < stop:
                magic, length, first, count, now, _, before, _, crc = unpack(data, offset)
                if magic != MAGIC or first != lsn or before != prev or not count:
                    stop = -1
                    break
                behind = offset + HEADER_BYTES + length
                if lsn + count - 1 > proven or base + behind > windows.size:
                    stop = -1
                    break
                last = base + offset
                offset = behind
                lsn += count
                prev = crc
            if stop < 0:
                break
        # The chain holds the checksum of each header but the last one, whose length may be wrong.
        if base + offset > start and self._header_at(last) is None:
            return self.skim(last - start)
        self.offset, self.lsn, self.crc = offset + base, lsn, prev
        return self.offset - start

    def _proven_lsn(self) -> int:
        """The last LSN of this segment whose record is proven to have existed; 0 if none is."""
        if self.end is not None:
            return self.end.lsn
        mine = (each for each in self._promises if each.incarnation == self.header.incarnation)
        return max((each.lsn for each in mine), default=0)

    def close(self) -> None:
        """Close the file. For a scan whose frames are not read to the end."""
        self._windows.close()

    def tail_bytes(self) -> int:
        """Number of bytes from `offset` on, without the zeros at the end."""
        try:
            return self._windows.data_end(self.offset) - self.offset
        finally:
            self._windows.close()

    def tail(self) -> Iterator[tuple[int, bytes]]:
        """The bytes from `offset` on, as (distance from `offset`, piece). Pieces of zeros are skipped."""
        try:
            for offset, piece in self._windows.pieces(self.offset):
                yield offset - self.offset, piece
        finally:
            self._windows.close()

    def later_headers(self, offset: int) -> Iterator[tuple[int, Frame]]:
        """(offset, frame without body) of every valid header at or after `offset`, chained or not.

        Used to prove what was promised, and by tools that continue after damage. The body after a valid
        header is skipped, since entries may contain bytes that look like a header.
        """
        while (offset := self._windows.find(MAGIC_BYTES, offset)) >= 0:
            fields = self._header_at(offset)
            if fields is None:
                offset += 1
                continue
            _, length, lsn, count, now, synced, _, _, crc = fields
            yield offset, Frame(offset, lsn, count, now, synced, crc, b"")
            offset += HEADER_BYTES + length

    def error(self) -> Damage | None:
        """The exception for the verdict CORRUPT; None for any other verdict."""
        if self.verdict is not Verdict.CORRUPT:
            return None
        end = self.end
        if end is not None and (
            self._gap or self.found is Found.BLANK and self.offset < end.offset
        ):
            # Either this segment was cut off, or a whole segment after it is missing.
            reason = (
                f"a segment is missing here, or {self.path.name} was cut off at byte {self.offset}: "
                f"the next segment proves that records through LSN {end.lsn} existed"
            )
            path = self.path.with_name(segment.file_name(self.lsn))
            return MissingSegment(path, self.lsn, end.lsn + 1, reason)
        return CorruptFrame(self.path, self.offset, self.lsn, self.found_lsn, self.reason)

    def _header_at(self, offset: int) -> tuple[int, ...] | None:
        """The fields of the header at `offset`, None if its checksum, length or count is invalid."""
        data, base = self._windows.at(offset, HEADER_BYTES)
        at = offset - base
        if at + HEADER_BYTES > len(data):
            return None
        fields: tuple[int, ...] = HEADER.unpack_from(data, at)
        if fields[0] != MAGIC or crc32c_after(self._seed, data[at : at + 44]) != fields[8]:
            return None
        return fields if fields[1] <= BODY_BYTES_MAX and fields[3] else None

    def _walk(self) -> Iterator[FrameTuple]:
        windows, seed = self._windows, self._seed
        lsn, prev, time_ms = self.lsn, self.crc, self.now
        unpack = HEADER.unpack_from
        end = NO_END if self.end is None or self._gap else self.end.offset
        # In the loop, `offset` counts from the start of the window; the window begins at `base` in the file.
        offset, base, need = self.offset, 0, HEADER_BYTES
        try:
            while True:
                offset += base
                data, base = windows.at(offset, need)
                offset -= base
                need = HEADER_BYTES
                stop = min(len(data) - HEADER_BYTES + 1, end - base)
                if offset >= stop:
                    return
                while offset < stop:
                    magic, length, first, count, now, synced, before, body_crc, crc = unpack(
                        data, offset
                    )
                    if magic != MAGIC or crc32c_after(seed, data[offset : offset + 44]) != crc:
                        return
                    if first != lsn or before != prev or not count or length > BODY_BYTES_MAX:
                        return
                    start = offset + HEADER_BYTES
                    body = data[start : start + length]
                    if len(body) != length:
                        if base + start + length > windows.size:
                            return
                        if offset and HEADER_BYTES + length <= WINDOW_BYTES:
                            need = HEADER_BYTES + length
                            break  # the next window begins with this frame
                        body = windows.read(base + start, length)
                    if len(body) != length or crc32c_of(body) != body_crc:
                        return
                    fields = (offset + base, lsn, count, now, synced, crc, body)
                    offset = start + length
                    lsn += count
                    prev = crc
                    time_ms = now
                    yield fields
        finally:
            self.offset, self.lsn, self.crc, self.now = offset + base, lsn, prev, time_ms

    def _look(self) -> Found:
        """The content at `offset`, where the walk stopped."""
        if self._brief:
            data, base = self._windows.at(self.offset, HEADER_BYTES)
            header = data[self.offset - base : self.offset - base + HEADER_BYTES]
            blank = header == _NO_HEADER[: len(header)]
        else:
            blank = self._windows.blank(self.offset)
        if blank:
            return Found.BLANK
        fields = self._header_at(self.offset)
        if fields is None:
            return Found.BROKEN
        _, length, first, _, _, _, prev, body_crc, _ = fields
        self.found_lsn = first
        if first != self.lsn or prev != self.crc:
            return Found.FOREIGN
        start = self.offset + HEADER_BYTES
        if start + length > self._windows.size:
            return Found.BROKEN
        body = self._windows.read(start, length)
        whole = len(body) == length and crc32c_of(body) == body_crc
        return Found.WHOLE if whole else Found.BROKEN

    def _conclude(self, found: Found) -> None:
        self.found = found
        proof = self._proof()
        self.verdict = judge(found, self.last, bool(proof))
        self.reason = found.value
        if self.verdict is Verdict.CORRUPT:
            self.reason = f"found {found.value}" + (f", although {proof}" if proof else "")
        elif self.end is not None:
            here = End(self.lsn - 1, self.offset, self.crc)
            if here != self.end:
                self.verdict = Verdict.CORRUPT
                self.reason = f"the next segment proves that it ended with {_words(self.end)}, not with {_words(here)}"

    def _proof(self) -> str:
        """The proof that a record at or after `offset` was once durable; empty if there is none."""
        if self.end is not None:
            if self.offset >= self.end.offset and not self._gap:
                return ""
            return f"the next segment proves that records through LSN {self.end.lsn} existed"
        for promise in self._promises:
            if promise.incarnation == self.header.incarnation and promise.lsn >= self.lsn:
                return f"the file DURABLE proves that records through LSN {promise.lsn} existed"
        if self.header.role == segment.LEADER and self.found is not Found.BLANK:
            here = self._header_at(self.offset)
            behind = self.offset + (1 if here is None else HEADER_BYTES + here[1])
            for offset, later in self.later_headers(behind):
                if later.synced >= self.lsn:
                    return f"the frame at byte {offset} proves that records through LSN {later.synced} existed"
        return ""


class Epoch(NamedTuple):
    """The start of a life: its number, its random incarnation, and the LSN of its EPOCH record."""

    number: int
    incarnation: int
    lsn: int


# The first frame that a writer appends holds one record, EPOCH. So its body begins with these two bytes: the msgpack
# header of an array of three, then the opcode EPOCH | END. The reader compares one byte at a time, because in most
# frames the first byte already differs.
_EPOCH_ARRAY: Final = b"\x93"
_EPOCH_OPCODE: Final = bytes((EPOCH | END,))


class Replay:
    """Decodes frames into records in large batches, and applies them.

    `apply(records)` gets the records of one or more whole frames, in order; each record is a tuple as
    engine.effects.effect describes it.

    records   number of records applied
    now       unix ms of the last frame; set by the caller
    epochs    the lives whose EPOCH records were seen
    read      (first LSN, offset after the last frame) of each segment; filled by the caller
    """

    def __init__(self, apply: Callable[[list[Effect]], object]) -> None:
        self.records = 0
        self.now = 0  # unix ms of the last frame
        self.epochs: list[Epoch] = []
        self.read: list[tuple[int, int]] = []
        self._apply = apply
        self._unpacker = unpacker()

    def run(self, path: Path, frames: Iterable[FrameTuple]) -> None:
        """Apply all frames of one segment.

        Raises CorruptFrame for a frame with valid checksums whose records do not decode; that frame and later
        ones are not applied. Raises NewerRecord.
        """
        feed = self._unpacker.feed
        stretch: list[FrameTuple] = []
        count = nbytes = 0
        for fields in frames:
            body = fields[6]
            feed(body)
            stretch.append(fields)
            count += fields[2]
            nbytes += len(body)
            if body[:1] == _EPOCH_ARRAY and body[1:2] == _EPOCH_OPCODE:
                self._epoch(fields)
            if nbytes >= DRAIN_BYTES:
                self._drain(path, stretch, count)
                stretch.clear()
                count = nbytes = 0
        if stretch:
            self._drain(path, stretch, count)

    def _epoch(self, fields: FrameTuple) -> None:
        try:
            _, number, incarnation = msgpack.unpackb(fields[6])
        except (ValueError, msgpack.UnpackException):
            return  # `_drain` says which frame cannot be decoded
        self.epochs.append(Epoch(number, incarnation, fields[1]))

    def _drain(self, path: Path, stretch: list[FrameTuple], count: int) -> None:
        self._unpacker.feed(NIL)
        records = _unpacked(self._unpacker)
        if len(records) != count or not is_end(records[-1]):
            self._unpacker = unpacker()
            self._name_the_bad_one(path, stretch)
        self.take(path, stretch, records)

    def take(self, path: Path, frames: Sequence[FrameTuple], records: list[Effect]) -> None:
        """Apply `records`, all or the first ones of `frames`. Raises NewerRecord, CorruptFrame."""
        try:
            self._apply(records)
        except UNFIT as error:
            # Apply takes every effect that decide makes, so this is damage that no checksum covers.
            offset, lsn = frames[0][:2]
            reason = (
                f"the checksums match, but one of the records with LSN {lsn} to {lsn + len(records) - 1} cannot be "
                f"applied ({short(error)})"
            )
            raise CorruptFrame(path, offset, lsn, lsn, reason) from error
        except UnknownEffect as error:
            at = next(at for at, record in enumerate(records) if record[0] == error.opcode)
            lsn = frames[0][1] + at
            offset = max(fields[0] for fields in frames if fields[1] <= lsn)
            raise NewerRecord(path, offset, lsn, error.opcode) from error
        self.records += len(records)

    def _name_the_bad_one(self, path: Path, stretch: list[FrameTuple]) -> None:
        for fields in stretch:
            frame = Frame(*fields)
            self.take(path, [fields], records_of(path, frame))
        raise AssertionError("the frames decode one by one, but not together")


def _words(end: End) -> str:
    return f"LSN {end.lsn} at byte {end.offset} and checksum {end.crc:08x}"


def unpacker() -> msgpack.Unpacker:
    """An Unpacker for records. Every limit is set, since a disk is not trusted input."""
    return msgpack.Unpacker(
        raw=True,
        use_list=False,
        max_buffer_size=BODY_BYTES_MAX + (1 << 20),
        max_str_len=BODY_BYTES_MAX,
        max_bin_len=BODY_BYTES_MAX,
        max_array_len=BODY_BYTES_MAX,
        max_map_len=0,
        max_ext_len=0,
    )


def _unpacked(unpack: msgpack.Unpacker) -> list[Effect]:
    """The records that were fed with NIL behind them; none if they do not decode, or the last one is cut."""
    try:
        records: list[Effect] = list(unpack)
    except (ValueError, msgpack.UnpackException):
        return []
    return records if records and records.pop() is None else []


def is_end(record: Effect) -> bool:
    """Whether a unit ends with this record."""
    return (
        isinstance(record, tuple)
        and record != ()
        and isinstance(record[0], int)
        and bool(record[0] & END)
    )


def short(error: Exception) -> str:
    """An unexpected error in few words, on one line."""
    return f"{type(error).__name__}: {error}"[:_ERROR_CHARS].replace("\n", " ")


def records_of(path: Path, frame: Frame) -> list[Effect]:
    """The records of one frame. Raises CorruptFrame if they do not decode."""
    unpack = unpacker()
    unpack.feed(frame.body + NIL)
    records = _unpacked(unpack)
    if (
        len(records) != frame.count
        or not all(isinstance(r, tuple) and r and isinstance(r[0], int) for r in records)
        or not is_end(records[-1])
    ):
        reason = f"the checksums match, but the {frame.count} records cannot be decoded"
        raise CorruptFrame(path, frame.offset, frame.lsn, frame.lsn, reason)
    return records
