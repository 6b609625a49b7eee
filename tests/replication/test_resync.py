"""A follower that its leader's log cannot serve gets a copy of the leader's data, puts it in place, and goes on."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.processes import Node, caught_up, ended
from tests.replication.stores import caught_up as stores_caught_up
from tests.replication.stores import frames
from tests.rounds import rest_slow
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.aof import identity
from tidelog.aof.reading.reader import segment_paths
from tidelog.disk.real import RealDisk
from tidelog.replication.feeds import End
from tidelog.replication.fetch import Fetch
from tidelog.replication.handshake import Follow
from tidelog.replication.offer import choose
from tidelog.replication.protocol import DATA_FILE
from tidelog.replication.resync import CHECKING, FETCHING, SWAPPING, WAITING
from tidelog.server import offering
from tidelog.server.shaking import Shaking
from tidelog.snapshot import copying, portable, swap

REAL = RealDisk()
SMALL: dict[str, Any] = {"segment_bytes": 8192, "retain_bytes": 0}


def write(db: tidelog.Store, count: int) -> None:
    for number in range(count):
        db.xadd("orders", {"n": number, "text": "x" * 200})


def begins(db: tidelog.Store) -> int:
    """The first LSN in the log."""
    return int(segment_paths(REAL, inside.core(db).root / identity.AOF)[0].stem)


def equal(leader: tidelog.Store, follower: tidelog.Store) -> None:
    """Both hold the same, and the logs are the same bytes where both have them."""
    stores_caught_up(leader, follower)
    assert follower.digest() == leader.digest()
    first = max(begins(leader), begins(follower)) - 1
    assert frames(follower, first) == frames(leader, first)


def synced(db: tidelog.Store) -> bool:
    told = db.info()["replication"]
    return bool(told["link"] == "connected" and told["caught_up"])


@pytest.fixture
def released(tmp_path: Path) -> Iterator[Pair]:
    """A leader whose log no longer begins with LSN 1."""
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack, **SMALL)
        write(pair.db, 500)
        pair.db.checkpoint()
        assert begins(pair.db) > 1
        yield pair


def test_an_empty_follower(released: Pair) -> None:
    pair, leader = released, released.db
    db = pair.follow()
    until(lambda: synced(db), "the copy does not come")
    equal(leader, db)
    write(leader, 20)
    equal(leader, db)
    root = inside.core(db).root
    until(lambda: not (root / identity.RESYNC).exists(), "resync/ stays")
    assert not (root / identity.QUARANTINE).exists()
    assert inside.core(db).roles.uuid == inside.core(leader).roles.uuid  # type: ignore[union-attr]


@pytest.mark.parametrize("remembered", [True, False])
def test_a_follower_that_was_away(released: Pair, remembered: bool) -> None:
    """Its old data is removed only if the leader still knows the checksum of its last frame."""
    pair, leader = released, released.db
    with tidelog.open(pair.root / "follower", fsync="no", **SMALL):
        pass
    db = pair.follow(**SMALL)
    until(lambda: synced(db), "the copy does not come")
    equal(leader, db)
    state = db.digest()
    if not remembered:
        # As if the leader had started anew. While the follower is connected: a checkpoint that is made by itself
        # remembers one that is away.
        inside.core(leader).checkpoints.followers = list  # type: ignore[union-attr]
    db.close()
    write(leader, 500)
    if remembered:
        with pair.client() as client:
            client.config_set("repl-backlog-ttl", 0)
    for made in (inside.core(leader).root / identity.SNAPSHOTS).iterdir():
        if made.is_dir():
            for file in made.iterdir():
                file.unlink()
            made.rmdir()
    leader.checkpoint()
    again = pair.follow(**SMALL)
    until(lambda: synced(again), "the copy does not come")
    write(leader, 20)
    equal(leader, again)
    aside = list((inside.core(again).root).glob(f"{identity.QUARANTINE}/*"))
    assert len(aside) == (not remembered)
    for old in aside:
        with tidelog.open(old, read_only=True) as kept:
            assert kept.digest() == state


def test_several_followers_share_a_snapshot(
    released: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them fetch at the same time."""
    pair, leader = released, released.db
    monkeypatch.setattr(offering, "SPARE_S", 600.0)
    all_fetch = threading.Event()

    def stall(data: bytes, at: int) -> bytes:
        if at > 1000:  # only this connection waits: the others may still begin
            assert all_fetch.wait(60)
        return data

    leader.xadd("large", {"random": random.randbytes(200_000)})
    pair.proxy.change = stall
    copies = [pair.follow(str(number)) for number in range(4)]
    with pair.client() as client:
        fetching = "slaves_fetching_a_snapshot"
        until(lambda: client.info("replication")[fetching] == 4, "not all of them fetch")
        all_fetch.set()
        until(lambda: all(map(synced, copies)), "the copies do not come")
    for copy in copies:
        equal(leader, copy)
    made = list((inside.core(leader).root / identity.SNAPSHOTS).glob("0*"))
    assert len(made) == 1


def test_a_reader_beside_a_follower_that_gets_a_copy(
    released: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves the old store until the new one is in place, and goes on from there."""
    monkeypatch.setattr(swap, "WAIT_S", PATIENCE_S)
    pair, leader = released, released.db
    db = pair.open("follower")
    write(db, 30)
    old = db.digest()
    db.checkpoint()
    serving = pair.serve(db)
    states = []
    with tidelog.open(inside.core(db).root, read_only=True) as reader:
        assert reader.digest() == old
        with pair.client(serving.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port), "REPLACE")

            def arrived() -> bool:
                reader.refresh()
                states.append(reader.digest())
                return states[-1] == leader.digest()

            until(arrived, "the reader does not see the copy")
            until(lambda: synced(db), "no link")
        assert set(states) == {old, leader.digest()} or set(states) == {leader.digest()}
        write(leader, 10)
        equal(leader, db)
        reader.refresh()
        assert reader.digest() == leader.digest()


def test_another_store_with_consent(released: Pair) -> None:
    pair, leader = released, released.db
    db = pair.open("follower")
    write(db, 30)
    state = db.digest()
    serving = pair.serve(db)
    with pair.client(serving.port) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port))
        until(
            lambda: "holds store" in db.info()["replication"].get("link_failure", ""),
            "it is not refused",
        )
        assert db.digest() == state
        client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port), "REPLACE")
        until(lambda: client.info("replication")["master_link_status"] == "up", "no link")
    equal(leader, db)
    (old,) = (inside.core(db).root / identity.QUARANTINE).iterdir()
    with tidelog.open(old, read_only=True) as kept:
        assert kept.digest() == state


def test_a_checkpoint_beyond_the_parting_point(pair: Pair) -> None:
    """A follower whose checkpoint holds what its leader has given up cannot rewind, and gets a copy."""
    db = pair.follow()
    write(pair.db, 30)
    equal(pair.db, db)
    db.promote()
    pair.db.close()
    write(db, 10)
    old = tidelog.open(pair.root / "leader")
    for number in range(20):
        old.xadd("lost", {"n": number})
    old.checkpoint()
    state = old.digest()
    serving = pair.serve(db)
    lost = pair.serve(old, replicaof=f"127.0.0.1 {serving.port}")
    with pair.client(lost.port) as client:
        until(lambda: client.info("replication")["master_link_status"] == "up", "no link")
    equal(db, old)
    (kept,) = (pair.root / "leader" / identity.QUARANTINE).iterdir()
    with tidelog.open(kept, read_only=True) as aside:
        assert aside.digest() == state
    old.close()


def test_a_link_that_breaks_again_and_again(
    released: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection goes on where the one before ended."""
    pair, leader = released, released.db
    monkeypatch.setattr(copying, "PIECE_BYTES", 16 << 10)
    leader.xadd("large", {"random": random.randbytes(600_000)})
    sent = 0

    def count(data: bytes, at: int) -> bytes:
        nonlocal sent
        sent += len(data)
        return data

    pair.proxy.change, pair.proxy.limit = count, 200_000
    db = pair.follow()
    until(lambda: synced(db), "the copy does not come")
    pair.proxy.limit = None
    equal(leader, db)
    assert pair.proxy.count > 3
    assert sent < 1_500_000


def test_damage_on_the_way(released: Pair) -> None:
    """A flipped bit ends the link. The follower asks again."""
    pair, leader = released, released.db
    left = 3

    def flip(data: bytes, at: int) -> bytes:
        nonlocal left
        if at > 20_000 and left:
            left -= 1
            data = data[:5] + bytes([data[5] ^ 1]) + data[6:]
        return data

    leader.xadd("large", {"random": random.randbytes(200_000)})
    pair.proxy.change = flip
    db = pair.follow()
    until(lambda: synced(db), "the copy does not come")
    assert left == 0
    equal(leader, db)


def test_promoted_in_the_middle(released: Pair) -> None:
    """The resync ends, and the store leads with what it has."""
    pair = released
    db = pair.open("follower")
    serving = pair.serve(db)
    stalled = pair.proxy.stall_after(1000)
    with pair.client(serving.port) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", str(pair.proxy.port))
        assert stalled.wait(60)
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.xadd("own", {"n": 1})
    pair.proxy.open.set()
    assert db.xlen("own") == 1 and db.xlen("orders") == 0
    root = inside.core(db).root
    serving.close()
    db.close()
    with tidelog.open(root) as again:
        assert again.xlen("own") == 1 and not (root / identity.RESYNC).exists()


def test_a_follower_that_is_closed_in_the_middle(released: Pair) -> None:
    pair = released
    stalled = pair.proxy.stall_after(1000)
    db = pair.follow()
    assert stalled.wait(60)
    db.close()
    pair.proxy.change = lambda data, at: data
    pair.proxy.open.set()
    again = pair.follow()
    until(lambda: synced(again), "the copy does not come")
    equal(pair.db, again)


def test_a_snapshot_made_for_followers_goes_when_nobody_uses_it(
    released: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, leader = released, released.db
    snapshots = inside.core(leader).root / identity.SNAPSHOTS

    def kept() -> list[Path]:
        return [path for path in snapshots.glob("*") if path.name.isdigit()]

    db = pair.follow()
    until(lambda: synced(db), "the copy does not come")
    assert len(kept()) == 1
    monkeypatch.setattr(offering, "SPARE_S", 0.1)
    until(lambda: not kept(), "the snapshot stays")
    equal(leader, db)


def test_a_leader_that_ends_soon_keeps_no_snapshot(released: Pair) -> None:
    """Neither for the rest of its store's life, nor for the server that comes next."""
    leader = released.db
    directory = inside.core(leader).root / identity.SNAPSHOTS
    copy = released.follow()
    until(lambda: synced(copy), "the copy does not come")
    assert list(directory.glob("0*"))
    released.serving.close()
    until(lambda: not list(directory.glob("0*")), "the snapshot stays")
    # as if the server had been killed
    path = inside.checkpoints(leader).snapshot(passing=True).path
    again = released.serve(leader).server
    assert again is not None and path in again.replicating.feeding.offerings._made


def test_info_says_who_keeps_the_log(released: Pair) -> None:
    leader = released.db
    write(leader, 20)
    path = leader.snapshot().path
    write(leader, 500)
    leader.checkpoint()
    with released.client() as client:

        def pinned() -> dict[str, Any]:
            told: dict[str, Any] = client.info("persistence")
            return told["log_pin0"] if told["log_pins"] else {}

        until(lambda: pinned().get("kind") == "snapshot", "INFO does not tell")
        found = pinned()
    assert (found["name"], found["lsn"]) == (int(path.name), int(path.name))
    assert found["bytes"] > 0 and found["since"] > 0


def test_a_snapshot_that_becomes_spare_while_another_one_is_deleted_is_deleted_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted: list[Path] = []
    threads: list[asyncio.Future[set[Path]]] = []

    def in_thread(work: Callable[[], set[Path]]) -> asyncio.Future[set[Path]]:
        work()
        threads.append(asyncio.get_running_loop().create_future())
        return threads[-1]

    monkeypatch.setattr(offering, "in_thread", in_thread)
    monkeypatch.setattr(offering, "TICK_S", 0.0)

    def delete(path: Path) -> bool:
        deleted.append(path)
        return True

    core: Any = SimpleNamespace(
        checkpoints=SimpleNamespace(delete_passing=delete, passing=lambda: [])
    )

    async def look() -> None:
        long_ago = asyncio.get_running_loop().time() - 2 * offering.SPARE_S
        offerings = offering.Offerings(
            core, lambda: End(0, (0, 0), (1, 1), 1), lambda *_: None, Shaking()
        )
        for name in ("first", "second"):
            offerings._made[Path(name)] = long_ago
            offerings.tick(10.0)
        threads[0].set_result({Path("first")})
        await asyncio.sleep(0)
        offerings.tick(10.0)

    asyncio.run(look())
    assert deleted == [Path("first"), Path("second")]


def test_what_a_follower_fetches_is_not_pruned(released: Pair) -> None:
    core = inside.core(released.db)
    directory = core.root / identity.SNAPSHOTS
    held = offering.lease_snapshot(core, 0)
    pruned = portable.prune(REAL, directory, 0)
    assert [each.path for each in pruned.held] == [held.path] and held.path.exists()
    held.close()
    portable.prune(REAL, directory, 0)
    assert not held.path.exists()


def test_a_snapshot_is_not_older_than_what_both_have(released: Pair) -> None:
    leader = released.db
    old = leader.snapshot().lsn
    write(leader, 1)
    core = inside.core(leader)
    assert choose(core, old).lsn == old
    assert choose(core, old + 1).lsn == old + 1


class Swift:
    """A connection that takes everything at once, so nothing ever tells that it has room again."""

    unsent = 0

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch

    def write(self, data: bytes) -> None:
        self.fetch.receive(data, 0.0)

    def close(self) -> None: ...

    def kill(self) -> None: ...


def test_a_swift_connection_waits_for_no_timer(released: Pair) -> None:
    core = inside.core(released.db)
    released.db.xadd("large", {"random": random.randbytes(5_000_000)})
    request = Follow(bytes(16), bytes(16), 0, 0, 0, ())

    async def ship() -> int:
        fetch = Fetch(0.0)
        link = offering.Offering(
            *(core, request, 0, "follower", Swift(fetch)),
            lambda: End(0, (0, 0), (1, 1), 1),
            lambda link, error: None,
            Shaking(),
        )
        while fetch.snapshot is None:
            await asyncio.sleep(0.001)
        link.data_received(fetch.want(DATA_FILE, 0))
        async with asyncio.timeout(30):
            while fetch.received < fetch.snapshot.data_bytes:
                await asyncio.sleep(0.001)
        link.connection_lost(None)
        return fetch.received

    assert asyncio.run(ship()) > 5_000_000


# --- real processes

LEADER = ("enable-debug-command=yes", "segment-bytes=65536", "retain-bytes=0")


def filled(node: Node, count: int) -> None:
    """Entries, a checkpoint, and a log that begins behind LSN 1."""
    with node.client() as client:
        for at in range(0, count, 1000):
            with client.pipeline(transaction=False) as pipe:
                for number in range(at, min(at + 1000, count)):
                    pipe.xadd(f"s{number % 7}", {"n": number, "text": random.randbytes(300)})
                pipe.execute()
        client.save()


@pytest.mark.parametrize("first", rest_slow([True, False], 1))
def test_sigkill_of_either_side_in_every_phase(tmp_path: Path, first: bool) -> None:
    leader = Node(tmp_path / "leader", *LEADER)
    follower = Node(tmp_path / "follower", *LEADER)
    victims = [leader, follower] if first else [follower, leader]
    seen = set()
    with ended(leader, follower):
        leader.start()
        filled(leader, 10_000)
        follower.start()
        follower.follow(leader.port)
        for number, phase in enumerate((WAITING, FETCHING, CHECKING, SWAPPING)):
            until(lambda: phase_of(follower) in (phase, "up"), "no resync")  # noqa: B023 - at once
            seen.add(phase_of(follower))
            victim = victims[number % 2]
            victim.kill()
            victim.start()
        until(lambda: phase_of(follower) == "up", "no link")
        with leader.client() as client:
            client.xadd("s0", {"last": 1})
        caught_up(leader, follower)
        assert leader.digest() == follower.digest()
        assert not (tmp_path / "follower" / identity.QUARANTINE).exists()
    assert len(seen) > 1, "no resync was interrupted"


def phase_of(node: Node) -> str:
    """The phase of its resync; `up` when it is over."""
    with node.client() as client:
        told = client.info("replication")
    return "up" if told["master_link_status"] == "up" else told.get("master_sync_phase", "")
