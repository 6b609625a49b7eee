"""A follower's log takes the frames of its leader's log, and nothing else; what it promised survives a power cut."""

from __future__ import annotations

import errno
import random
from functools import cache

import pytest
from tests.aof.shipping import AOF, Follower, Leader, batches, frames_in
from tests.aof.test_power_loss import CHANGES, SYNCS, fingerprint
from tests.aof.world import ROOT, Life, Past, open_store, unit
from tests.rounds import new_seeds, slow_and_soak

from tidelog.aof import durable, segment
from tidelog.aof.errors import BadFrame, FollowerLog, LeaderLog, LogClosed, LogPoisoned, NoSpace
from tidelog.aof.frame import HEADER
from tidelog.aof.log import FSYNCED, WRITTEN, Policy
from tidelog.aof.reading.reader import read_header, segment_paths, segments
from tidelog.aof.received import Batch
from tidelog.crash.logs import UUID, body_of
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import EPOCH, OPCODE, Effect


@cache
def history(seed: int = 1) -> bytes:
    """The bytes that a leader of three lives ships."""
    leader, rng = Leader(seed), random.Random(seed)
    for life in range(3):
        if life:
            leader.restart()
        leader.fill(20, rng)
    data = leader.shipped()
    leader.life.close()
    return data


@cache
def ends(seed: int = 1) -> dict[int, tuple[int, int]]:
    """LSN -> (bytes of the log through it, header checksum), for the end of each frame, and for 0."""
    found, at = {0: (0, 0)}, 0
    for part in frames_in(history(seed)):
        at += len(part)
        fields = HEADER.unpack_from(part)
        found[fields[2] + fields[3] - 1] = at, fields[8]
    return found


def logged(disk: Disk) -> bytes:
    """The frames in the segments of a closed log."""
    data = b""
    for info in segments(disk, AOF, UUID):
        file = disk.open(info.path)
        end = file.size() if info.end is None else info.end.offset
        data += file.pread(end - segment.HEADER_BYTES, segment.HEADER_BYTES)
        file.close()
    return data


def test_the_frames_are_the_leaders_byte_by_byte() -> None:
    disk = SimulatedDisk()
    follower = Follower(disk)
    for batch in batches(history(), nbytes_max=900):
        follower.receive(batch)
    with follower.log.lock:
        assert (follower.log.written_lsn, follower.log.chain) == (batch.last, batch.crc)
        assert follower.log.last_now >= batch.now
    follower.close()
    assert logged(disk) == history()
    headers = [read_header(disk, path) for path in segment_paths(disk, AOF)]
    assert len(headers) > 3, "the segments are the follower's own"
    assert {(h.role, h.incarnation) for h in headers} == {(segment.FOLLOWER, 77)}
    again = Follower(disk, incarnation=78)
    assert again.recovered.last_lsn == batch.last and again.applied == follower.applied
    assert [epoch.incarnation for epoch in again.recovered.epochs] == [1, 2, 3]
    again.close()
    assert logged(disk) == history(), "an open that receives nothing writes nothing"


def test_a_follower_may_stop_and_go_on_at_every_frame() -> None:
    disk = SimulatedDisk()
    for number, batch in enumerate(batches(history(), nbytes_max=1)):
        follower = Follower(disk, incarnation=1000 + number)
        follower.receive(batch)
        follower.close()
    assert logged(disk) == history()


def test_a_batch_larger_than_a_segment_is_received() -> None:
    disk = SimulatedDisk()
    follower = Follower(disk)
    (batch,) = batches(history(), nbytes_max=1 << 20)
    assert len(batch.data) > 6000
    follower.receive(batch)
    follower.close()
    assert logged(disk) == history()


def test_only_what_continues_the_log_is_received() -> None:
    follower = Follower(SimulatedDisk())
    first, second, third, *_ = batches(history(), nbytes_max=500)
    for wrong in (second, first._replace(prev=5), first._replace(first=2)):
        with pytest.raises(BadFrame):
            follower.receive(wrong)
    follower.receive(first)
    for wrong in (first, third, second._replace(prev=0)):
        with pytest.raises(BadFrame, match=f"LSN {second.first}"):
            follower.receive(wrong)
    follower.receive(second)
    assert follower.log.refusal() is None
    follower.close()
    with pytest.raises(LogClosed):
        follower.receive(third)


def test_nothing_else_enters_a_followers_log() -> None:
    disk = SimulatedDisk()
    follower = Follower(disk)
    first, second, *_ = batches(history(), nbytes_max=500)
    body = body_of(unit(1, 1, 10))
    for batch in (first, second):
        for nbytes in (0, 1, len(body), 1 << 30):
            with follower.log.lock, pytest.raises(FollowerLog, match="promote"):
                follower.log.reserve(nbytes)
        with follower.log.lock, pytest.raises(FollowerLog):
            follower.log.begin_life()
        assert follower.log.room == -1 and follower.log.refusal() is None
        follower.receive(batch)
    assert follower.log.room == -1
    follower.close()
    assert logged(disk) == first.data + second.data


def test_a_leaders_log_receives_nothing() -> None:
    life = Life(SimulatedDisk(), Past())
    (batch, *_) = batches(history(), nbytes_max=500)
    with life.log.lock, pytest.raises(LeaderLog):
        life.log.receive(batch)
    assert life.log.next_lsn == 1
    life.close()


def test_a_full_disk_refuses_the_batch_and_takes_it_later() -> None:
    disk = SimulatedDisk()
    follower = Follower(disk)
    first, *rest = batches(history(), nbytes_max=900)
    follower.receive(first)

    def full(operation: str, path: object) -> None:
        if operation in ("fill", "create"):
            raise OSError(errno.ENOSPC, "full")

    disk.before = full
    received = 0
    with pytest.raises(NoSpace):
        for batch in rest:
            follower.receive(batch)
            received += 1
    assert follower.log.refusal() is not None
    assert follower.log.written_lsn == rest[received].first - 1
    with follower.log.lock, pytest.raises(NoSpace):
        follower.log.try_again()
    disk.before = None
    with follower.log.lock:
        follower.log.try_again()
    assert follower.log.refusal() is None
    for batch in rest[received:]:
        follower.receive(batch)
    follower.close()
    assert logged(disk) == history()


def test_an_interrupted_append_leaves_the_log_in_doubt() -> None:
    disk = SimulatedDisk()
    follower = Follower(disk)
    first, second, *_ = batches(history(), nbytes_max=500)
    follower.receive(first)

    def fail(operation: str, path: object) -> None:
        if operation == "append":
            raise MemoryError

    disk.before = fail
    with pytest.raises(MemoryError):
        follower.receive(second)
    disk.before = None
    assert follower.log.in_doubt
    with pytest.raises(LogPoisoned, match="interrupted"):
        follower.receive(second)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_waiting_for_a_received_record_makes_it_durable(policy: Policy) -> None:
    disk = SimulatedDisk()
    follower = Follower(disk, policy)
    for batch in batches(history(), nbytes_max=900)[:6]:
        follower.receive(batch)
        follower.log.wait(batch.last, FSYNCED)
        promises = durable.read(disk, AOF, UUID)
        assert (77, batch.last) in promises
    disk = disk.synced()
    assert found(disk) == batch.last


def found(disk: Disk) -> int:
    """The last LSN that recovery finds. The records up to it are the beginning of the leader's log."""
    applied: list[Effect] = []
    held, recovered = open_store(disk, applied.extend)
    held.close()
    nbytes, crc = ends()[recovered.last_lsn]
    assert recovered.crc == crc and len(applied) == recovered.last_lsn
    assert logged(disk) == history()[:nbytes]
    return recovered.last_lsn


class Cuts:
    """Looks at what a power cut or a kill leaves, before every operation that changes the disk."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seen: set[int] = set()
        self.written = self.fsynced = 0

    def at(self, disk: SimulatedDisk) -> None:
        def look(operation: str, path: object) -> None:
            if operation not in CHANGES | SYNCS:
                return
            assert found(disk.killed()) >= self.written
            for _ in range(6):
                image = disk.power_loss(self.rng)
                if fingerprint(image) not in self.seen:
                    self.seen.add(fingerprint(image))
                    assert found(image) >= self.fsynced

        disk.before = look


def run(cuts: Cuts, policy: Policy, seed: int) -> None:
    """A few opens of one follower, ended by a close, a kill or a power cut."""
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    cuts.written = cuts.fsynced = 0
    for open_number in range(4):
        cuts.at(disk)
        follower = Follower(disk, policy, incarnation=open_number)
        lsn = follower.recovered.last_lsn
        assert lsn >= cuts.fsynced
        cuts.written = cuts.fsynced = lsn
        nbytes, crc = ends()[lsn]
        for batch in batches(history()[nbytes:], lsn, crc, rng.choice((1, 400, 2000))):
            if rng.random() < 0.07:
                break
            follower.receive(batch)
            cuts.written = batch.last
            if policy == "always" or rng.random() < 0.1:
                follower.log.wait(batch.last, FSYNCED)
                cuts.fsynced = batch.last
        way = rng.random()
        if way < 0.4:
            follower.close()
            disk.before = None
            cuts.fsynced = cuts.written
        elif way < 0.6:
            disk.kill()
        else:
            disk = disk.power_loss(rng)
            cuts.written = cuts.fsynced


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_every_power_cut_leaves_what_was_promised(policy: Policy) -> None:
    cuts = Cuts(seed=5)
    run(cuts, policy, 0)
    assert len(cuts.seen) > 100


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", slow_and_soak(8, 60))
@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_many_more_power_cuts(policy: Policy, count: int) -> None:
    seeds = new_seeds(count)
    cuts = Cuts(seeds[0])
    for seed in seeds:
        run(cuts, policy, seed)


def test_what_is_good_is_what_a_leader_may_ship() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    log = life.log
    assert log.good(WRITTEN) == log.good(FSYNCED) == (1, segment.HEADER_BYTES)
    life.add()
    offset = log.offset
    assert log.good(WRITTEN) == (1, offset) and log.good(FSYNCED)[1] < offset
    life.wait(FSYNCED)
    assert log.good(FSYNCED) == (1, offset)
    life.add(flush=False)
    assert log.good(WRITTEN) == (1, offset), "a gathered unit is not in the file"
    while len(segment_paths(disk, AOF)) == 1:
        life.add(1, 700)
    first = int(segment_paths(disk, AOF)[-1].stem)
    assert log.good(WRITTEN) == (first, log.offset)
    assert log.good(FSYNCED) == (first, segment.HEADER_BYTES)
    life.close()
    again = Life(disk, past)
    assert again.log.good(WRITTEN) == again.log.good(FSYNCED) == (first, log.offset)
    again.close()


def test_after_a_failed_sync_only_what_was_synced_is_good() -> None:
    disk = SimulatedDisk()
    life = Life(disk, Past())
    life.add()
    life.wait(FSYNCED)
    offset = life.log.offset
    life.add()

    def fail(operation: str, path: object) -> None:
        if operation == "fdatasync":
            raise OSError(5, "failed")

    disk.before = fail
    with pytest.raises(LogPoisoned):
        life.wait(FSYNCED)
    disk.before = None
    assert life.log.good(WRITTEN) == life.log.good(FSYNCED) == (1, offset)


def test_a_life_can_begin_before_its_first_unit() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past, epoch=3 << 32)
    for _ in range(2):
        with life.log.lock:
            life.log.begin_life()
        assert life.log.next_lsn == 2
    life.log.wait(1, FSYNCED)
    applied: list[Effect] = []
    held, recovered = open_store(disk.synced(), applied.extend)
    held.close()
    assert [(e[0] & OPCODE, e[1], e[2]) for e in applied] == [(EPOCH, 3 << 32, 1)]
    life.add()
    life.close()
    assert Life(disk, past).log.epoch == (3 << 32) + 1, "a restart adds one"


def test_a_promoted_follower_goes_on_in_a_segment_of_its_own() -> None:
    disk = SimulatedDisk()
    follower = Follower(disk)
    batch: Batch
    for batch in batches(history(), nbytes_max=900):
        follower.receive(batch)
    follower.close()
    life = Life(disk, _Any(), epoch=1 << 32)
    with life.log.lock:
        life.log.begin_life()
    life.log.close()
    life.held.close()
    paths = segment_paths(disk, AOF)
    last = read_header(disk, paths[-1])
    assert (last.role, last.first_lsn, last.before.crc) == (
        segment.LEADER,
        batch.last + 1,
        batch.crc,
    )
    assert read_header(disk, paths[0]).role == segment.FOLLOWER
    held, recovered = open_store(disk, lambda _: None, ROOT)
    held.close()
    assert [e.number for e in recovered.epochs] == [1, 2, 3, 1 << 32]


class _Any(Past):
    """A past that accepts all that recovery finds."""

    def recovered(self, found: list[Effect]) -> None:
        pass
