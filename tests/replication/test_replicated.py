"""The level `replicated`: calls of an embedded leader that wait for its followers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.shipped import Shipped
from tests.replication.stores import begin_to_follow, last_lsn
from tests.until import until

import tidelog
from tidelog.aof.log import Log
from tidelog.replication.feed import Feed
from tidelog.store.errors import DataError, NotReplicated


def test_what_no_follower_has_is_an_error_and_stored(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        view = db.at("replicated", timeout=0)
        with pytest.raises(
            NotReplicated, match="^NOREPLICAS stored here, confirmed by 0 of 1 followers$"
        ) as told:
            view.xadd("orders", {"n": 1})
        assert (told.value.confirmed, told.value.wanted) == (0, 1)
        assert db.xlen("orders") == 1
        for read in (
            lambda: view.xlen("orders"),
            lambda: view.xrange("nothing"),
            lambda: view.digest(),
            lambda: view.queue("jobs").put("x"),
            lambda: view.pipeline().set("a", 1).execute(),
            lambda: view.xadd_many("orders", [{"n": 2}]),
            lambda: db.barrier("replicated", replicas=2, timeout=0.01),
        ):
            with pytest.raises(NotReplicated):
                read()


def test_calls_return_once_a_follower_has_it(pair: Pair) -> None:
    follower = pair.follow()
    for db in (pair.db, pair.db.at("fsynced")):
        view = db.at("replicated", timeout=60)
        for n in range(20):
            view.xadd("orders", {"n": n})
            assert follower.xlen("orders") == view.xlen("orders")
    view.set("name", "1")
    assert follower.get("name") == b"1"
    view.pipeline().set("name", "2").xadd("orders", {"n": 9}).execute()
    assert follower.get("name") == b"2"
    view.queue("jobs").put("x")
    assert follower.xlen("jobs") == 1


def test_fsynced_by_followers(pair: Pair) -> None:
    follower = pair.follow(fsync="always")
    view = pair.db.at("replicated", fsynced=True, timeout=60)
    for n in range(5):
        view.xadd("orders", {"n": n})
        assert inside.log(follower).synced_lsn >= pair.db.barrier("written").lsn
        assert inside.log(pair.db).synced_lsn >= pair.db.barrier("written").lsn


def test_a_follower_that_never_syncs_confirms_no_fsync(pair: Pair) -> None:
    pair.follow(fsync="no")
    pair.db.at("replicated", timeout=60).xadd("orders", {"n": 1})
    with pytest.raises(NotReplicated):
        pair.db.at("replicated", fsynced=True, timeout=0.05).xadd("orders", {"n": 2})


def test_two_followers_are_two(pair: Pair) -> None:
    pair.follow("one")
    view = pair.db.at("replicated", replicas=2, timeout=0.05)
    until(lambda: len(pair.server.replicating.feeding.feeds) == 1)
    pair.db.at("replicated", timeout=60).set("a", 1)
    with pytest.raises(NotReplicated, match="confirmed by [01] of 2 followers"):
        view.set("a", 2)
    pair.follow("two")
    pair.db.at("replicated", replicas=2, timeout=60).set("a", 3)


class Acknowledging:
    """A link to a follower, as far as the acknowledgements read it."""

    history = 0

    def __init__(self, lsn: int) -> None:
        self.acked_lsn = self.fsynced_lsn = lsn


def test_the_slowest_of_those_wanted_counts(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        acks, log = inside.core(db).acks, inside.core(db).log
        for lsn in (5, 9, 7):
            acks.add(Acknowledging(lsn))
        assert [acks.through(log, wanted) for wanted in range(1, 5)] == [9, 7, 5, 0]


def test_a_wait_ends_when_the_follower_comes(pair: Pair) -> None:
    view = pair.db.at("replicated", timeout=60)
    writing = threading.Thread(target=view.set, args=("a", 1), daemon=True)
    writing.start()
    until(lambda: bool(inside.core(pair.db).acks._awaited))
    follower = pair.follow()
    writing.join(60)
    assert not writing.is_alive() and follower.get("a") == b"1"
    assert not inside.core(pair.db).acks._awaited


def test_many_threads(pair: Pair) -> None:
    follower = pair.follow()
    view = pair.db.at("replicated", timeout=60)
    wrong: list[Any] = []

    def write(name: str) -> None:
        for n in range(30):
            view.set(name, n)
            if follower.get(name) != b"%d" % n:
                wrong.append((name, n))

    threads = [threading.Thread(target=write, args=(f"k{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_a_call_and_an_acknowledgement_at_the_same_time(tmp_path: Path, monkeypatch: Any) -> None:
    """The follower's last acknowledgement comes right behind the first look, and no other one follows."""
    with tidelog.open(tmp_path / "db") as db:
        core = inside.core(db)
        link = Feed(Shipped([9]), 9, 0.0)
        core.acks.add(link)
        count = core.acks.count
        looks: list[int] = []

        def look(log: Log, lsn: int, fsynced: bool) -> int:
            found = count(log, lsn, fsynced)
            looks.append(found)
            if len(looks) == 1:
                link.acked_lsn = lsn
                core.acks.tell()
            return found

        monkeypatch.setattr(core.acks, "count", look)
        asked: list[int] = []
        monkeypatch.setattr(core.acks, "ask", lambda: asked.append(1))
        db.at("replicated", timeout=60).set("a", 1)
        assert looks[0] == 0 and looks[1] == 1 and not asked


def test_tasks(pair: Pair) -> None:
    db = tidelog.AsyncStore(inside.core(pair.db), decode=False)

    async def alone() -> None:
        with pytest.raises(NotReplicated):
            await db.at("replicated", timeout=0.01).set("a", 1)
        with pytest.raises(NotReplicated):
            await db.barrier("replicated", timeout=0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await db.at("replicated", timeout=60).set("a", 1)
        assert not db._core.acks._awaited

    async def together() -> None:
        view = db.at("replicated", timeout=60)
        await asyncio.gather(*[view.set(f"k{n}", n) for n in range(20)])
        assert (await db.barrier("replicated", timeout=60)).level == "replicated"

    asyncio.run(alone())
    follower = pair.follow()
    asyncio.run(together())
    assert follower.dbsize() == 21


def test_receipts_and_barrier(pair: Pair) -> None:
    with pytest.raises(NotReplicated):
        pair.db.barrier("replicated", timeout=0)
    late = pair.db.receipts().at("replicated", timeout=0)
    with pytest.raises(NotReplicated):
        late.set("a", 1)
    assert late.last_receipt is not None and late.last_receipt.level != "replicated"
    assert late.last_receipt.replicas() == 0
    pair.follow(fsync="always")
    receipt = pair.db.barrier("replicated", timeout=60)
    assert receipt.level == "replicated" and receipt.replicas() == 1
    assert receipt.lsn == last_lsn(pair.db)
    until(lambda: receipt.replicas(fsynced=True) == 1)
    assert late.last_receipt.replicas() == 1 and late.last_receipt.level != "replicated"
    view = pair.db.at("replicated", timeout=60).receipts()
    view.set("a", 2)
    assert view.last_receipt is not None and view.last_receipt.level == "replicated"
    assert pair.db.barrier().level == "fsynced"


def test_a_store_that_begins_to_follow_ends_the_waits(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        failed: list[BaseException] = []

        def write() -> None:
            try:
                db.at("replicated", timeout=10_000).set("a", 1)
            except NotReplicated as error:
                failed.append(error)

        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        until(lambda: bool(inside.core(db).acks._awaited))
        begin_to_follow(db)
        writing.join(60)
        assert len(failed) == 1 and not inside.core(db).acks._awaited


@pytest.mark.parametrize(
    "wrong",
    [
        lambda db: db.at("replicate"),
        lambda db: db.at("replicated", replicas=0),
        lambda db: db.at("replicated", replicas=1.5),
        lambda db: db.at("replicated", timeout=-1),
        lambda db: db.at("replicated", timeout="1"),
        lambda db: db.at("fsynced", replicas=2),
        lambda db: db.barrier("fsynced", timeout=1),
    ],
)
def test_bad_arguments(tmp_path: Path, wrong: Callable[[tidelog.Store], object]) -> None:
    with tidelog.open(tmp_path / "db") as db, pytest.raises(DataError):
        wrong(db)


def test_a_read_only_store_has_no_followers(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        db.set("a", 1)
        with tidelog.open(tmp_path / "db", read_only=True) as reader:
            with pytest.raises(DataError, match="read-only"):
                reader.at("replicated")
