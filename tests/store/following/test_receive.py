"""A follower receives its leader's frames: what its readers see, and what is refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import inside
from tests.store.following.leader import (
    batches,
    check,
    follower,
    following,
    frames_of,
    pull,
    root_of,
)
from tests.until import until

import tidelog
from tidelog import testing
from tidelog.aof.errors import BadFrame, LeaderLog


def fill(db: tidelog.Store) -> None:
    db.xgroup_create("s", "g", id="0", mkstream=True)
    db.xadd_many("s", [{"n": n} for n in range(300)])
    for _ in range(3):
        [(_, entries)] = db.xreadgroup("g", "c", {"s": ">"}, count=50)
        db.xack("s", "g", *[entry_id for entry_id, _ in entries[::3]])
    for n in range(50):
        db.xadd("s", {"n": n, "pad": "x" * 500}, maxlen=200)
    db.set("a", "1", ex=1000)
    db.db(3).set("b", "2")
    db.delete("a")
    q = db.queue("q")
    for n in range(20):
        q.put({"n": n})
    q.cancel(q.put("a", dedup_id="x", dedup="until-done", delay=60))
    q.put("b", dedup_id="x", dedup="replace", delay=60)
    q.put("c", dedup_id="x", dedup="replace", priority=3)
    q.put("d", dedup_id="y")
    q.forget("y")


@pytest.mark.parametrize("nbytes_max", [1, 700, 1 << 20])
def test_it_has_what_its_leader_has(
    leader: tidelog.Store, copy: tidelog.Store, nbytes_max: int
) -> None:
    fill(leader)
    assert pull(copy, leader, nbytes_max) > 0
    assert copy.digest() == leader.digest()
    check(copy, leader)
    leader.xadd("s", {"later": "1"})
    assert pull(copy, leader, nbytes_max) == 1
    assert copy.xrevrange("s", count=1) == leader.xrevrange("s", count=1)
    check(copy, leader)


def test_it_has_it_again_after_a_reopen(tmp_path: Path, leader: tidelog.Store) -> None:
    for _ in range(4):
        with (
            follower(tmp_path / "copy", leader)
            if _ == 0
            else tidelog.open(tmp_path / "copy", fsync="no") as db
        ):
            assert db.role().kind == "follower"
            if _ == 0:
                fill(leader)
            else:
                leader.xadd("s", {"round": _})
            pull(db, leader)
            check(db, leader)
            assert following(db).lives() == inside.checkpoints(leader).epochs[::-1]


def test_it_knows_the_lives_of_its_leader(tmp_path: Path) -> None:
    copy: tidelog.Store | None = None
    for n in range(3):
        with tidelog.open(tmp_path / "leader", fsync="no") as leader:
            leader.xadd("s", {"n": n})
            copy = copy or follower(tmp_path / "copy", leader)
            pull(copy, leader)
    assert copy is not None
    lives = following(copy).lives()
    assert [life.number for life in lives] == [3, 2, 1]
    assert [life.lsn for life in lives] == [5, 3, 1]
    assert copy.info()["epoch"] == 3
    copy.checkpoint()
    copy.close()
    with tidelog.open(tmp_path / "copy", fsync="no") as again:
        assert following(again).lives() == lives


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_each_fsync_policy(tmp_path: Path, leader: tidelog.Store, policy: str) -> None:
    with follower(tmp_path / "c", leader, fsync=policy) as copy:
        fill(leader)
        pull(copy, leader)
        assert copy.digest() == leader.digest()  # waits until the policy holds
        receipt = copy.barrier("fsynced")
        assert receipt.lsn == following(copy).last[0] == copy.info()["synced_lsn"]


def test_readers_that_block_are_woken_by_frames(leader: tidelog.Store, copy: tidelog.Store) -> None:
    leader.xadd("s", {"n": 0})
    pull(copy, leader)
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(copy.xread, {"s": "$"}, block=0) for _ in range(2)]
        until(lambda: len(inside.waiters(copy)) == 2)
        new = leader.xadd("s", {"n": 1})
        pull(copy, leader)
        for each in found:
            assert each.result(60) == [[b"s", [(new, {b"n": b"1"})]]]


def test_a_changed_key_breaks_a_watch(leader: tidelog.Store, copy: tidelog.Store) -> None:
    leader.set("a", "1")
    pull(copy, leader)
    with copy.pipeline() as pipe:
        pipe.watch("a")
        assert pipe.get("a") == b"1"
        leader.set("a", "2")
        pull(copy, leader)
        pipe.multi()
        pipe.get("a")
        with pytest.raises(tidelog.WatchError):
            pipe.execute()
        pipe.watch("a")
        pipe.multi()
        pipe.get("a")
        assert pipe.execute() == [b"2"]


def test_effects_are_told_to_the_listener(leader: tidelog.Store, copy: tidelog.Store) -> None:
    told: list[int] = []
    inside.landing(copy).listener = lambda effect, state, now: told.append(effect[0])
    leader.set("a", "1")
    leader.xadd("s", {"n": 1})
    pull(copy, leader)
    assert len(told) == 3  # the EPOCH too


def test_a_batch_that_does_not_continue_is_refused(
    leader: tidelog.Store, copy: tidelog.Store
) -> None:
    for n in range(10):
        leader.set("a", n)
    whole = list(batches(leader, (0, 0), 1))
    following(copy).receive(whole[0])
    following(copy).receive(whole[1])
    before = list(frames_of(root_of(copy)))
    for wrong in (
        whole[0],
        whole[1],
        whole[3],
        whole[2]._replace(prev=7),
        whole[2]._replace(first=whole[2].first + 1),
    ):
        with pytest.raises(BadFrame):
            following(copy).receive(wrong)
    assert list(frames_of(root_of(copy))) == before
    assert inside.reloads(copy) == 0
    for batch in whole[2:]:
        following(copy).receive(batch)
    check(copy, leader)


def test_a_leader_takes_no_frames(leader: tidelog.Store, copy: tidelog.Store) -> None:
    leader.set("a", "1")
    batch = next(batches(leader, (0, 0)))
    held = following(copy)
    copy.promote()
    with pytest.raises(LeaderLog):
        held.receive(batch)
    held.heard(1)
    assert copy.get("a") is None


def test_frames_change_what_only_a_checkpoint_holds(tmp_path: Path, leader: tidelog.Store) -> None:
    fill(leader)
    follower(tmp_path / "c", leader).close()
    for round_ in range(4):
        # after a reopen everything is in the checkpoint, and nothing in memory
        with tidelog.open(tmp_path / "c", fsync="no", retain_bytes=1 << 30) as copy:
            pull(copy, leader)
            leader.xadd_many("s", [{"n": n} for n in range(500)])
            leader.xtrim("s", maxlen=400)
            [(_, entries)] = leader.xreadgroup("g", "c", {"s": ">"}, count=70)
            leader.xack("s", "g", *[entry_id for entry_id, _ in entries[::2]])
            leader.xreadgroup("g", f"d{round_}", {"s": ">"}, count=7)
            if round_:
                leader.xgroup_delconsumer("s", "g", f"d{round_ - 1}")
            pull(copy, leader)
            copy.checkpoint()
            assert copy.digest() == leader.digest()
            check(copy, leader)


def test_a_read_only_store_beside_it_sees_its_frames(
    tmp_path: Path, leader: tidelog.Store, copy: tidelog.Store
) -> None:
    leader.set("a", "1")
    pull(copy, leader)
    with tidelog.open(tmp_path / "copy", read_only=True) as beside:
        assert beside.get("a") == b"1"
        leader.set("a", "2")
        pull(copy, leader)
        beside.refresh()
        assert beside.get("a") == b"2"


def test_receiving_and_reading_at_once(leader: tidelog.Store, copy: tidelog.Store) -> None:
    stop = threading.Event()
    faults: list[object] = []

    def read() -> None:
        seen = 0
        while not stop.is_set():
            length = copy.xlen("s")
            if length < seen:
                faults.append((seen, length))
            seen = length

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(200):
        leader.xadd("s", {"n": n})
        pull(copy, leader)
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults and copy.xlen("s") == 200


class TestTime:
    """`now` is the leader's."""

    def test_keys_expire_by_the_leaders_clock(self, tmp_path: Path) -> None:
        here, there = testing.Clock(), testing.Clock()
        with tidelog.open(tmp_path / "l", fsync="no", clock=there) as leader:
            with follower(tmp_path / "c", leader, clock=here) as copy:
                here.jump(7200)
                there.advance(10)
                leader.set("a", "1", ex=60)
                pull(copy, leader)
                following(copy).heard(there.time_ns() // 1_000_000)
                assert copy.get("a") == b"1"
                here.advance(59)
                assert copy.get("a") == b"1" and copy.ttl("a") == 1
                here.advance(2)
                lsn = following(copy).last[0]
                assert copy.get("a") is None and copy.exists("a") == 0
                # hidden, and deleted when the leader's DEL comes
                assert following(copy).last[0] == lsn
                assert inside.databases(copy)[0].keys
                there.advance(61)
                assert leader.get("a") is None
                pull(copy, leader)
                assert not inside.databases(copy)[0].keys
                check(copy, leader)

    def test_until_the_leader_is_heard_it_is_the_time_of_the_last_frame(
        self, tmp_path: Path
    ) -> None:
        here, there = testing.Clock(), testing.Clock()
        with tidelog.open(tmp_path / "l", fsync="no", clock=there) as leader:
            with follower(tmp_path / "c", leader, clock=here) as copy:
                leader.set("a", "1", ex=60)
                pull(copy, leader)
            here.advance(3600)
            with tidelog.open(tmp_path / "c", fsync="no", clock=here) as copy:
                assert copy.ttl("a") == 60
                there.advance(30)
                following(copy).heard(there.time_ns() // 1_000_000)
                assert copy.ttl("a") == 30
                following(copy).heard(there.time_ns() // 1_000_000 - 5000)  # was long under way
                assert copy.ttl("a") == 30
                here.advance(10)
                assert copy.ttl("a") == 25

    def test_after_a_promotion_it_is_its_own(self, tmp_path: Path) -> None:
        here, there = testing.Clock(), testing.Clock()
        there.jump(3600)
        with tidelog.open(tmp_path / "l", fsync="no", clock=there) as leader:
            with follower(tmp_path / "c", leader, clock=here) as copy:
                leader.xadd("s", {"n": 1})
                pull(copy, leader)
                copy.promote()
                copy.xadd("s", {"n": 2})
                assert [row for _, row in copy.xrange("s")] == [{b"n": b"1"}, {b"n": b"2"}]
                copy.set("a", "1", ex=60)
                here.advance(61)
                assert copy.get("a") is None
                assert not inside.databases(copy)[0].expires
