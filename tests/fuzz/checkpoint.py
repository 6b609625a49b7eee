"""data.mdb with other bytes, and rows with other contents whose checksums hold. manifest.json likewise.

The structure of the file is checked, and its rows are read without LMDB. A state is built on whatever rows there are.
"""

from __future__ import annotations

import json
import random
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
from tests.engine.rdb.loaded import written
from tests.engine.rows_in_memory import RowsInMemory
from tests.fuzz.outcome import REFUSED, TAKEN, Outcome
from tests.fuzz.shell import run
from tests.fuzz.twist import changed, twisted
from tests.oracle.played import played

from tidelog.aof.errors import AofError
from tidelog.aof.identity import CHECKPOINT, DATA
from tidelog.aof.reading.reader import UNFIT, Epoch
from tidelog.aof.segment import Position
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.freeze import load_state
from tidelog.engine.rdb.write import RdbTarget
from tidelog.engine.rowkeys import META
from tidelog.snapshot import manifest
from tidelog.snapshot.manifest import Counts, DatabaseCount, Manifest, StreamCount
from tidelog.snapshot.rows.datafile import read_head
from tidelog.snapshot.rows.meta import Meta
from tidelog.snapshot.rows.rowfile import RowFile
from tidelog.snapshot.rows.structure import Structure

PATH = Path("/db/checkpoint/data.mdb")


class InMemory:
    """A file that can be read."""

    path = PATH

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def pread(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]

    def read_at(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class Sound(NamedTuple):
    """A checkpoint: its file, its rows without their checksums, and the offsets of the bytes that are not zero."""

    data: bytes
    rows: RowsInMemory
    used: list[int]


@lru_cache(maxsize=64)
def sound(seed: int) -> Sound:
    """The checkpoint of a random state."""
    tidelog, _ = played(random.Random(seed), 25)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        image = Path(name) / "a.rdb"
        image.write_bytes(written(tidelog.state, RdbTarget.REDIS_8_8)[0])
        assert run(["import", f"{name}/db", str(image)]) == 0
        data = (Path(name) / "db" / CHECKPOINT / DATA).read_bytes()
    rows = RowsInMemory()
    for key, payload in _rows(data).rows(b""):
        rows.put(key, payload)
    return Sound(data, rows, [at for at, byte in enumerate(data) if byte])


def _rows(data: bytes) -> RowFile:
    file = InMemory(data)
    head = read_head(file)
    assert head is not None
    return RowFile(PATH, file.read_at, head)


def other_bytes(of: Sound, r: random.Random) -> bytes:
    """A few bytes changed where there are any; sometimes the end is cut."""
    data = bytearray(of.data)
    for _ in range(r.choice((1, 1, 2, 5, 20))):
        at = r.choice(of.used) + r.choice((0, 0, 0, 1, -1))
        if 0 <= at < len(data):
            data[at] = r.choice((data[at] ^ 1 << r.randrange(8), r.randrange(256), 0, 255))
    return bytes(data[: r.randrange(len(data))] if r.random() < 0.05 else data)


def file_read(data: bytes) -> bool:
    """Check the structure, and build a state on the rows."""
    file = InMemory(data)
    try:
        head = read_head(file)
        if head is None:
            return False
        structure = Structure(PATH, file.read_at, head)
        for _ in structure.run():
            pass
        rows = RowFile(PATH, file.read_at, head, suspects=structure.suspects)
        payload = rows.get(META)
        if payload is None:
            return False
        digest(load_state(rows, Meta.unpack(PATH, payload).tables))
        for _ in rows.rows(b""):
            pass
    except (AofError, CorruptBlock) as error:
        assert "\n" not in str(error), error
        return False
    return not structure.faults


def other_row(of: Sound, r: random.Random) -> RowsInMemory:
    """The rows, one of them with another content."""
    rows = of.rows.copy()
    key, payload = r.choice(list(rows.all().items()))
    if r.random() < 0.15:
        rows.put(key, None)
    elif r.random() < 0.5:
        rows.put(key, changed(payload, r, 0, len(payload)))
    else:
        rows.put(key, twisted_payload(payload, r))
    return rows


def twisted_payload(payload: bytes, r: random.Random) -> bytes:
    """The values of a payload, one of them twisted, if it is msgpack."""
    try:
        value = msgpack.unpackb(payload, strict_map_key=False)
        made: bytes = msgpack.packb(twisted(value, r))
    except (ValueError, OverflowError, TypeError, msgpack.UnpackException):
        return changed(payload, r, 0, len(payload))
    return made


def rows_read(rows: RowsInMemory) -> bool:
    try:
        digest(load_state(rows, Meta.unpack(PATH, rows.get(META) or b"").tables))
    except (AofError, CorruptBlock, *UNFIT):
        # Tools turn these into an error that names the row (tools.aof.records.blamed).
        return False
    return True


MANIFEST = Manifest(
    uuid=bytes(range(16)),
    position=Position(5, 1, 1, 80, 0xA1),
    epochs=(Epoch(1, 0xA1, 1),),
    now_ms=1,
    created_ms=2,
    data_bytes=8192,
    blake2b="00" * 32,
    counts=Counts((DatabaseCount(0, 2, 1),), 1, 3, 1, 0, (StreamCount(0, b"\xff", 3, 1, 0),)),
)


def other_manifest(r: random.Random) -> bytes:
    """A manifest with other fields whose checksum holds, or with other bytes."""
    text = manifest.render(MANIFEST)
    if r.random() < 0.3:
        return changed(text, r, 0, len(text))
    facts: Any = json.loads(text)
    del facts["check"]
    for _ in range(r.choice((1, 1, 2))):
        facts = _json_twisted(facts, r)
    if isinstance(facts, dict):
        facts["check"] = manifest.check_of(facts)
    return json.dumps(facts).encode()


def _json_twisted(facts: Any, r: random.Random) -> Any:
    found = twisted(facts, r)
    try:
        json.dumps(found)
    except (TypeError, ValueError):
        return facts  # bytes are no JSON
    return found


def manifest_read(data: bytes) -> bool:
    try:
        manifest.parse(PATH.with_name(manifest.NAME), data)
    except AofError as error:
        assert "\n" not in str(error), error
        return False
    return True


def one(seed: int, r: random.Random, place: Path) -> Outcome:
    choice = r.random()
    if choice < 0.35:
        good = file_read(other_bytes(sound(seed), r))
    elif choice < 0.75:
        good = rows_read(other_row(sound(seed), r))
    else:
        good = manifest_read(other_manifest(r))
    return TAKEN if good else REFUSED
