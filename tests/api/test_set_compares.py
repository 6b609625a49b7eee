"""SET IFEQ and IFNE (Redis 8.4): the value is compared and set as one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidelog


def test_ifeq_sets_only_what_is_equal(db: tidelog.Store) -> None:
    assert db.set("k", "new", ifeq="") is None and not db.exists("k")
    db.set("k", "old", ex=100)
    assert db.set("k", "new", ifeq="other") is None and db.get("k") == b"old"
    assert db.set("k", "new", ifeq="old", keepttl=True) is True
    assert db.get("k") == b"new" and db.ttl("k") > 90
    assert db.set("k", "newer", ifeq="new", get=True) == b"new"
    assert db.set("k", "newest", ifeq="new", get=True) == b"newer"
    assert db.get("k") == b"newer" and db.ttl("k") == -1


def test_ifne_sets_what_differs_or_is_missing(db: tidelog.Store) -> None:
    assert db.set("k", "a", ifne="") is True
    assert db.set("k", "b", ifne="a") is None and db.get("k") == b"a"
    assert db.set("k", "b", ifne="x") is True and db.get("k") == b"b"


@pytest.mark.parametrize("condition", ["ifeq", "ifne"])
def test_another_type_is_refused(db: tidelog.Store, condition: str) -> None:
    db.xadd("k", {"a": 1})
    with pytest.raises(tidelog.ResponseError, match="WRONGTYPE"):
        db.execute_command("SET", "k", "v", condition, "x")
    assert db.xlen("k") == 1


@pytest.mark.parametrize(
    "words",
    ["IFEQ", "IFEQ a NX", "XX IFNE a", "IFEQ a IFNE b", "IFNE a IFNE b", "IFDEQ 0", "IFDNE 0"],
)
def test_what_does_not_go_together(db: tidelog.Store, words: str) -> None:
    with pytest.raises(tidelog.ResponseError, match="syntax error"):
        db.execute_command("SET", "k", "v", *words.split())
    with pytest.raises(tidelog.ResponseError, match="syntax error"):
        db.execute_command("GETEX", "k", "IFEQ", "v")


def test_of_many_who_compare_one_sets(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s") as db, ThreadPoolExecutor(4) as pool:
        db.set("k", 0)
        for turn in range(20):

            def claim(_: int, turn: int = turn) -> object:
                return db.set("k", turn + 1, ifeq=str(turn))

            assert sorted(map(bool, pool.map(claim, range(4)))) == [False, False, False, True]
