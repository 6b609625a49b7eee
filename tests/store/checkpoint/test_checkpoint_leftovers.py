"""A checkpoint removes the rows of streams and nodes that are gone, and writes a key's expiry beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import testing

QUIET: dict[str, Any] = {"fsync": "no", "checkpoint_bytes": 0, "save": ()}


def filled(db: tidelog.Store) -> None:
    for key in ("s", "t"):
        db.xadd_many(key, [{"n": n, "pad": "x" * 100} for n in range(3000)])
        db.xgroup_create(key, "g", id="0")
        db.xreadgroup("g", "c", {key: ">"}, count=1000)
    db.set("k", "v", px=50_000)


def acked(db: tidelog.Store) -> None:
    pending = db.xpending_range("s", "g", min="-", max="+", count=900)
    db.xack("s", "g", *(row["message_id"] for row in pending))


CHANGES: dict[str, Callable[[tidelog.Store], object]] = {
    "acknowledged entries": acked,
    "a deleted stream": lambda db: db.delete("s"),
    "a destroyed group": lambda db: db.xgroup_destroy("s", "g"),
    "trimmed nodes": lambda db: db.xtrim("s", maxlen=500),
    "an older time": lambda db: db.pexpire("k", 90_000),
    "a time that was dropped": lambda db: db.persist("k"),
    "a flushed database": lambda db: db.flushdb(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_no_row_stays_of(tmp_path: Path, name: str) -> None:
    with tidelog.open(tmp_path / "db", **QUIET) as db:
        filled(db)
        db.checkpoint()
        CHANGES[name](db)
        db.checkpoint()
        assert [str(finding) for finding in db.verify()] == []


def test_a_key_of_a_checkpoint_expires_in_its_time(tmp_path: Path) -> None:
    """Though nobody names it."""
    clock = testing.Clock()
    with tidelog.open(tmp_path / "db", clock=clock, **QUIET) as db:
        db.set("due", "v", px=10_000)
        db.set("later", "v", px=90_000)
        db.checkpoint()
    with tidelog.open(tmp_path / "db", clock=clock, **QUIET) as db:
        assert db.dbsize() == 2
        clock.advance(20.0)
        db.set("another", "v")
        assert db.dbsize() == 2
        assert sorted(db.keys()) == [b"another", b"later"]
