"""`tidelog.follow`: a store of this program follows a served one."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.until import parked, until

import tidelog
from tidelog.replication.feeds import End, Feeds


def test_it_holds_what_its_leader_holds(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 1})
    follower = pair.follow()
    pair.db.xadd("orders", {"n": 2})
    pair.db.set("k", "v")
    pair.db.xgroup_create("orders", "g", "0")
    pair.db.xreadgroup("g", "c", {"orders": ">"})
    equal(pair.db, follower)
    assert follower.xlen("orders") == 2
    with pytest.raises(tidelog.ReadOnlyError):
        follower.xadd("orders", {"n": 3})


def test_a_restored_key_is_on_the_follower_and_in_what_is_replayed(pair: Pair) -> None:
    """Behind a checkpoint, too: the values of both sides and of the next open are the same."""
    pair.db.xadd("orders", {"n": 1})
    pair.db.xgroup_create("orders", "g", "0")
    pair.db.xreadgroup("g", "c", {"orders": ">"})
    payload = pair.db.dump("orders")
    assert payload is not None
    follower = pair.follow()
    for key in ("copy", "late"):
        assert pair.db.restore(key, 0, payload) == b"OK"
        with pair.db.pipeline() as both:
            both.set("text", "t").dump("text").restore("text", 60_000, payload, replace=True)
            assert both.execute()[2] == b"OK"
        equal(pair.db, follower)
        pair.db.checkpoint()
    full = pair.db.xinfo_stream("orders", full=True)
    assert follower.xinfo_stream("late", full=True) == full
    assert follower.pttl("text") > 0 and follower.dump("late") == payload


def test_threads_of_the_leader_wake_the_feed(pair: Pair) -> None:
    follower = pair.follow()
    caught_up(pair.db, follower)
    for number in range(20):  # nothing else moves the server's loop
        pair.db.xadd("orders", {"n": number})
        caught_up(pair.db, follower)


def test_a_blocked_reader_gets_entries_as_they_arrive(pair: Pair) -> None:
    follower = pair.follow()
    caught_up(pair.db, follower)
    got: list[object] = []
    reader = threading.Thread(
        target=lambda: got.extend(follower.xread({"orders": "$"}, block=60_000)), daemon=True
    )
    reader.start()
    parked(follower)
    id_ = pair.db.xadd("orders", {"n": 1})
    reader.join(60)
    assert got == [[b"orders", [(id_, {b"n": b"1"})]]]


def test_info_tells_of_the_link(pair: Pair) -> None:
    follower = pair.follow()
    caught_up(pair.db, follower)

    def told() -> dict[str, object]:
        found: dict[str, object] = follower.info()["replication"]
        return found

    until(lambda: told().get("caught_up"))
    assert told()["role"] == "follower" and told()["link"] == "connected"
    until(lambda: told()["lag"] == 0)
    pair.serving.close()
    until(lambda: told()["link"] != "connected" and told()["link_failure"])


def test_a_promoted_store_takes_writes_and_stays_a_leader(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.db.xadd("orders", {"n": 1})
    follower = pair.follow()
    caught_up(pair.db, follower)
    follower.promote()
    follower.xadd("orders", {"n": 2})
    assert follower.role().kind == "leader"
    until(lambda: "link" not in follower.info()["replication"])
    follower.close()
    again = pair.follow()
    assert again.role().kind == "leader"
    assert again.xlen("orders") == 2
    assert "stays a leader" in caplog.text
    # its own records are not acknowledged to the old leader
    assert "broke the protocol" not in caplog.text


def test_it_goes_on_after_being_closed(pair: Pair) -> None:
    for number in range(3):
        follower = pair.follow()
        pair.db.xadd("orders", {"n": number})
        equal(pair.db, follower)
        follower.close()


@pytest.mark.parametrize(
    "url", ["redis://a:1", "tidelog://", "tidelog://a:x", "tidelog://a:1/b", "tidelog://a:99999"]
)
def test_a_wrong_address_is_refused(pair: Pair, url: str) -> None:
    with pytest.raises(tidelog.DataError, match="address"):
        tidelog.follow(pair.root / "other", url)
    assert not (pair.root / "other").exists()


def test_the_same_for_asyncio(pair: Pair) -> None:
    async def go() -> None:
        url = f"tidelog://127.0.0.1:{pair.proxy.port}"
        id_ = pair.db.xadd("orders", {"n": 1})
        async with tidelog.afollow(pair.root / "follower", url) as db:
            (found,) = await db.xread({"orders": "0"}, block=60_000)
            assert found == [b"orders", [(id_, {b"n": b"1"})]]
            await db.promote()
            await db.xadd("orders", {"n": 2})
            assert await db.xlen("orders") == 2

    asyncio.run(go())


def test_logs_that_differ_stop_the_link_on_both_sides(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair.db.xadd("orders", {"n": 1})
    db = pair.follow()
    caught_up(pair.db, db)
    real = Feeds.end

    def end(self: Feeds) -> End:
        found = real(self)
        lsn, crc = found.last
        return found._replace(last=(lsn, crc ^ 1))

    monkeypatch.setattr(Feeds, "end", end)
    until(lambda: "differ at LSN 2:" in db.info()["replication"]["link_failure"])
    until(lambda: "it refuses what this log has at LSN 2:" in caplog.text)
    monkeypatch.undo()
    pair.db.xadd("orders", {"n": 2})
    caught_up(pair.db, db)
    assert db.digest() == pair.db.digest()


class TestOpenStores:
    """`tidelog.follow` of a store that is open."""

    def test_an_old_leader_follows_the_new_one(self, pair: Pair) -> None:
        pair.db.xadd("orders", {"n": 1})
        follower = pair.follow()
        caught_up(pair.db, follower)
        pair.serving.close()
        follower.promote()
        follower.xadd("orders", {"n": 2})
        port = pair.serve(follower).port
        assert tidelog.follow(pair.db, f"tidelog://127.0.0.1:{port}") is pair.db
        assert pair.db.role().kind == "follower"
        equal(follower, pair.db)
        with pytest.raises(tidelog.ReadOnlyError):
            pair.db.xadd("orders", {"n": 3})

    def test_a_follower_gets_another_leader_and_its_password(self, pair: Pair) -> None:
        before = set(threading.enumerate())
        first, middle_port = pair.follower("middle", requirepass="secret")
        db = pair.follow("last")
        caught_up(pair.db, db)
        tidelog.follow(db, f"tidelog://:secret@127.0.0.1:{middle_port}")
        until(lambda: db.info()["replication"]["link"] == "connected")
        until(lambda: len(pair.server.replicating.feeding.feeds) == 1)
        pair.db.xadd("orders", {"n": 1})
        equal(pair.db, db)
        # The thread of the first link ends by itself, soon after it was told.
        until(
            lambda: (
                [t.name for t in threading.enumerate() if t not in before].count("tidelog-follow")
                == 1
            )
        )

    def test_again_and_again(self, pair: Pair) -> None:
        db, url = pair.open("other"), f"tidelog://127.0.0.1:{pair.port}"
        for number in range(5):
            tidelog.follow(db, url)
            pair.db.xadd("orders", {"n": number})
            equal(pair.db, db)

    def test_with_consent_records_are_set_aside(self, pair: Pair) -> None:
        pair.db.xadd("orders", {"n": 1})
        other, url = pair.open("other"), f"tidelog://127.0.0.1:{pair.port}"
        other.xadd("mine", {"n": 1})
        tidelog.follow(other, url)
        until(lambda: "REPLACE" in other.info()["replication"]["link_failure"])
        tidelog.follow(other, url, replace=True)
        until(lambda: other.xlen("orders") == 1)
        assert other.digest() == pair.db.digest()
        assert list((pair.root / "other" / "quarantine").iterdir())

    def test_refusals_change_nothing(self, pair: Pair) -> None:
        url = f"tidelog://127.0.0.1:{pair.port}"
        db = pair.follow()
        caught_up(pair.db, db)
        with pytest.raises(tidelog.DataError, match="REPLICAOF"):
            tidelog.follow(pair.db, url)
        with pytest.raises(tidelog.DataError, match="fsync cannot be set here"):
            tidelog.follow(db, url, fsync="no")
        with pytest.raises(tidelog.DataError, match="not the name"):
            tidelog.follow(db, f"tidelog://{'a' * 300}:1")
        with tidelog.open(pair.root / "leader", read_only=True) as looking:
            with pytest.raises(tidelog.DataError, match="read-only"):
                tidelog.follow(looking, url)
        pair.db.xadd("orders", {"n": 1})
        equal(pair.db, db)

    def test_the_same_for_asyncio(self, pair: Pair) -> None:
        async def go() -> None:
            pair.db.xadd("orders", {"n": 1})
            async with tidelog.aopen(pair.root / "other") as db:
                url = f"tidelog://127.0.0.1:{pair.port}"
                assert await tidelog.afollow(db, url) is db
                (found,) = await db.xread({"orders": "0"}, block=60_000)
                assert found[0] == b"orders"

        asyncio.run(go())
