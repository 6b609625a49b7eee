"""A leader's store is held, hands over, and finds out how that ended; and a follower that was told to lead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.store.following.leader import follower, following, pull, roles
from tests.until import parked

import tidelog
from tidelog import testing
from tidelog.aof.epochs import first_number, generation
from tidelog.aof.errors import SuspendedLog
from tidelog.store.role import Role

HEIR = bytes(range(16))


def next_lsn(db: tidelog.Store) -> int:
    found: int = db.info()["next_lsn"]
    return found


def generation_of(db: tidelog.Store) -> int:
    return generation(inside.checkpoints(db).epochs[-1].number)


def hand_over(db: tidelog.Store) -> int:
    roles(db).suspend()
    return roles(db).hand_over(HEIR, "heir", 7, "by a test")


# fmt: off
WAYS: list[Any] = [
    lambda db: db.xadd("s", {"a": 1}),
    lambda db: db.xadd_many("s", [{"a": 1}] * 300),
    lambda db: db.set("a", 1),
    lambda db: db.pipeline().xadd("s", {"a": 1}).execute(),
    lambda db: db.pipeline(transaction=True).set("a", 1).execute(),
    lambda db: db.queue("q").put("job"),
    lambda db: db.queue("q").get(block=0),
    lambda db: db.xreadgroup("g", "c", {"s": ">"}),
    lambda db: db.xreadgroup("g", "c", {"s": ">"}, block=0),
]
# fmt: on


@pytest.mark.parametrize("way", WAYS)
def test_a_held_store_refuses_every_write_and_answers_reads(
    leader: tidelog.Store, way: Any
) -> None:
    leader.xgroup_create("s", "g", id="0", mkstream=True)
    leader.xadd("s", {"a": 0})
    leader.queue("q").put("first")
    last = roles(leader).suspend()
    assert last == next_lsn(leader) - 1
    with pytest.raises(tidelog.ReadOnlyError, match="while it hands over to a follower"):
        found = way(leader)
        if isinstance(found, list) and found and isinstance(found[0], Exception):
            raise found[0]
    assert leader.xlen("s") == 1 and next_lsn(leader) == last + 1
    log = inside.log(leader)
    with log.lock, pytest.raises(SuspendedLog):
        log.reserve(10)
    roles(leader).release()
    leader.xadd("s", {"a": 1})
    assert leader.xlen("s") == 2


def test_held_is_over_for_a_store_that_was_rebuilt_meanwhile(leader: tidelog.Store) -> None:
    leader.set("a", 1)
    roles(leader).suspend()
    with inside.lock(leader):
        inside.log(leader)._doubts(OSError("a test"))
        inside.core(leader).doubt()
    assert leader.get("a") == b"1"
    with pytest.raises(tidelog.ReadOnlyError):
        leader.set("a", 2)
    roles(leader).release()
    assert leader.set("a", 2)


def test_expired_keys_are_deleted_after_a_hold(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        db.set("soon", 1, px=10)
        last = roles(db).suspend()
        clock.advance(1)
        assert db.get("soon") is None and not db.exists("soon")
        assert next_lsn(db) == last + 1
        roles(db).release()
        db.set("other", 1)
        assert next_lsn(db) == last + 3


def test_parked_calls_stay_parked_while_a_store_is_held(leader: tidelog.Store) -> None:
    leader.xgroup_create("s", "g", mkstream=True)
    with ThreadPoolExecutor(3) as pool:
        takes = pool.submit(leader.xreadgroup, "g", "c", {"s": ">"}, block=0)
        reads = pool.submit(leader.xread, {"s": "$"}, block=0)
        parked(leader, 2)
        roles(leader).suspend()
        late = pool.submit(leader.get, "nothing")
        assert late.result(60) is None and not takes.done() and not reads.done()
        roles(leader).release()
        leader.xadd("s", {"a": 1})
        assert takes.result(60) and reads.result(60)


def test_a_consumer_whose_claim_comes_due_is_served_after_the_hold(tmp_path: Path) -> None:
    clock = testing.Clock()
    with (
        tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = db.queue("q", retry_after=1)
        queue.put("job")
        db.xgroup_create("s", "g", id="0", mkstream=True)
        blocked = pool.submit(db.xreadgroup, "g", "c", {"s": ">"}, block=50)
        parked(db)
        roles(db).suspend()
        clock.advance(0.05)
        assert not blocked.result(60)  # its time is up all the same
        roles(db).release()


def test_a_store_that_hands_over_takes_no_writes_also_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.set("a", 1)
        assert hand_over(db) == 1
        told = db.role()
        assert told == Role("handing over", told.id, "heir", 7, 0, "by a test", HEIR.hex())
        assert db.info()["replication"]["heir_host"] == "heir"
        with pytest.raises(tidelog.ReadOnlyError):
            db.set("a", 2)
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        assert db.role() == told and db.get("a") == b"1"
        with pytest.raises(tidelog.ReadOnlyError):
            db.set("a", 2)
        with pytest.raises(tidelog.DataError, match="nothing to hand over"):
            roles(db).suspend()


def test_a_store_whose_heir_leads_follows_it(tmp_path: Path, leader: tidelog.Store) -> None:
    leader.set("a", 1)
    hand_over(leader)
    asked = leader.role()
    roles(leader).handed_over(asked, "it said so")
    assert leader.role() == asked._replace(kind="follower", heir="", reason="it said so")
    roles(leader).handed_over(asked, "again")
    roles(leader).take_back(asked, "too late")
    assert leader.role().reason == "it said so" and leader.role().kind == "follower"


def test_a_store_whose_heir_does_not_lead_goes_on_in_its_generation(leader: tidelog.Store) -> None:
    leader.set("a", 1)
    hand_over(leader)
    asked = leader.role()
    roles(leader).take_back(asked, "it declined")
    assert leader.role() == asked._replace(
        kind="leader", host="", port=0, heir="", reason="it declined"
    )
    leader.set("a", 2)
    assert generation_of(leader) == 0
    roles(leader).handed_over(asked, "too late")
    assert leader.role().kind == "leader"


def test_by_hand_a_store_that_hands_over_skips_a_generation(leader: tidelog.Store) -> None:
    """The next one may be its heir's by now, and two histories of one generation need a person to choose."""
    leader.set("a", 1)
    heirs = hand_over(leader)
    leader.promote()
    assert generation_of(leader) == heirs + 1 == 2
    assert leader.role().heir == "" and leader.set("a", 2)


# --- the follower


def test_a_follower_begins_the_generation_that_its_leader_names(
    leader: tidelog.Store, copy: tidelog.Store
) -> None:
    """It may not know its leader's newest life, and so not the generation either."""
    leader.set("a", 1)
    pull(copy, leader)
    roles(copy).promote("told", 5, roles(copy).declined)
    assert inside.checkpoints(copy).epochs[-1].number == first_number(5)
    assert copy.role().generation == 5


def test_a_follower_that_declined_is_not_promoted_by_what_it_heard_before(
    leader: tidelog.Store, copy: tidelog.Store
) -> None:
    leader.set("a", 1)
    pull(copy, leader)
    heard = roles(copy).declined
    with inside.lock(copy):
        roles(copy).decline()
    with pytest.raises(tidelog.NotStored, match="no longer waits to be promoted"):
        roles(copy).promote("told", 1, heard)
    assert copy.role().kind == "follower"
    assert following(copy).last[0] == next_lsn(leader) - 1


def test_a_store_that_leads_by_now_is_not_promoted_once_more(
    tmp_path: Path, leader: tidelog.Store
) -> None:
    with follower(tmp_path / "c", leader) as copy:
        heard = roles(copy).declined
        copy.promote()
        with pytest.raises(tidelog.NotStored):
            roles(copy).promote("told", 9, heard)
        assert generation_of(copy) == 1
