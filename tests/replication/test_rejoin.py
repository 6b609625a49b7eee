"""A follower sets aside what its leader's history does not have, and follows. Power cuts, faults, refusals."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path

import pytest
from tests.aof.test_power_loss import CHANGES, SYNCS, new_images
from tests.replication.network import ROOT, Network, Node
from tests.replication.processes import Node as Process
from tests.replication.processes import caught_up, ended
from tests.rounds import new_seeds, slow_and_soak
from tests.until import until

from tidelog.aof import identity
from tidelog.aof.errors import Vanished
from tidelog.aof.surplus import REPORT
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication.errors import LinkError, ProtocolError, Refused
from tidelog.replication.handshake import Rejoin, Resync, parse_follow, parse_reply
from tidelog.store.errors import NotStored, OutOfSpace


def parted(seed: int, writes: int = 30) -> tuple[Network, Node, Node]:
    """A network whose node 0 has a surplus behind the log of node 1, which was promoted. Node 0 follows it by now."""
    net = Network(seed, 2)
    old, new = net.nodes
    new.follow(old)
    for _ in range(10):
        net.write(old)
    assert net.settle(new)
    for _ in range(writes):
        net.write(old)
    new.promote()
    for _ in range(5):
        net.write(new)
    old.follow(new)
    return net, old, new


def reports(disk: SimulatedDisk) -> list[dict[str, object]]:
    aside = ROOT / identity.QUARANTINE
    found = []
    for name in disk.listdir(aside) if disk.exists(aside) else ():
        file = disk.open(aside / name / REPORT)
        found.append(json.loads(file.pread(file.size(), 0)))
    return found


def test_the_report_names_what_was_given_up() -> None:
    net, old, new = parted(1, writes=0)
    old.core.roles.promote()
    first = old.last + 1
    ids = [net.run(old, b"XADD", b"or\xffders", b"*", b"n", b"%d" % number) for number in range(7)]
    net.run(old, b"XGROUP", b"CREATE", b"or\xffders", b"g", b"0")
    net.run(old, *b"XREADGROUP GROUP g ann COUNT 3 STREAMS".split(), b"or\xffders", b">")
    net.run(old, b"XACK", b"or\xffders", b"g", *ids[:2])
    last = old.last
    # A leader that was promoted twice since gives up a promotion of its follower.
    new.follow(old)
    new.promote()
    new.core.roles.follow("elsewhere", 1)
    new.promote()
    net.write(new)
    old.follow(new)
    assert net.settle(old), old.why
    (report,) = reports(old.disk)
    assert report["streams"] == [
        {
            "db": 0,
            "key": "or\\xffders",
            "entries": 7,
            "first": ids[0].decode(),
            "last": ids[-1].decode(),
        }
    ]
    assert report["groups"] == [
        {"db": 0, "key": "or\\xffders", "group": "g", "delivered": 3, "acknowledged": 2}
    ]
    assert (report["first_lsn"], report["last_lsn"]) == (first - 1, last)  # its EPOCH comes first
    assert report["parted"]["leader"] == "leader 2"  # type: ignore[index]
    net.close()


def cut_at_every_operation(seed: int, images: int) -> int:
    """Cut the power at every operation of a rejoin, a few times each. Returns the number of distinct images."""
    net, old, new = parted(seed)
    r = random.Random(seed)
    before, least = old.all_frames(), new.core.checkpoints.epochs[-1].lsn - 1
    seen: set[int] = set()
    found: list[SimulatedDisk] = []

    def look(operation: str, path: Path) -> None:
        if operation in CHANGES | SYNCS:
            found.extend(new_images(old.disk, r, images, seen))

    with old.core.lock:
        old.core.log.sync_whole()  # a power cut before it leaves less, which is not what this test is about
    old.disk.before = look
    net.dial(old)
    old.disk.before = None
    assert net.counts["rejoin"] == 1, old.why
    for image in found:
        old.hang_up("power cut")
        old.core.keeper.let_go()
        old.disk = image
        old.open()
        assert old.last >= least
        assert old.all_frames() >= before
        assert net.settle(old), old.why
        net.check()
        assert old.frames() == new.frames()
        assert old.all_frames() >= before
    net.close()
    return len(found)


def test_every_power_cut_leaves_all_of_it() -> None:
    assert cut_at_every_operation(0, images=1) > 10


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", slow_and_soak(6, 40))
def test_many_more_power_cuts(count: int) -> None:
    for seed in new_seeds(count):
        cut_at_every_operation(seed, images=4)


def test_a_full_disk_gives_nothing_up() -> None:
    """Each operation that needs space fails. Then there is space again."""
    for number in range(200):
        net, old, new = parted(4)
        before, seen = old.all_frames(), 0

        def full(operation: str, path: Path) -> None:
            nonlocal seen
            if operation in ("write", "mkdir", "create") and path.name != "DURABLE":
                seen += 1
                if seen > number:
                    raise OSError(errno.ENOSPC, "full")

        old.disk.before = full
        try:
            net.dial(old)
            break
        except (OutOfSpace, OSError):
            pass
        finally:
            old.disk.before = None
        assert net.settle(old), old.why
        assert old.all_frames() >= before and old.frames() == new.frames()
        net.close()
    assert number > 5


def test_a_store_that_changes_meanwhile_keeps_everything() -> None:
    net, old, new = parted(5)
    follower = old.follower
    assert follower is not None
    before = old.frames()
    with pytest.raises(LinkError):
        follower.answered(new.feeds.answer(parse_follow(follower.hello()), 0.0)[0], 0.0)
    asked = follower.parted
    assert asked is not None
    # another leader
    roles, rewind = old.core.roles, old.core.roles.rewind

    def late(*args: object) -> str:
        roles.follow("another", 9)
        told: str = rewind(*args)
        return told

    roles.rewind = late
    with pytest.raises(NotStored):
        follower.rejoin()
    del roles.rewind
    assert old.frames() == before
    # no follower any more
    follower.parted = asked
    roles.promote()
    with pytest.raises(LinkError):
        follower.rejoin()
    assert old.frames().items() >= before.items()
    net.close()


def test_a_checkpoint_behind_the_place_stays() -> None:
    net, old, new = parted(6)
    old.disk.mkdir(ROOT / identity.SNAPSHOTS)
    old.disk.mkdir(ROOT / identity.SNAPSHOTS / f"{old.last:020d}")
    before, follower = old.frames(), old.follower
    assert follower is not None
    with pytest.raises(LinkError):
        follower.answered(new.feeds.answer(parse_follow(follower.hello()), 0.0)[0], 0.0)
    follower.rejoin()
    assert old.frames() == before and reports(old.disk) == []
    # It asks for a copy of the leader's data, and the leader says through where both have the same.
    asked = parse_follow(follower.hello())
    assert asked.copy
    reply = parse_reply(new.feeds.answer(asked, 0.0)[0])
    assert isinstance(reply, Resync)
    assert reply.shared == new.core.checkpoints.epochs[-1].lsn - 1
    # Another leader may not need that.
    old.core.roles.follow("elsewhere", 1)
    assert not parse_follow(follower.hello()).copy
    net.close()


@pytest.mark.parametrize("wrong", ["lsn", "nothing", "uuid", "crc"])
def test_a_leader_that_lies_gets_nothing(wrong: str) -> None:
    net, old, new = parted(7)
    follower, uuid = old.follower, new.core.roles.uuid
    assert follower is not None
    at = new.core.checkpoints.epochs[-1].lsn - 1
    follower.parted = {
        "lsn": Rejoin(uuid, 50, old.last, None, False),
        "nothing": Rejoin(uuid, 50, 0, None, False),
        "uuid": Rejoin(bytes(16), 50, at, None, False),
        "crc": Rejoin(uuid, 50, at, 7, False),
    }[wrong]
    before = old.frames()
    with pytest.raises(Refused if wrong == "crc" else ProtocolError):
        follower.rejoin()
    assert old.frames() == before
    net.close()


def test_a_long_surplus_of_a_power_cut_waits_for_a_person() -> None:
    net = Network(8, 2)
    leader, copy = net.nodes
    leader.policy = "no"
    leader.kill()
    copy.follow(leader)
    net.run(leader, b"SET", b"n", b"0")
    assert net.settle(copy)
    with leader.core.lock:
        leader.core.log.sync_whole()
    for _ in range(3):
        net.run(leader, b"SET", b"n", b"1")
        net.pass_time(6.0)
    assert net.settle(copy)
    durable = leader.disk.synced()
    leader.hang_up("power cut")
    leader.core.keeper.let_go()
    leader.disk = durable
    leader.open()
    before = copy.frames()
    net.dial(copy)
    assert "replica-surplus-seconds" in copy.why
    assert copy.frames() == before
    net.surplus_s = 20.0
    assert net.settle(copy), copy.why
    assert copy.frames() == leader.frames()
    net.close()


def test_a_follower_of_a_follower_asks_again() -> None:
    """The place that its feed had found is another history's after the rewind."""
    net = Network(9, 3)
    top, middle, low = net.nodes
    middle.follow(top)
    low.follow(middle)
    for _ in range(20):
        net.write(top)
    assert net.settle(middle) and net.settle(low)
    middle.promote()
    for _ in range(9):
        net.write(middle)
    for port in (1, 2):  # two generations on
        top.core.roles.follow("elsewhere", port)
        top.promote()
    net.write(top)
    middle.follow(top)
    assert net.settle(low)
    wire = low.wire
    assert wire is not None and wire.upstream is middle
    net.dial(middle)
    assert net.counts["rejoin"] == 1
    with pytest.raises(Vanished):
        wire.feed.send(net.seconds, *middle.feeds.end(), 1 << 16)
    assert net.settle(middle) and net.settle(low), low.why
    assert net.counts["rejoin"] == 2
    assert top.frames() == middle.frames() == low.frames()
    net.close()


def test_the_old_leader_comes_back(tmp_path: Path) -> None:
    """Real processes: the leader is killed with records that no follower has; a follower is promoted."""
    old = Process(tmp_path / "old", "enable-debug-command=yes")
    new = Process(tmp_path / "new", "enable-debug-command=yes")
    with ended(old, new):
        old.start()
        new.start()
        new.follow(old.port)
        with old.client() as client:
            client.xadd("orders", {"n": 1})
        caught_up(old, new)
        with new.client() as client:
            assert client.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
            client.xadd("orders", {"n": "new"})
        with old.client() as client:
            client.xadd("orders", {"n": "only here"})
            client.xadd("mails", {"n": "only here"})
        old.kill()
        old.start()
        old.follow(new.port)
        until(lambda: old.lsn() == new.lsn() and old.digest() == new.digest(), "it does not rejoin")
        with old.client() as client:
            assert [row[b"n"] for _, row in client.xrange("orders")] == [b"1", b"new"]
            assert not client.exists("mails")
        (aside,) = (tmp_path / "old" / "quarantine").iterdir()
        report = json.loads((aside / REPORT).read_text())
        assert [each["key"] for each in report["streams"]] == ["orders", "mails"]
        with new.client() as client:
            client.xadd("orders", {"n": 3})
        caught_up(new, old)
        # it opens as it is
        old.end()
        old.start()
        caught_up(new, old)
        assert old.digest() == new.digest()
