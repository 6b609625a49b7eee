"""A store as text, made into files by the tables of docs/FORMAT.md. Nothing of tidelog takes part.

    STORE UUID
    DURABLE OFFSET INCARNATION LSN        one of its two slots
    SEGMENT ROLE INCARNATION TIME         a segment: its first LSN and what was before it follow from the lines above
    FRAME NOW SYNCED                      a frame, and below it its records:
      NAME FIELD, FIELD, ...              of opcode NAMES[NAME]; NAME END is the last record of a unit
    ROW KIND KEY-FIELDS                   a row of the checkpoint; below it the payload. The hash in the keys of KEY and
      PAYLOAD                             EXPIRY follows from it
    ASKED DB COMMAND                      a question, as a list of words; below it what the store answered
      ANSWER
    FACT NAME VALUE                       what else was known of it

Fields and payloads are Python literals. In them bytes are bytes, and text stands for packed numbers:

    "ids8 1-0 2-0"     IDs of 8 bytes each         "ids16 1-0 2-0"   of 16 bytes each, as a single one is, too
    "q 1 2"            64-bit numbers              "I 1 2"           32-bit numbers
    (IDS, ...)         a tuple is a sealed block: the elements of its array
    [(...), (...)]     as the payload of a DATA row: its blocks, one after the other
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
import msgpack

HEADER: Final = struct.Struct("<8sII16sQQQQQI")  # of a segment, but for its CRC
FRAME: Final = struct.Struct("<IIQIQQII")  # header of a frame, but for its CRC
SLOT: Final = struct.Struct("<8s16sQQI")  # of DURABLE, but for its CRC
assert (HEADER.size, FRAME.size, SLOT.size) == (76, 44, 44)
MAGIC: Final = 0xA1F4D71E
DURABLE_BYTES: Final = 8192
END: Final = 64  # added to the opcode of a unit's last record
# fmt: off
NAMES: Final = {
    "EPOCH": 1, "XADD": 2, "XADD_NODE": 3, "XADD_IDMP": 4, "XADD_MANY": 5,
    "REOPEN": 6, "XTRIM": 7, "XDEL": 8, "XSETID": 9, "XCFGSET": 10,
    "XIDMPRECORD": 11, "DUPLICATE": 12, "EMPTY_STREAM": 13, "XGROUP_CREATE": 14, "XGROUP_SETID": 15,
    "XGROUP_DESTROY": 16, "CREATECONSUMER": 17, "DELCONSUMER": 18, "XCLAIM": 19, "XACK": 20,
    "XNACK": 21, "XACKDEL": 22, "DEL": 24, "SET": 25, "PEXPIREAT": 26,
    "PERSIST": 27, "RENAME": 28, "COPY": 29, "MOVE": 30, "SWAPDB": 31,
    "FLUSHDB": 32, "FLUSHALL": 33, "APPEND": 34, "RESTORE": 35,
}
# fmt: on


def _table() -> list[int]:
    made = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        made.append(byte)
    return made


TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def checked(data: bytes) -> bytes:
    """With its CRC behind it."""
    return data + struct.pack("<I", crc32c(data))


def id_of(text: str) -> tuple[int, int]:
    ms, seq = text.split("-")
    return int(ms), int(seq)


def packed_numbers(text: str) -> bytes:
    """Bytes of a text that stands for packed numbers."""
    kind, *words = text.split()
    if kind == "ids16":
        return b"".join(struct.pack(">QQ", *id_of(word)) for word in words)
    if kind == "ids8":
        pairs = map(id_of, words)
        return b"".join(struct.pack("<q", ((ms - (1 << 41)) << 22) | seq) for ms, seq in pairs)
    return struct.pack(f"<{len(words)}{kind}", *map(int, words))


def plain(value: Any) -> Any:
    """A literal of the text as what msgpack is given."""
    if isinstance(value, str):
        return packed_numbers(value)
    if isinstance(value, tuple):
        return checked(msgpack.packb(plain(list(value)), use_bin_type=False))
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def hashed(key: bytes) -> bytes:
    return blake2b(key, digest_size=8).digest() + blake2b(key, digest_size=16).digest()


class Asked(NamedTuple):
    """A question, and what the store answered that is described."""

    db: int
    words: list[str]
    answer: Any


class Described:
    """The files of a described store, by their paths; rows and questions besides."""

    def __init__(self, text: str) -> None:
        self.facts: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.rows: dict[bytes, bytes] = {}
        self.asked: list[Asked] = []
        self._uuid = b""
        self._lsn, self._end = 1, (0, 0, 0)  # the next record; the end of the segment before
        self._chain = 0
        self._path = ""
        for head, below in _paragraphs(text):
            what, rest = head.split(" ", 1)
            getattr(self, f"_{what.lower()}")(rest, below)

    def write(self, root: Path) -> None:
        """Make the files of the store in `root`."""
        for name, data in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        folder = root / "checkpoint"
        folder.mkdir()
        with (
            lmdb.open(str(folder), map_size=1 << 30, max_dbs=0) as env,
            env.begin(write=True) as txn,
        ):
            for key, value in self.rows.items():
                txn.put(key, value)
        (folder / "lock.mdb").unlink()

    # --- one method for each kind of line

    def _fact(self, rest: str, below: list[str]) -> None:
        name, value = rest.split(" ", 1)
        self.facts[name] = value

    def _store(self, rest: str, below: list[str]) -> None:
        self._uuid = bytes.fromhex(rest)
        text = f"tidelog store\nformat 1\nuuid {rest}\n".encode()
        self.files["STORE"] = text + b"crc32c %08x\n" % crc32c(text)

    def _durable(self, rest: str, below: list[str]) -> None:
        at, incarnation, lsn = (
            int(word, 16 if n == 1 else 10) for n, word in enumerate(rest.split())
        )
        slot = checked(SLOT.pack(b"tide-syn", self._uuid, incarnation, lsn, 0))
        data = self.files.get("aof/DURABLE", bytes(DURABLE_BYTES))
        self.files["aof/DURABLE"] = data[:at] + slot + data[at + len(slot) :]

    def _segment(self, rest: str, below: list[str]) -> None:
        role, incarnation, time = rest.split()
        self._path = f"aof/{self._lsn:020}.aof"
        self.files[self._path] = checked(
            HEADER.pack(
                *(b"tidelog\n", 1, int(role), self._uuid, int(incarnation, 16), self._lsn),
                *(int(time), *self._end),
            )
        )

    def _frame(self, rest: str, below: list[str]) -> None:
        now, synced = map(int, rest.split())
        records = [_record(line) for line in below]
        body = b"".join(msgpack.packb(record) for record in records)
        head = FRAME.pack(
            *(MAGIC, len(body), self._lsn, len(records), now, synced, self._chain, crc32c(body))
        )
        self._chain = crc32c(self._uuid + head)
        self.files[self._path] += head + struct.pack("<I", self._chain) + body
        self._lsn += len(records)
        self._end = self._lsn - 1, len(self.files[self._path]), self._chain

    def _row(self, rest: str, below: list[str]) -> None:
        kind, *fields = rest.split()
        value = plain(ast.literal_eval(" ".join(below)))
        numbers = [int(word) for word in fields if "-" not in word]
        places = [packed_numbers(f"ids16 {word}") for word in fields if "-" in word]
        if kind == "META":
            key = b"!"
        elif kind == "KEY":
            key = b"k" + struct.pack(">I", *numbers) + hashed(value[0])
        elif kind == "EXPIRY":
            key = b"e" + struct.pack(">IQ", *numbers) + hashed(value)
        elif kind in ("PAGE", "DATA"):
            key = kind[:1].lower().encode() + struct.pack(">Q", *numbers) + places[0]
        else:
            layout = {"STREAM": ">Q", "GROUP": ">QI", "CHUNK": ">QIQ"}[kind]
            key = kind[:1].lower().encode() + struct.pack(layout, *numbers)
        if kind == "DATA":
            data = b"".join(value)
        elif kind == "EXPIRY":
            data = value
        else:
            data = msgpack.packb(value)
        self.rows[key] = data + struct.pack("<I", crc32c(key + data))

    def _asked(self, rest: str, below: list[str]) -> None:
        db, words = rest.split(" ", 1)
        self.asked.append(
            Asked(int(db), ast.literal_eval(words), ast.literal_eval(" ".join(below)))
        )


def _record(line: str) -> Any:
    name, fields = line.split(" ", 1)
    end = fields.startswith("END ")
    opcode = NAMES[name] + (END if end else 0)
    return [opcode, *plain(ast.literal_eval(f"[{fields.removeprefix('END ')}]"))]


def _paragraphs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each line that is not indented, with the indented ones below it. Lines that begin with # say something."""
    head, below = "", list[str]()
    for line in text.splitlines():
        if line.startswith("  "):
            below.append(line[2:])
        elif line and not line.startswith("#"):
            if head:
                yield head, below
            head, below = line, []
    yield head, below
