"""The role of an open store changes: what is published, what the log holds, who is told."""

from __future__ import annotations

import errno
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import inside
from tests.store.following.leader import (
    REAL,
    check,
    follower,
    following,
    frames_of,
    pull,
    roles,
    root_of,
)
from tests.until import until

import tidelog
from tidelog.aof import durable, identity, segment
from tidelog.aof.epochs import first_number, generation
from tidelog.aof.reading.reader import segments
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.work.leases import leases_of
from tidelog.store import role
from tidelog.store.role import ALONE


def segment_roles(db: tidelog.Store) -> list[int]:
    directory = root_of(db) / identity.AOF
    return [info.header.role for info in segments(REAL, directory, roles(db).uuid)]


def lives(db: tidelog.Store) -> list[int]:
    return [life.number for life in inside.checkpoints(db).epochs]


def test_a_store_leads_until_it_is_told_to_follow(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        assert db.role() == ALONE and db.info()["replication"]["role"] == "leader"
        db.promote()  # it leads already
        assert db.info()["next_lsn"] == 1 and not (tmp_path / "s" / "REPLICA").exists()


def test_following_and_being_promoted(tmp_path: Path, leader: tidelog.Store) -> None:
    leader.set("a", "1")
    told: list[str] = []
    with follower(tmp_path / "c", leader) as copy:
        roles(copy).changed.append(lambda: told.append(roles(copy).role.kind))
        pull(copy, leader)
        before = copy.role()
        assert before[:4] == ("follower", before.id, "leader", 1) and len(before.id) == 32
        assert copy.info()["replication"]["leader_port"] == 1
        assert segment_roles(copy) == [segment.FOLLOWER]

        copy.promote()
        assert copy.role() == role.read(REAL, tmp_path / "c")
        assert copy.role()[:5] == ("leader", before.id, "", 0, 1)
        assert lives(copy) == [1, first_number(1)]
        assert copy.info()["synced_lsn"] == copy.info()["next_lsn"] - 1 == 3
        assert copy.get("a") == b"1" and copy.set("a", "2")
        assert segment_roles(copy) == [segment.FOLLOWER, segment.LEADER]
        copy.promote()
        assert lives(copy) == [1, first_number(1)]

        roles(copy).follow("other", 2)
        roles(copy).follow("third", 3)  # only the address changes
        assert copy.role()[:5] == ("follower", before.id, "third", 3, 1)
        assert told == ["leader", "follower", "follower"]
        assert inside.reloads(copy) == 0
        state = copy.digest()
    with tidelog.open(tmp_path / "c", fsync="no") as copy:
        assert copy.digest() == state and copy.role().port == 3
        with pytest.raises(tidelog.ReadOnlyError):
            copy.set("a", "3")
        copy.promote()
        assert lives(copy) == [1, first_number(1), first_number(2)]
    with tidelog.open(tmp_path / "c", fsync="no") as copy:
        copy.set("a", "3")
        assert lives(copy)[-1] == first_number(2) + 1
        assert generation(lives(copy)[-1]) == 2


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_its_epoch_is_on_the_disk_when_a_promotion_returns(policy: str) -> None:
    disk = SimulatedDisk()
    there = tidelog.open(Path("/l"), fsync="no", disk=disk)
    there.set("a", "1")
    copy = follower(Path("/c"), there, disk, fsync=policy)
    for batch in [*_all(there, disk)]:
        following(copy).receive(batch)
    copy.promote()
    for seed in range(20):
        after = disk.power_loss(random.Random(seed))
        with tidelog.open(Path("/c"), disk=after) as db:
            assert db.role().kind == "leader" and lives(db) == [1, first_number(1)]


def _all(db: tidelog.Store, disk: SimulatedDisk):  # type: ignore[no-untyped-def]
    from tests.store.following.leader import batches

    return batches(db, (0, 0), disk=disk)


def test_a_role_survives_a_rebuild(leader: tidelog.Store, copy: tidelog.Store) -> None:
    leader.set("a", "1")
    pull(copy, leader)
    with inside.lock(copy):
        inside.core(copy).doubt()
    assert copy.get("a") == b"1" and inside.reloads(copy) == 1
    assert following(copy).lives() == inside.checkpoints(leader).epochs[::-1]
    leader.set("a", "2")
    pull(copy, leader)
    check(copy, leader)


def test_callers_that_wait_to_write_are_unblocked(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db, ThreadPoolExecutor(4) as pool:
        db.xgroup_create("s", "g", mkstream=True)
        bounded = db.queue("full", max_depth=1)
        bounded.put(1)
        takes = pool.submit(db.xreadgroup, "g", "c", {"s": ">"}, block=0)
        gets = pool.submit(db.queue("q").get)
        puts = pool.submit(bounded.put, 2)
        reads = pool.submit(db.xread, {"s": "$"}, block=0)
        until(lambda: len(inside.waiters(db)) == 3)
        until(lambda: any(known.room for known in leases_of(inside.core(db)).queues()))
        roles(db).follow("leader", 1)
        for each in (takes, gets):
            with pytest.raises(tidelog.ResponseError, match="force unblock") as caught:
                each.result(60)
            assert caught.value.code == "UNBLOCKED"
        with pytest.raises(tidelog.ReadOnlyError):
            puts.result(60)
        assert len(inside.waiters(db)) == 1  # the reader waits on
        db.promote()
        db.xadd("s", {"n": 1})
        assert len(reads.result(60)[0][1]) == 1


def test_no_consumer_is_parked_when_a_store_follows(tmp_path: Path) -> None:
    from tidelog.store.commit.callers import ThreadCaller

    args = [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b">"]
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xgroup_create("s", "g", mkstream=True)
        inside.core(db).command(0, args, ThreadCaller)
        assert len(inside.waiters(db)) == 1
        roles(db).follow("leader", 1)
        assert not inside.waiters(db)


def test_a_consumer_that_waits_again_takes_nothing(leader: tidelog.Store, tmp_path: Path) -> None:
    """A session gives its waiter back, as for a repeated XREADGROUP, after the store has turned."""
    from tidelog.store.commit.callers import ThreadCaller

    args = [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b">"]
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        core = inside.core(db)
        db.xgroup_create("s", "g", mkstream=True)
        waiter, _ = core.command(0, args, ThreadCaller)
        core.dismiss(waiter)
        roles(db).follow("leader", 1)
        assert core.read_again(waiter) is False
        reply, _ = core.command(0, args, ThreadCaller, before=waiter)
        assert b"READONLY" in reply.line
        assert not inside.waiters(db)


def test_replies_that_wait_for_the_disk_get_their_promise(tmp_path: Path) -> None:
    """Writes of the life before are confirmed by the log that they were made in, though it has ended."""
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        receipts = db.receipts()
        receipts.set("a", "1")
        receipt = receipts.last_receipt
        assert receipt is not None
        roles(db).follow("leader", 1)
        assert receipt.level == "fsynced"
        db.promote()
        assert receipt.level == "fsynced"
        assert db.barrier("fsynced").lsn == db.info()["next_lsn"] - 1


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_writers_beside_a_change_are_served_or_refused(tmp_path: Path, policy: str) -> None:
    with tidelog.open(tmp_path / "s", fsync=policy) as db, ThreadPoolExecutor(4) as pool:

        def write(n: int) -> int:
            done = 0
            while True:
                try:
                    db.xadd("s", {"n": n})
                except tidelog.ReadOnlyError:
                    return done
                done += 1

        for _ in range(3):
            db.promote()
            before = db.xlen("s")
            found = [pool.submit(write, n) for n in range(4)]
            until(lambda: db.xlen("s") > before + 50)  # noqa: B023
            roles(db).follow("leader", 1)
            assert db.xlen("s") == before + sum(each.result(60) for each in found)
        state = db.digest()
    with tidelog.open(tmp_path / "s") as db:
        assert db.digest() == state


def test_a_checkpoint_beside_a_change(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db, ThreadPoolExecutor(1) as pool:
        db.xadd_many("s", [{"n": n} for n in range(20000)])
        for _ in range(5):
            db.xadd("s", {"n": 1})
            fold = pool.submit(db.checkpoint)
            roles(db).follow("leader", 1)
            db.promote()
            fold.result(60)
        state = db.digest()
    with tidelog.open(tmp_path / "s") as db:
        assert db.digest() == state
        assert lives(db) == [1, *[first_number(n) for n in range(1, 6)]]


class TestAdoption:
    def test_an_empty_store_takes_the_uuid(self, tmp_path: Path, leader: tidelog.Store) -> None:
        with follower(tmp_path / "c", leader) as copy:
            assert roles(copy).uuid == roles(leader).uuid == identity.read(REAL, tmp_path / "c")
            roles(copy).adopt(roles(leader).uuid)
        with tidelog.open(tmp_path / "c", fsync="no") as copy:
            leader.set("a", "1")
            pull(copy, leader)
            check(copy, leader)
            copy.checkpoint()
        with tidelog.open(tmp_path / "c") as copy:
            assert copy.get("a") == b"1"

    def test_a_store_that_holds_something_keeps_its_own(
        self, tmp_path: Path, leader: tidelog.Store
    ) -> None:
        with tidelog.open(tmp_path / "s", fsync="no") as db:
            own = roles(db).uuid
            with pytest.raises(tidelog.DataError, match="leads"):
                roles(db).adopt(roles(leader).uuid)
            db.set("a", "1")
            roles(db).follow("leader", 1)
            with pytest.raises(tidelog.DataError, match="records through LSN 2"):
                roles(db).adopt(roles(leader).uuid)
            assert roles(db).uuid == own == identity.read(REAL, tmp_path / "s")

    def test_with_a_checkpoint_it_is_refused(self, tmp_path: Path, leader: tidelog.Store) -> None:
        with tidelog.open(tmp_path / "s", fsync="no") as db:
            db.checkpoint()
            roles(db).follow("leader", 1)
            with pytest.raises(tidelog.DataError, match="new directory"):
                roles(db).adopt(roles(leader).uuid)


def test_an_address_that_is_none(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        for host, port in (("", 1), ("a b", 1), ("a", 0)):
            with pytest.raises(tidelog.DataError, match="is not"):
                roles(db).follow(host, port)
        assert db.role() == ALONE


def test_a_closed_store_and_a_read_only_one(tmp_path: Path) -> None:
    db = tidelog.open(tmp_path / "s", fsync="no")
    changes = roles(db)
    with tidelog.open(tmp_path / "s", read_only=True) as beside:
        with pytest.raises(tidelog.DataError, match="read-only"):
            beside.role()
        with pytest.raises(tidelog.DataError, match="read-only"):
            beside.promote()
    db.close()
    with pytest.raises(tidelog.StoreClosed):
        db.promote()
    with pytest.raises(tidelog.StoreClosed):
        changes.follow("leader", 1)


def test_a_full_disk_leaves_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.set("a", "1")

        def full(*args: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", "REPLICA.new")

        with monkeypatch.context() as patch:
            patch.setattr(role, "publish", full)
            with pytest.raises(tidelog.OutOfSpace, match="keeps its role"):
                roles(db).follow("leader", 1)
        assert db.role() == ALONE and db.set("a", "2") and inside.reloads(db) == 0


def test_durable_proves_what_was_synced_under_either_role(
    tmp_path: Path, leader: tidelog.Store
) -> None:
    with follower(tmp_path / "c", leader, fsync="always") as copy:
        leader.set("a", "1")
        pull(copy, leader)
        copy.barrier("fsynced")
        uuid = roles(copy).uuid
        found = durable.read(REAL, tmp_path / "c" / identity.AOF, uuid)
        assert max(promise.lsn for promise in found) == 2
        assert list(frames_of(tmp_path / "c")) == list(frames_of(root_of(leader)))
