"""Append-only files of Redis with other bytes, also behind an image, and manifests with other words."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

from tests.engine.rdb.test_damage import changed
from tests.fuzz.outcome import REFUSED, TAKEN, Outcome
from tests.fuzz.twist import changed as bytes_changed
from tests.tools.test_import_fuzz import files, taken

from tidelog.tools.importing.from_aof import parse_manifest

MANIFEST = (
    b"file appendonly.aof.2.base.rdb seq 2 type b\n"
    b"file appendonly.aof.1.incr.aof seq 1 type h\n"
    b"file appendonly.aof.2.incr.aof seq 2 type i\n"
    b'file "a b.aof" seq 3 type i\n'
)
WORDS = (
    b"file",
    b"seq",
    b"type",
    b"b",
    b"i",
    b"h",
    b"../a",
    b"/etc/passwd",
    b'"',
    b"\\",
    b"\0",
    b"-1",
    b"9" * 30,
)


@lru_cache(maxsize=64)
def sound(seed: int) -> list[bytes]:
    """A log of commands, and one that begins with an image."""
    return [data for data in files(seed, 12) if len(data) >= 20]


def listed(r: random.Random) -> bool:
    """A changed manifest: the names in it are names of files beside it, whatever happens."""
    lines = MANIFEST.split(b"\n")
    at = r.randrange(len(lines) - 1)
    words = lines[at].split(b" ")
    words[r.randrange(len(words))] = r.choice(WORDS)
    lines[at] = b" ".join(words)
    data = b"\n".join(lines)
    if r.random() < 0.5:
        data = bytes_changed(data, r, 0, len(data))
    try:
        found = parse_manifest(data)
    except ValueError as error:
        assert "\n" not in str(error)
        return False
    assert all(Path(each.name).name == each.name for each in found)
    return True


def one(seed: int, r: random.Random, place: Path) -> Outcome:
    known = sound(seed)
    if not known or r.random() < 0.1:
        good = listed(r)
    else:
        good = taken(place.with_suffix(".aof"), changed(r.choice(known), r))
    return TAKEN if good else REFUSED
