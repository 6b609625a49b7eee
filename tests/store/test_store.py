"""The embedded store: durability, views, receipts, pipelines, transactions, xadd_many, settings."""

from __future__ import annotations

import asyncio
import threading
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import inside

import tidelog
from tidelog import testing


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s") as db:
        db.xgroup_create("s", "g", mkstream=True)
        ids = db.xadd_many("s", [{"n": n} for n in range(500)])
        db.xreadgroup("g", "c", {"s": ">"}, count=10)
        db.xack("s", "g", ids[0], ids[5])
        db.set("k", "v", ex=1000)
        db.db(3).xadd("other", {"a": 1})
        digest = db.digest()
    with tidelog.open(tmp_path / "s", decode_responses=True) as db:
        assert db.digest() == digest
        assert db.xlen("s") == 500 and db.xpending("s", "g")["pending"] == 8
        assert db.db(3).xrange("other")[0][1] == {"a": "1"} and db.get("k") == "v"
        assert db.info()["epoch"] == 1  # a life begins with its first write
        db.delete("k")
        assert db.info()["epoch"] == 2


def test_equal_states_have_equal_digests(tmp_path: Path) -> None:
    with (
        tidelog.open(tmp_path / "a", fsync="no") as a,
        tidelog.open(tmp_path / "b", fsync="no") as b,
    ):
        for number in range(1, 300):
            a.xadd("s", {"n": number}, id=f"{number}-1")
        pipe = b.pipeline()
        for number in range(1, 300):
            pipe.xadd("s", {"n": number}, id=f"{number}-1")
        b.set("gone", 1)
        pipe.execute()
        b.delete("gone")
        assert a.digest() == b.digest()
        b.xdel("s", "7-1")
        assert a.digest() != b.digest()


def test_levels_receipts_and_barriers(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        relaxed, strict = db.receipts(), db.at("fsynced").receipts()
        relaxed.xadd("s", {"a": 1})
        first = relaxed.last_receipt
        assert first is not None and first.level == "written"
        assert db.info()["unsynced_bytes"] > 0
        strict.xadd("s", {"a": 2})
        second = strict.last_receipt
        assert second is not None and second.lsn == first.lsn + 1
        assert second.level == first.level == "fsynced"
        strict.xlen("s")
        assert strict.last_receipt is second  # a read leaves none
        relaxed.xadd_many("s", [{"a": 3}, {"a": 4}])
        relaxed.pipeline().set("k", 1).set("l", 1).execute()
        third = relaxed.last_receipt
        assert third is not None and third.lsn == second.lsn + 3 and third.level == "written"
        assert db.barrier().lsn == third.lsn and third.level == "fsynced"
        assert db.info()["unsynced_bytes"] == 0
        with pytest.raises(tidelog.DataError, match="level must be one of: written, fsynced, repl"):
            db.at("durable")


def test_the_fsync_policy_can_change(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        kept = db.receipts()
        kept.xadd("s", {"a": 1})
        db.fsync = "always"
        kept.xadd("s", {"a": 2})
        assert kept.last_receipt is not None and kept.last_receipt.level == "fsynced"
        db.config_set("appendfsync", "everysec")
        assert db.fsync == db.config_get("append*")["appendfsync"] == "everysec"
        with pytest.raises(tidelog.DataError):
            db.fsync = "sometimes"


def test_settings_are_consulted(db: tidelog.Store) -> None:
    db.config_set("stream-node-max-entries", 10)
    db.xadd_many("s", [{"n": n} for n in range(100)])
    assert db.xinfo_stream("s")["radix-tree-keys"] == 10
    with pytest.raises(tidelog.ResponseError):
        db.config_set("port", 1)


def test_databases_are_apart(db: tidelog.Store) -> None:
    other = db.db(5)
    other.set("k", 1)
    assert db.get("k") is None and other.get("k") == b"1"
    assert db.move("k", 1) is False and other.move("k", 0) is True
    assert "k" in db and db["k"] == b"1"
    del db["k"]
    with pytest.raises(KeyError):
        db["k"]
    with pytest.raises(tidelog.DataError):
        db.db(16)
    with pytest.raises(tidelog.DataError, match="db\\(n\\)"):
        db.execute_command("SELECT", 1)


def test_xadd_many_is_one_unit_and_its_ids_are_lazy(db: tidelog.Store) -> None:
    kept = db.receipts()
    rows = [{"n": n, "name": f"é{n}"} for n in range(1000)]
    ids = kept.xadd_many("s", iter(rows))
    assert kept.last_receipt is not None
    before = kept.last_receipt.lsn
    assert len(ids) == 1000 and ids[0] == db.xrange("s", count=1)[0][0] and ids[-1] == ids[999]
    assert list(ids) == ids[:] == [id for id, _ in db.xrange("s")] and ids == list(ids)
    assert "IdRange(" in repr(ids) and db.xadd_many("s", []) == []
    more = kept.xadd_many("s", rows)
    assert kept.last_receipt.lsn == before + 1 and more[0] not in ids
    with pytest.raises(IndexError):
        ids[1000]
    db.set("k", 1)
    with pytest.raises(tidelog.ResponseError, match="^WRONGTYPE"):
        db.xadd_many("k", rows)


def test_expired_keys_are_deleted_before_the_next_unit(db: tidelog.Store) -> None:
    db.set("k", 1, px=5)
    db.xadd("s", {"a": 1})
    db.pexpire("s", 5)
    while db.exists("k", "s"):
        pass
    db.xadd("s", {"a": 2})
    assert db.xlen("s") == 1 and db.dbsize() == 1


def test_a_pipeline_of_many_frames(db: tidelog.Store) -> None:
    pipe = db.pipeline(transaction=False)
    for number in range(3500):
        pipe.xadd("s", {"n": number})
        if number % 700 == 0:
            pipe.set("k", number).xadd("k", {"n": 1}).xlen("s")
    results = pipe.execute(raise_on_error=False)
    assert db.xlen("s") == 3500 and len(pipe) == 0
    assert [r for r in results if isinstance(r, int) and not isinstance(r, bool)] == [
        1,
        701,
        1401,
        2101,
        2801,
    ]
    errors = [r for r in results if isinstance(r, Exception)]
    assert len(errors) == 5 and all(str(e).startswith("WRONGTYPE") for e in errors)
    ids = [id for id, _ in db.xrange("s")]
    assert [r for r in results if isinstance(r, bytes)] == ids


def test_fields_are_encoded_when_queued(db: tidelog.Store) -> None:
    fields: dict[Any, Any] = {"n": 1}
    pipe = db.pipeline(transaction=False)
    pipe.xadd("s", fields)
    fields["n"] = 2
    pipe.execute()
    assert db.xrange("s")[0][1] == {b"n": b"1"}
    with pytest.raises(tidelog.DataError):
        db.xadd("s", UserDict({"a": 1}))  # type: ignore[arg-type]


def test_watch_and_transaction(db: tidelog.Store) -> None:
    with db.pipeline() as pipe:
        pipe.watch("k")
        assert pipe.get("k") is None
        pipe.multi()
        pipe.set("k", 1)
        db.set("k", 5)
        with pytest.raises(tidelog.WatchError):
            pipe.execute()
        assert not pipe.watching and db.get("k") == b"5"
        with pytest.raises(tidelog.TidelogError):
            pipe.multi()
            pipe.watch("k")

    def add(pipe: Any) -> None:
        value = int(pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", value + 1)
        pipe.xadd("s", {"n": value})

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(db.transaction, add, "n") for _ in range(40)]:
            future.result(60)
    assert db.get("n") == b"40" and db.xlen("s") == 40
    assert not inside.core(db).watches.keys


def test_threads_under_always(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="always") as db:

        def write(name: int) -> None:
            for number in range(50):
                db.xadd("s", {"w": name, "n": number})
                core = inside.core(db)
                assert core.log.synced_lsn > 0

        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(write, n) for n in range(8)]:
                future.result(60)
        digest = db.digest()
        assert db.xlen("s") == 400
    with tidelog.open(tmp_path / "s") as db:
        assert db.digest() == digest


def test_the_clock_of_a_store_never_goes_back() -> None:
    clock = testing.Clock()
    with testing.store(clock=clock) as db:
        db.xadd("s", {"a": 1})
        before = db.time()
        clock.jump(-3600)
        db.xadd("s", {"a": 2})
        (first, _), (second, _) = db.xrange("s")
        assert first.split(b"-")[0] == second.split(b"-")[0]
        assert db.time() == before


def test_asyncio(tmp_path: Path) -> None:
    async def main() -> str:
        async with tidelog.aopen(tmp_path / "s", fsync="always", decode_responses=True) as db:
            await db.xgroup_create("s", "g", mkstream=True)
            ids = await asyncio.gather(*(db.xadd("s", {"n": n}) for n in range(50)))
            assert ids == [id for id, _ in await db.xrange("s")]
            assert len(await db.xadd_many("s", [{"n": 1}] * 3)) == 3
            ((_, entries),) = await db.xreadgroup("g", "c", {"s": ">"}, count=2)
            assert await db.xack("s", "g", *(id for id, _ in entries)) == 2
            async with db.pipeline() as pipe:
                assert await pipe.set("k", 1).incr("k").execute() == [True, 2]
                await pipe.watch("k")
                value = int(await pipe.get("k"))
                pipe.multi()
                pipe.set("k", value + 1)
                assert await pipe.execute() == [True]

            async def add(pipe: Any) -> str:
                value = int(await pipe.get("k"))
                pipe.multi()
                pipe.set("k", value + 1)
                return "done"

            assert await db.transaction(add, "k", value_from_callable=True) == "done"
            assert await db.get("k") == "4" and [n async for n in db.scan_iter()] != []
            assert (await db.barrier()).level == "fsynced" and (await db.info())[
                "fsync"
            ] == "always"
            kept = db.receipts()
            await kept.set("k", 1)
            assert kept.last_receipt is not None and kept.last_receipt.level == "fsynced"
            with pytest.raises(tidelog.ResponseError, match="^WRONGTYPE"):
                await db.incr("s")
            threading.Thread(target=lambda: None).start()
            return await db.digest()

    digest = asyncio.run(main())
    with tidelog.open(tmp_path / "s") as db:
        assert db.digest() == digest

    async def by_await() -> None:
        db = await tidelog.aopen(tmp_path / "s")
        with pytest.raises(tidelog.StoreLocked):
            await tidelog.aopen(tmp_path / "s")
        await db.aclose()
        with pytest.raises(tidelog.StoreClosed):
            await db.xlen("s")

    asyncio.run(by_await())


def test_time_never_runs_back_in_the_log(tmp_path: Path) -> None:
    class Running(testing.Clock):
        looks = 0

        def time_ns(self) -> int:
            self.looks += 1
            return super().time_ns() + self.looks * 1_000_000

    with tidelog.open(tmp_path / "s", fsync="no", clock=Running()) as db:
        for number in range(10):
            db.set("k", "v", px=2)
            db.xadd("s", {"n": number})
            db.xadd("s", {"n": number})
        assert db.verify() == []
