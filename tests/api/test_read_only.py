"""Looking at a store beside its writer: nothing is written, created or locked, and `refresh` follows on."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import inside

import tidelog
from tidelog.aof import segment
from tidelog.aof.reading import recovery
from tidelog.engine.effects.effect import Effect
from tidelog.snapshot.checkpoint import write_checkpoint
from tidelog.store import checkpoints
from tidelog.store.commit.landing import Landing


def test_beside_a_running_writer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, fsync="no", segment_bytes=8192) as db:
        db.xgroup_create("s", "g", mkstream=True)
        for number in range(100):
            db.xadd("s", {"n": number})
        files = sorted(os.listdir(path))
        with tidelog.open(path, read_only=True) as copy:
            assert copy.digest() == db.digest() and copy.xlen("s") == 100
            for number in range(1000):
                db.xadd("s", {"n": number})
            db.xreadgroup("g", "c", {"s": ">"})
            assert copy.xlen("s") == 100
            assert copy.refresh() == db.info()["written_lsn"]
            assert copy.refresh() == copy.info()["next_lsn"] - 1
            assert copy.digest() == db.digest() and copy.xpending("s", "g")["pending"] == 1100
            assert sorted(os.listdir(path)) == files
        db.xadd("s", {"n": 1})


def test_writes_are_refused_in_every_form(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(path) as db:
        db.xadd("s", {"a": 1}, id="1-1")
        db.xgroup_create("s", "g", id="0")
    with tidelog.open(path, read_only=True, decode_responses=True) as copy:
        for call in (
            lambda: copy.xadd("s", {"a": 1}),
            lambda: copy.xadd("s", {"a": 1}, id="2-1"),
            lambda: copy.xadd_many("s", [{"a": 1}]),
            lambda: copy.xreadgroup("g", "c", {"s": ">"}),
            lambda: copy.delete("s"),
            lambda: copy.pipeline(transaction=False).xadd("s", {"a": 1}).execute(),
            lambda: copy.pipeline().xadd("s", {"a": 1}).execute(),
        ):
            with pytest.raises(tidelog.ReadOnlyError, match="can't write against a read only"):
                call()
        assert copy.xrange("s") == [("1-1", {"a": "1"})]
        with pytest.raises(tidelog.DataError):
            with tidelog.open(path) as db:
                db.refresh()


def test_an_expired_key_is_missing_and_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(path) as db:
        db.set("k", "v", px=20)
        db.set("stays", "v")
        with tidelog.open(path, read_only=True) as copy:
            while copy.get("k") is not None:
                pass
            assert copy.exists("k", "stays") == 1
            assert copy.pipeline().get("k").get("stays").execute() == [None, b"v"]


def test_a_blocked_read_is_served_by_refresh(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, fsync="no") as db, tidelog.open(path, read_only=True) as copy:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(copy.xread, {"s": "$"}, block=60_000)
            while not inside.waiting(copy).keys:
                pass
            id = db.xadd("s", {"a": 1})
            copy.refresh()
            assert waiting.result(60) == [[b"s", [(id, {b"a": b"1"})]]]


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(tidelog.NotAStore):
        tidelog.open(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()


def test_damage_behind_what_was_read_is_met_again_without_reading_that_twice(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, segment_bytes=4096) as db:
        db.xadd("s", {"n": 0})
        with tidelog.open(path, read_only=True) as copy:
            for number in range(40):
                db.xadd("s", {"n": number, "pad": "x" * 200})
            damaged, following = sorted((path / "aof").glob("*.aof"))[-2:]
            data = bytearray(damaged.read_bytes())
            end = segment.unpack(following, following.read_bytes()[: segment.HEADER_BYTES]).before
            data[end.offset - 20] ^= 1  # not of the file's end, which may not have been cut yet
            damaged.write_bytes(data)
            found = []
            for _ in range(2):
                with pytest.raises(tidelog.StoreDamaged):
                    copy.refresh()
                found.append((copy.xlen("s"), copy.xinfo_stream("s")["entries-added"]))
            assert found[0] == found[1] and found[0][0] == found[0][1] > 1


def test_an_interrupted_refresh_is_made_good_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, fsync="no") as db, tidelog.open(path, read_only=True) as copy:
        for number in range(3):
            db.xadd("s", {"n": number})
        real, calls = Landing.observe, []

        def observe(landing: Landing, effect: Effect) -> None:
            calls.append(effect)
            if len(calls) == 3:
                raise KeyboardInterrupt
            real(landing, effect)

        monkeypatch.setattr(Landing, "observe", observe)
        with copy.pipeline() as pipe:
            pipe.watch("s")  # so that effects are observed
            with pytest.raises(KeyboardInterrupt):
                copy.refresh()
        monkeypatch.undo()
        assert copy.xlen("s") == 3 and copy.digest() == db.digest()
        db.xadd("s", {"n": 4})
        copy.refresh()
        assert copy.digest() == db.digest()


def test_a_refresh_that_fails_over_a_newer_checkpoint_leaves_out_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, fsync="no", checkpoint_bytes=0, save=()) as db:
        db.xadd("s", {"n": 0})
        db.checkpoint()
        db.xadd("s", {"n": 1})
        with tidelog.open(path, read_only=True) as copy:

            def slowly(*args: Any, **more: Any) -> None:
                for number in range(10):  # behind what the checkpoint holds
                    db.xadd("s", {"n": number})
                copy.refresh()
                write_checkpoint(*args, **more)

            with monkeypatch.context() as patch:
                patch.setattr(checkpoints, "write_checkpoint", slowly)
                db.checkpoint()
            db.xadd("s", {"n": 10})
            with monkeypatch.context() as patch:
                patch.setattr(recovery, "read_all", fail)
                with pytest.raises(OSError, match="too many"):
                    copy.refresh()
            assert copy.xlen("s") == 13
            assert copy.digest() == db.digest()
            db.xadd("s", {"n": 11})
            assert copy.refresh() == db.info()["written_lsn"]
            assert copy.digest() == db.digest()


def fail(*args: Any, **more: Any) -> None:
    raise OSError(24, "too many open files")
