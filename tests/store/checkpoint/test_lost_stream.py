"""A STREAM row of a checkpoint that cannot be read: the key can be deleted or replaced, and everything of it goes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from tests import inside
from tests.snapshot.world import without_sums
from tests.store.checkpoint.damaged_row import damage

import tidelog
from tidelog import testing
from tidelog.engine.rowkeys import STREAM

QUIET: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
OTHER = b"s" + (2).to_bytes(8, "big")  # the STREAM row of the second stream


def drop(store: Path, prefix: bytes) -> None:
    """Delete the row of the first stream, in a file that does not say which rows it has."""
    without_sums(store / "checkpoint", prefix + (1).to_bytes(8, "big"))


def rows(store: Path) -> list[bytes]:
    """The keys of all rows of the checkpoint of a store that nobody has open."""
    with lmdb.Environment(str(store / "checkpoint"), map_size=1 << 30, lock=False) as environment:
        with environment.begin() as txn:
            return [key for key, _ in txn.cursor()]


def of_the_lost(store: Path) -> list[bytes]:
    number = (1).to_bytes(8, "big")
    return [key for key in rows(store) if key[:1] in b"spdgc" and key[1:9] == number]


def opened(store: Path, **more: Any) -> tidelog.Store:
    return tidelog.open(store, **{**QUIET, **more})


@pytest.fixture(params=[damage, drop], ids=["damaged", "missing"])
def store(request: Any, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with opened(root) as db:
        for key in ("bad", "good"):
            db.xadd_many(key, [{"n": n, "pad": "x" * 100} for n in range(300)])
            db.xgroup_create(key, "g", id="0")
            db.xreadgroup("g", "anna", {key: ">"}, count=100)
        db.set("name", "x")
        db.checkpoint()
    request.param(root, STREAM)
    assert len(of_the_lost(root)) > 4
    return root


USES: dict[str, Callable[[tidelog.Store], object]] = {
    "xadd": lambda db: db.xadd("bad", {"n": 1}),
    "xlen": lambda db: db.xlen("bad"),
    "xreadgroup": lambda db: db.xreadgroup("g", "ben", {"bad": ">"}),
    "xgroup create": lambda db: db.xgroup_create("bad", "h"),
    "rename it": lambda db: db.rename("bad", "worse"),
    "copy": lambda db: db.copy("bad", "worse"),
    "get": lambda db: db.get("bad"),
    "getdel": lambda db: db.getdel("bad"),
    "pexpire": lambda db: db.pexpire("bad", 10),
}


@pytest.mark.parametrize("use", USES)
def test_what_needs_the_stream_is_refused_and_told_what_to_do(store: Path, use: str) -> None:
    with opened(store) as db:
        before = db.info()["written_lsn"]
        with pytest.raises(tidelog.StoreDamaged, match="stream 1.*DEL deletes it"):
            USES[use](db)
        assert db.info()["written_lsn"] == before and not inside.reloads(db)
        assert db.xlen("good") == 300


GIVEN_UP: dict[str, tuple[Callable[[tidelog.Store], object], object, set[bytes]]] = {
    "del": (lambda db: db.delete("bad"), 1, {b"good", b"name"}),
    "unlink": (lambda db: db.unlink("bad"), 1, {b"good", b"name"}),
    "del of two": (lambda db: db.delete("bad", "name", "none"), 2, {b"good"}),
    "set": (lambda db: db.set("bad", "y"), True, {b"good", b"bad", b"name"}),
    "set with a time": (lambda db: db.set("bad", "y", px=99_000), True, {b"good", b"bad", b"name"}),
    "mset": (
        lambda db: db.execute_command("MSET", "a", 1, "bad", 2),
        True,
        {b"good", b"bad", b"name", b"a"},
    ),
    "rename over it": (lambda db: db.rename("good", "bad"), True, {b"bad", b"name"}),
    "copy over it": (
        lambda db: db.copy("good", "bad", replace=True),
        True,
        {b"good", b"bad", b"name"},
    ),
    "flushdb": (lambda db: db.flushdb(), True, set()),
    "flushall": (lambda db: db.flushall(), True, set()),
    "in a transaction": (
        lambda db: db.pipeline().set("a", 1).delete("bad").xadd("bad", {"n": 1}).xlen("bad").execute()[3],
        1,
        {b"good", b"bad", b"name", b"a"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", GIVEN_UP)
def test_it_can_be_given_up(store: Path, way: str, tmp_path: Path) -> None:
    act, answer, left = GIVEN_UP[way]
    with opened(store) as db:
        assert act(db) == answer
        assert not inside.reloads(db)
        assert set(db.keys()) == left and db.dbsize() == len(left)
        before = db.digest()
        # As a killed process leaves it: the log is replayed over the same damage.
        shutil.copytree(store, tmp_path / "copy", ignore=shutil.ignore_patterns("LOCK", "lock.mdb"))
        with opened(tmp_path / "copy") as other:
            assert other.digest() == before
        with tidelog.open(store, read_only=True) as reader:
            assert reader.digest() == before
        db.checkpoint()
        assert db.digest() == before
        assert db.verify() == []
        assert set(db.scan_iter()) == left
    assert of_the_lost(store) == []
    with opened(store) as db:
        assert db.digest() == before and set(db.keys()) == left
        assert db.verify() == []


@pytest.mark.parametrize("way", ["renamenx", "setnx", "msetnx", "move", "set nx"])
def test_it_is_there_for_what_asks_whether_it_is(store: Path, way: str) -> None:
    with opened(store) as db:
        if way == "move":
            db.execute_command("SWAPDB", 0, 1)
            db.set("bad", "y")
            assert db.execute_command("MOVE", "bad", 1) == 0
        else:
            refused: Any = {
                "renamenx": lambda: db.renamenx("name", "bad"),
                "setnx": lambda: db.setnx("bad", "y"),
                "msetnx": lambda: db.execute_command("MSETNX", "a", 1, "bad", 2),
                "set nx": lambda: db.set("bad", "y", nx=True),
            }[way]
            assert not refused()
            with pytest.raises(tidelog.StoreDamaged):
                db.xlen("bad")
            assert db.dbsize() == 3 and not db.exists("a")
        assert not inside.reloads(db)


def test_it_goes_while_a_checkpoint_is_written_or_after_one_failed(store: Path) -> None:
    with opened(store, memory_budget=1 << 20) as db:
        with pytest.raises(tidelog.StoreDamaged):
            db.xlen("bad")
        db.xadd("good", {"n": 1})
        db.checkpoint()  # of other changes: the row stays as it is
        with pytest.raises(tidelog.StoreDamaged):
            db.xlen("bad")
        assert db.delete("bad") == 1 and db.delete("bad") == 0
        db.xadd("bad", {"n": 1})  # another stream under the same key
        db.checkpoint()
        assert db.xlen("bad") == 1 and db.verify() == []
    assert of_the_lost(store) == []


def test_a_damaged_stream_whose_time_has_passed_goes(tmp_path: Path) -> None:
    clock = testing.Clock()
    root = tmp_path / "store"
    with opened(root, clock=clock) as db:
        db.xadd("bad", {"n": 1})
        db.pexpire("bad", 1000)
        db.set("good", "x")
        db.checkpoint()
    damage(root, STREAM)
    with opened(root, clock=clock) as db:
        assert db.dbsize() == 2
        clock.advance(2)
        db.set("other", "x")
        assert db.dbsize() == 2 and not db.exists("bad")
        assert db.delete("bad") == 0
        before = db.digest()
    with opened(root, clock=clock) as db:
        assert db.digest() == before
        db.checkpoint()
        assert db.verify() == []
    assert of_the_lost(root) == []


@pytest.mark.parametrize("lost", ["mails", "mails:holds"])
def test_a_purge_gives_up_a_queue_that_cannot_be_read(tmp_path: Path, lost: str) -> None:
    root = tmp_path / "store"
    with opened(root) as db:
        queue = db.queue("mails")
        db.xadd(lost, {"n": 1})  # the stream with the number 1
        queue.put_many([1, 2, 3])
        if lost == "mails:holds":
            job = queue.get()
            assert job is not None
            with job:
                job.nack("later", delay=99)
        db.checkpoint()
    damage(root, STREAM)
    with opened(root) as db:
        queue = db.queue("mails")
        with pytest.raises(tidelog.StoreDamaged, match="DEL deletes it"):
            db.xlen(lost)
        purged = queue.purge()
        assert purged == (0 if lost == "mails" else 3)
        queue.put("new")
        job = queue.get()
        assert job is not None
        with job:
            assert job.value == "new"
        before = db.digest()
        db.checkpoint()
        assert db.verify() == []
    assert of_the_lost(root) == []
    with opened(root) as db:
        assert db.digest() == before
