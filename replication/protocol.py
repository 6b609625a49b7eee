"""Messages: what both sides of a link send after the handshake. All numbers little-endian.

     0        4      5              5+length   9+length
    +--------+------+----------------+--------+
    | length | type | payload        | crc    |
    | u32    | u8   | [length]       | u32    |
    +--------+------+----------------+--------+

length     bytes of the payload; each type has its own bounds, which are checked before the payload is waited for
crc        CRC-32C of length, type and payload

From the leader:

    1 FRAMES    a piece of the log, 1 to 65,536 bytes. Pieces are cut anywhere; together they are the bytes of the
                frames in the order of the log, without segment headers
    2 BEAT      now u64 (unix ms), last LSN u64, CRC u32 (of the header of the frame that ends with it), good LSN u64
    3 SNAPSHOT  LSN u64, CRC u32 (of its position), manifest bytes u64, data bytes u64, BLAKE2b of the data (32)
    4 DATA      file u8 (1 manifest, 2 data), offset u64, 1 to 65,536 bytes of the file
    5 BYE       reason, UTF-8, at most 1,000 bytes. The last message of a leader
    6 PROMOTE   LSN u64, generation u32: lead from now on, if all records through LSN are there, as the first life of
                this generation or a higher one. The leader has stopped writing, for good unless the follower declines
   10 PACKED    type u8 (FRAMES or DATA), then the payload of such a message, compressed with zlib. Only if the follower
                has asked for it

From the follower:

    16 ACK      LSN u64 (written and applied), LSN u64 (fsynced)
    17 WANT     file u8, offset u64: send the file from there to its end
    18 PROMOTED number u64, LSN u64: the sender leads. Number and first LSN of its life, whose EPOCH is on its disk. The
                last message of a follower
    20 FAULT    LSN u64, reason, UTF-8, at most 1,000 bytes: the frame there is refused. The last message of a follower

The leader has stored "good" records as well as its fsync policy asks for, and ships no others.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.replication.errors import ProtocolError

HEAD = struct.Struct("<IB")
CRC = struct.Struct("<I")
OVERHEAD: Final = HEAD.size + CRC.size
SLICE_BYTES_MAX: Final = 64 << 10  # of the log, or of a file, in one message
REASON_BYTES_MAX: Final = 1000

FRAMES: Final = 1
BEAT: Final = 2
SNAPSHOT: Final = 3
DATA: Final = 4
BYE: Final = 5
PROMOTE: Final = 6
PACKED: Final = 10
ACK: Final = 16
WANT: Final = 17
PROMOTED: Final = 18
FAULT: Final = 20

MANIFEST_FILE: Final = 1
DATA_FILE: Final = 2

_BEAT = struct.Struct("<QQIQ")
_SNAPSHOT = struct.Struct("<QIQQ32s")
_FILE = struct.Struct("<BQ")
_ACK = struct.Struct("<QQ")
_LSN = struct.Struct("<Q")
_PROMOTE = struct.Struct("<QI")
_PROMOTED = struct.Struct("<QQ")
assert OVERHEAD == 9
assert (_BEAT.size, _SNAPSHOT.size, _FILE.size, _ACK.size) == (28, 60, 9, 16)
assert (_PROMOTE.size, _PROMOTED.size) == (12, 16)

BEAT_BYTES: Final = OVERHEAD + _BEAT.size


class Frames(NamedTuple):
    """A piece of the leader's log."""

    data: bytes

    def pack(self) -> bytes:
        return message(FRAMES, self.data)


class Beat(NamedTuple):
    """The leader's clock, the end of its log, and how much of it is good."""

    now: int  # unix ms
    last: int  # LSN
    crc: int  # of the header of the frame that ends with `last`; 0 for an empty log
    good: int  # LSN

    def pack(self) -> bytes:
        return message(BEAT, _BEAT.pack(*self))


class Snapshot(NamedTuple):
    """A snapshot that the leader holds ready: its position, the size of its files, and the hash of its data."""

    lsn: int
    crc: int
    manifest_bytes: int
    data_bytes: int
    blake2b: bytes

    def pack(self) -> bytes:
        return message(SNAPSHOT, _SNAPSHOT.pack(*self))


class Data(NamedTuple):
    """A piece of a file of the snapshot."""

    file: int
    offset: int
    data: bytes

    def pack(self, *, compress: bool = False) -> bytes:
        payload = _FILE.pack(self.file, self.offset) + self.data
        return packed(DATA, payload) if compress else message(DATA, payload)


class Bye(NamedTuple):
    """The leader ends the link, and says why."""

    reason: str

    def pack(self) -> bytes:
        return message(BYE, cut(self.reason, REASON_BYTES_MAX))


class Promote(NamedTuple):
    """The follower is to lead."""

    lsn: int  # it must have all records through this one
    generation: int  # that it begins

    def pack(self) -> bytes:
        return message(PROMOTE, _PROMOTE.pack(*self))


class Ack(NamedTuple):
    """How far the follower has come."""

    written: int  # LSN, written and applied
    fsynced: int  # LSN

    def pack(self) -> bytes:
        return message(ACK, _ACK.pack(*self))


class Want(NamedTuple):
    """The follower asks for a file of the snapshot, from an offset to its end."""

    file: int
    offset: int

    def pack(self) -> bytes:
        return message(WANT, _FILE.pack(*self))


class Promoted(NamedTuple):
    """The follower leads: the life that it has begun."""

    number: int
    lsn: int  # of its EPOCH

    def pack(self) -> bytes:
        return message(PROMOTED, _PROMOTED.pack(*self))


class Fault(NamedTuple):
    """The follower ends the link, because something is wrong with the leader's log, and says where and what."""

    lsn: int
    reason: str

    def pack(self) -> bytes:
        return message(FAULT, _LSN.pack(self.lsn) + cut(self.reason, REASON_BYTES_MAX))


Message = Frames | Beat | Snapshot | Data | Bye | Promote | Ack | Want | Promoted | Fault


def message(kind: int, payload: bytes) -> bytes:
    head = HEAD.pack(len(payload), kind)
    return b"".join((head, payload, CRC.pack(crc32c_after(crc32c_of(head), payload))))


def packed(kind: int, payload: bytes) -> bytes:
    """The message PACKED that holds one of type FRAMES or DATA; that message itself if it is no longer so."""
    small = zlib.compress(payload, 1)
    if len(small) + 1 >= len(payload):
        return message(kind, payload)
    return message(PACKED, bytes((kind,)) + small)


def cut(text: str, nbytes_max: int) -> bytes:
    """`text` in UTF-8, cut between two characters."""
    return text.encode(errors="replace")[:nbytes_max].decode(errors="ignore").encode()


def _file(payload: bytes) -> tuple[int, int]:
    file, offset = _FILE.unpack_from(payload)
    if file not in (MANIFEST_FILE, DATA_FILE):
        raise ProtocolError(f"it named file {file} of a snapshot, which has files 1 and 2")
    return file, offset


def _bye(payload: bytes) -> Bye:
    return Bye(payload.decode(errors="replace"))


def _fault(payload: bytes) -> Fault:
    (lsn,) = _LSN.unpack_from(payload)
    return Fault(lsn, payload[_LSN.size :].decode(errors="replace"))


class Kind(NamedTuple):
    """A type of message: its name, the bounds of its payload, and how to read it."""

    name: str
    nbytes_min: int
    nbytes_max: int
    read: Callable[[bytes], Message]


# fmt: off
FROM_LEADER: Final[Mapping[int, Kind]] = {
    FRAMES:   Kind("FRAMES", 1, SLICE_BYTES_MAX, Frames),
    BEAT:     Kind("BEAT", _BEAT.size, _BEAT.size, lambda p: Beat(*_BEAT.unpack(p))),
    SNAPSHOT: Kind("SNAPSHOT", _SNAPSHOT.size, _SNAPSHOT.size, lambda p: Snapshot(*_SNAPSHOT.unpack(p))),
    DATA:     Kind("DATA", _FILE.size + 1, _FILE.size + SLICE_BYTES_MAX, lambda p: Data(*_file(p), p[_FILE.size:])),
    BYE:      Kind("BYE", 0, REASON_BYTES_MAX, _bye),
    PROMOTE:  Kind("PROMOTE", _PROMOTE.size, _PROMOTE.size, lambda p: Promote(*_PROMOTE.unpack(p))),
}
FROM_FOLLOWER: Final[Mapping[int, Kind]] = {
    ACK:      Kind("ACK", _ACK.size, _ACK.size, lambda p: Ack(*_ACK.unpack(p))),
    WANT:     Kind("WANT", _FILE.size, _FILE.size, lambda p: Want(*_file(p))),
    PROMOTED: Kind("PROMOTED", _PROMOTED.size, _PROMOTED.size, lambda p: Promoted(*_PROMOTED.unpack(p))),
    FAULT:    Kind("FAULT", _LSN.size, _LSN.size + REASON_BYTES_MAX, lambda p: _fault(p)),
}
# fmt: on


def _unpacked(payload: bytes) -> Message:
    """The message in a PACKED. It holds no more than the bounds of its type allow. Raises ProtocolError."""
    kind = FROM_LEADER.get(payload[0])
    if payload[0] not in (FRAMES, DATA) or kind is None:
        raise ProtocolError(f"PACKED holds a message of type {payload[0]}")
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(payload[1:], kind.nbytes_max + 1)
    except zlib.error as error:
        raise ProtocolError(f"PACKED cannot be unpacked: {error}") from None
    if (
        not unpacker.eof
        or unpacker.unused_data
        or not kind.nbytes_min <= len(found) <= kind.nbytes_max
    ):
        raise ProtocolError(f"PACKED does not hold one {kind.name} of {_bounds(kind)} bytes")
    return kind.read(found)


FROM_LEADER_PACKED: Final[Mapping[int, Kind]] = {
    **FROM_LEADER,
    PACKED: Kind("PACKED", 2, 1 + _FILE.size + SLICE_BYTES_MAX, _unpacked),
}


class Messages:
    """Splits the bytes from one side into messages. Holds at most one unfinished message besides what was put.

    `kinds` are the types that the other side may send: FROM_LEADER, FROM_LEADER_PACKED or FROM_FOLLOWER. After a
    ProtocolError the rest is meaningless, so `take` raises it again, however much is put.
    """

    def __init__(self, kinds: Mapping[int, Kind]) -> None:
        self._kinds = kinds
        self._buffer = bytearray()
        self._at = 0  # bytes of the buffer that were taken
        self._error: ProtocolError | None = None

    def put(self, data: bytes) -> None:
        if self._error is not None:
            return
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def take(self) -> Message | None:
        """The next whole message; None if there is none yet. Raises ProtocolError."""
        if self._error is not None:
            raise self._error
        try:
            return self._next()
        except ProtocolError as error:
            self._error = error
            self._buffer.clear()
            raise

    def __iter__(self) -> Iterator[Message]:
        """All whole messages that were put. Raises ProtocolError behind the last valid one."""
        while (message := self.take()) is not None:
            yield message

    def _next(self) -> Message | None:
        buffer, at = self._buffer, self._at
        if len(buffer) < at + HEAD.size:
            return None
        length, number = HEAD.unpack_from(buffer, at)
        kind = self._kinds.get(number)
        if kind is None:
            raise ProtocolError(_stranger(number))
        if not kind.nbytes_min <= length <= kind.nbytes_max:
            raise ProtocolError(f"{kind.name} of {length} bytes, but it can have {_bounds(kind)}")
        behind = at + HEAD.size + length
        if len(buffer) < behind + CRC.size:
            return None
        with memoryview(buffer) as view:
            payload = bytes(view[at + HEAD.size : behind])
            head = bytes(view[at : at + HEAD.size])
        if crc32c_after(crc32c_of(head), payload) != CRC.unpack_from(buffer, behind)[0]:
            raise ProtocolError(f"{kind.name} does not match its checksum")
        self._at = behind + CRC.size
        return kind.read(payload)


def _stranger(number: int) -> str:
    if number == PACKED:
        return "PACKED was not asked for"
    for kinds, side in ((FROM_LEADER, "leader"), (FROM_FOLLOWER, "follower")):
        if number in kinds:
            return f"only a {side} sends {kinds[number].name}"
    return f"there is no message of type {number}"


def _bounds(kind: Kind) -> str:
    if kind.nbytes_min == kind.nbytes_max:
        return f"only {kind.nbytes_min}"
    return f"{kind.nbytes_min} to {kind.nbytes_max}"
