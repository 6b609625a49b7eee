"""Splits the bytes of another store's log into frames, and checks them before they are appended to this one.

A frame does not say where it lies, so a follower appends the bytes that it received, unchanged. `Frames` checks them
as recovery does: the header's magic and checksum (which includes the store's uuid), the LSN, the chain to the frame
before, the checksum of the records. Then it decodes the records: each one must be of a known kind, and the last one of
a frame must end a unit.

The bytes come in pieces, cut anywhere. Nothing here reads a file or a clock.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import Final, NamedTuple

import msgpack

from tidelog.aof.errors import BadFrame, NewerFrame
from tidelog.aof.frame import BODY_BYTES_MAX, HEADER, HEADER_BYTES, MAGIC
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.effects.apply import is_known
from tidelog.engine.effects.effect import END, EPOCH, Effect

BATCH_BYTES: Final = 256 << 10

_CHECKED: Final = struct.Struct("<IIQI16xIII")  # a header without `now` and `synced`
assert _CHECKED.size == HEADER_BYTES
_ARRAY: Final = b"\xdd"  # msgpack: an array, whose length follows in 4 bytes
_opcode_of = itemgetter(0)


class Batch(NamedTuple):
    """Consecutive whole frames, at least one.

    data      the frames as they came
    first     LSN of the first record
    last      LSN of the last record
    prev      header checksum of the frame before the first one
    crc       header checksum of the last frame
    now       unix ms of the last frame
    records   one for each LSN, in order
    epochs    whether a record is an EPOCH
    """

    data: bytes
    first: int
    last: int
    prev: int
    crc: int
    now: int
    records: list[Effect]
    epochs: bool

    def crc_at(self, lsn: int) -> int | None:
        """The header checksum of the frame that ends with `lsn`, one of this batch; None if `lsn` is inside a frame."""
        assert self.first <= lsn <= self.last
        offset, last = 0, self.first - 1
        while last < lsn:
            _, length, _, count, _, _, _, _, crc = HEADER.unpack_from(self.data, offset)
            offset += HEADER_BYTES + length
            last += count
        return crc if last == lsn else None


class Frames:
    """The frames of a log behind the frame that ends with `lsn` and has the header checksum `crc`.

    lsn, crc   0, 0: the beginning of the log. After `take`: the end of the last frame taken
    buffered   bytes that were put and not taken yet
    """

    def __init__(self, uuid: bytes, lsn: int, crc: int) -> None:
        self.lsn, self.crc = lsn, crc
        self.buffered = 0
        self._seed = crc32c_of(uuid)
        self._pieces: list[bytes] = []  # the first one was taken up to `_at`
        self._at = 0
        self._need = HEADER_BYTES  # no frame is whole before this number of bytes is buffered

    def put(self, data: bytes) -> None:
        """Add the next bytes of the log."""
        if data:
            self._pieces.append(data)
            self.buffered += len(data)

    def take(self, nbytes_max: int = BATCH_BYTES) -> Batch | None:
        """The next whole frames: at most `nbytes_max` bytes, or one frame that is longer. None: none is whole yet.

        Raises BadFrame, or NewerFrame for a record of a kind that this version does not know. The frames before a
        refused one are returned first. From then on, every call raises.
        """
        if self.buffered < self._need:
            return None
        data = self._joined()
        bodies, counts, fault = self._split(data, nbytes_max)
        refused: BadFrame | NewerFrame | None = BadFrame(self.lsn + 1, fault) if fault else None
        found = _decoded(bodies, counts)
        if found is None:
            found, refused = self._before_refused(bodies, counts)
        if bodies:
            return self._taken(data, bodies, counts, *found)
        if refused is not None:
            raise refused
        return None

    def _joined(self) -> bytes:
        """All buffered bytes, from `_at` on."""
        if len(self._pieces) > 1:
            self._pieces[0] = self._pieces[0][self._at :]
            self._pieces = [b"".join(self._pieces)]
            self._at = 0
        return self._pieces[0]

    def _split(self, data: bytes, nbytes_max: int) -> tuple[list[bytes], list[int], str]:
        """The records and their number for each frame, and the fault of the frame behind them, if it has one."""
        bodies: list[bytes] = []
        counts: list[int] = []
        offset = self._at
        lsn, prev = self.lsn + 1, self.crc
        seed, unpack = self._seed, _CHECKED.unpack_from
        last_header, limit = len(data) - HEADER_BYTES, offset + nbytes_max
        # the same checks as in `Scan._walk` of aof/reading/reader.py
        while offset <= last_header:
            magic, length, first, count, before, body_crc, crc = unpack(data, offset)
            if magic != MAGIC or crc32c_after(seed, data[offset : offset + 44]) != crc:
                return bodies, counts, "there is no frame of this store, or its header is damaged"
            if first != lsn or before != prev:
                fault = (
                    f"its header has LSN {first} and follows a frame with the checksum {before:08x}, but this log goes "
                    f"on with LSN {lsn} behind {prev:08x}"
                )
                return bodies, counts, fault
            if not count or length > BODY_BYTES_MAX:
                return bodies, counts, f"its header says {count} records in {length} bytes"
            start = offset + HEADER_BYTES
            end = start + length
            if end > len(data):
                if not bodies:
                    self._need = HEADER_BYTES + length
                break
            if end > limit and bodies:
                break
            body = data[start:end]
            if crc32c_of(body) != body_crc:
                return bodies, counts, "its records do not match their checksum"
            bodies.append(body)
            counts.append(count)
            offset = end
            lsn += count
            prev = crc
        return bodies, counts, ""

    def _before_refused(
        self, bodies: list[bytes], counts: list[int]
    ) -> tuple[tuple[list[Effect], set[int]], BadFrame | NewerFrame]:
        """Find the first frame whose records are refused, and drop it and the later ones from the lists.

        Returns the records of the frames before it with their opcodes, and the error.
        """
        records: list[Effect] = []
        kinds: set[int] = set()
        for number, (body, count) in enumerate(zip(bodies, counts)):
            found = _decoded([body], [count])
            if found is None:
                del bodies[number:], counts[number:]
                return (records, kinds), _refusal(body, count, self.lsn + 1 + len(records))
            records += found[0]
            kinds |= found[1]
        raise AssertionError("the frames decode one by one, but not together")

    def _taken(
        self,
        data: bytes,
        bodies: list[bytes],
        counts: list[int],
        records: list[Effect],
        kinds: set[int],
    ) -> Batch:
        """Make the batch of these frames, and go on behind them."""
        start, first, prev = self._at, self.lsn + 1, self.crc
        nbytes = HEADER_BYTES * len(bodies) + sum(map(len, bodies))
        end = start + nbytes
        _, _, _, _, now, _, _, _, crc = HEADER.unpack_from(
            data, end - len(bodies[-1]) - HEADER_BYTES
        )
        self.lsn += sum(counts)
        self.crc = crc
        self.buffered -= nbytes
        self._need = HEADER_BYTES
        self._at = end
        if not self.buffered:
            self._pieces.clear()
            self._at = 0
        epochs = EPOCH in kinds or EPOCH | END in kinds
        return Batch(data[start:end], first, self.lsn, prev, crc, now, records, epochs)


def _unpacked(bodies: list[bytes], count: int) -> tuple[list[Effect], list[int]] | None:
    """The `count` records in `bodies`, and their opcodes.

    None if these are not exactly that number of tuples, each with an integer first.
    """
    # Decode them as one array. An Unpacker would not report an unfinished record behind the last one.
    array = _ARRAY + count.to_bytes(4, "big")
    try:
        records: list[Effect] = list(
            msgpack.unpackb(
                b"".join((array, *bodies)),
                raw=True,
                use_list=False,
                max_str_len=BODY_BYTES_MAX,
                max_bin_len=BODY_BYTES_MAX,
                max_array_len=BODY_BYTES_MAX,
                max_map_len=0,
                max_ext_len=0,
            )
        )
        if not {tuple}.issuperset(map(type, records)):
            return None
        opcodes: list[int] = list(map(_opcode_of, records))
    except (ValueError, msgpack.UnpackException, IndexError):  # IndexError: an empty tuple
        return None
    return (records, opcodes) if {int}.issuperset(map(type, opcodes)) else None


def _decoded(bodies: list[bytes], counts: list[int]) -> tuple[list[Effect], set[int]] | None:
    """The records of these frames, and the opcodes among them; None if one of the frames must be refused."""
    found = _unpacked(bodies, sum(counts))
    if found is None:
        return None
    records, opcodes = found
    kinds = set(opcodes)
    if not all(map(is_known, kinds)):
        return None
    if not all(kind & END for kind in kinds):  # else every record ends a unit, as most do
        at = -1
        for count in counts:
            at += count
            if not opcodes[at] & END:
                return None
    return records, kinds


def _refusal(body: bytes, count: int, lsn: int) -> BadFrame | NewerFrame:
    """Why a frame with valid checksums, whose first record has the LSN `lsn`, is refused."""
    found = _unpacked([body], count)
    if found is None:
        return BadFrame(lsn, f"its checksums match, but its {count} records cannot be decoded")
    for number, opcode in enumerate(found[1]):
        if not is_known(opcode):
            return NewerFrame(lsn + number, opcode)
    return BadFrame(lsn, "its last record does not end a unit")
