"""RDB images with other bytes behind the header and no checksum, and payloads of DUMP whose checksum holds."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

from tests.engine.rdb.loaded import check, put_dump
from tests.engine.rdb.test_damage import changed, image, taken
from tests.fuzz.others import among, lzf
from tests.fuzz.outcome import REFUSED, TAKEN, Outcome
from tests.fuzz.twist import changed as bytes_changed
from tests.oracle.played import played

from tidelog.engine.commands.rewrite import Lost
from tidelog.engine.keys.state import State
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.errors import RdbError
from tidelog.engine.rdb.lzf import decompress as decompressed
from tidelog.engine.rdb.lzf import in_python
from tidelog.engine.rdb.write import RdbTarget, dump

TARGETS = list(RdbTarget)


@lru_cache(maxsize=64)
def sound(seed: int) -> bytes:
    """An image for a target that the seed picks."""
    return image(seed, TARGETS[seed % len(TARGETS)])


@lru_cache(maxsize=64)
def payloads(seed: int) -> list[bytes]:
    """The payloads of DUMP of the keys of a random state."""
    tidelog, _ = played(random.Random(seed), 30)
    target = TARGETS[seed % len(TARGETS)]
    return [
        dump(key, value, target, Lost(), db)
        for db, database in enumerate(tidelog.state.databases)
        for key, value in database.keys.items()
    ]


def restored(payload: bytes, r: random.Random) -> bool:
    """RESTORE of a changed payload."""
    body = bytes_changed(payload[:-8], r, 0, len(payload) - 8)
    state = State()
    try:
        put_dump(state, 0, b"k", body + crc64(body).to_bytes(8, "little"))
    except RdbError as error:
        assert "\n" not in str(error)
        return False
    except AssertionError:
        return False  # bytes are left behind the value
    check(state)
    return True


def unpacked(r: random.Random) -> bool:
    """Changed bytes of LZF: with the package in C and without it, the same bytes, or none."""
    chunk, times = r.randbytes(r.randrange(1, 70)), r.randrange(1, 9)
    packed = lzf(chunk, times)
    packed = bytes_changed(packed, r, 0, len(packed)) if r.random() < 0.8 else packed
    found = []
    for decompress in (decompressed, in_python):
        try:
            found.append(decompress(packed, len(chunk) * times))
        except ValueError:
            found.append(b"")
    assert found[0] == found[1], packed
    return bool(found[0])


def one(seed: int, r: random.Random, place: Path) -> Outcome:
    known = payloads(seed)
    way = r.random()
    if known and way < 0.3:
        good = restored(r.choice(known), r)
    elif way < 0.35:
        good = unpacked(r)
    elif way < 0.5:
        image = among(sound(seed), r)
        good = taken(image if r.random() < 0.3 else changed(image, r)) is not None
    else:
        good = taken(changed(sound(seed), r)) is not None
    return TAKEN if good else REFUSED
