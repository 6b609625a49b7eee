"""A leader whose files are damaged or moved while it runs: the follower serves on, and goes on once they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal, last_lsn
from tests.until import until

import tidelog

_PAD = "x" * 300


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Pair]:
    """A leader with many segments."""
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack, fsync="no", segment_bytes=4096)
        fill(pair.db, 60)
        yield pair


def fill(db: tidelog.Store, count: int) -> None:
    for number in range(count):
        db.xadd("orders", {"n": number, "pad": _PAD})


def failure(db: tidelog.Store) -> str:
    return str(db.info()["replication"].get("link_failure", ""))


def segments(root: Path) -> list[Path]:
    return sorted((root / "aof").glob("*.aof"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_segment_that_is_damaged_where_a_feed_reads(
    small: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    path = segments(small.root / "leader")[2]
    flip(path, 1500)
    db = small.follow()
    until(lambda: "check the leader with `tidelog verify`" in failure(db), "it gives no advice")
    lsn = int(path.stem)
    assert db.xlen("orders") >= lsn - 2  # the records before the damage
    assert small.db.xlen("orders") == 60
    flip(path, 1500)
    equal(small.db, db)
    assert not failure(db)
    # the leader's operator reads it, too
    assert f"it refuses what this log has at LSN {lsn + 3}" in caplog.text


def test_a_segment_whose_place_of_a_follower_is_damaged(small: Pair) -> None:
    db = small.follow()
    fill(small.db, 5)
    equal(small.db, db)
    end = last_lsn(db)
    db.close()
    fill(small.db, 30)
    # The headers of its frames lead to the place where the follower goes on.
    path = next(each for each in reversed(segments(small.root / "leader")) if int(each.stem) < end)
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + b"\xff" * 300 + whole[360:])
    db = small.follow()
    until(lambda: "the log cannot be read" in failure(db), "the leader does not say why")
    assert db.xlen("orders") == 65
    path.write_bytes(whole)
    equal(small.db, db)


def test_a_directory_that_is_moved_away_and_back(small: Pair) -> None:
    db = small.follow()
    caught_up(small.db, db)
    there, moved = small.root / "leader", small.root / "moved"
    there.rename(moved)
    with pytest.raises(tidelog.NotStored, match="moved or replaced"):
        fill(small.db, 60)
    small.proxy.cut()
    until(lambda: failure(db))
    assert db.xlen("orders") >= 60
    moved.rename(there)
    fill(small.db, 3)
    equal(small.db, db)
