"""Following a log up to a bound: every LSN and every time of random logs, in frames of several units."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.aof.world import ROOT, Life, Past, open_store

from tidelog.aof import durable, identity
from tidelog.aof.errors import Damage
from tidelog.aof.reading.reader import Scan, segments
from tidelog.aof.segment import Position, file_name
from tidelog.aof.start import Start, create_behind
from tidelog.crash.logs import UUID, data_only
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import END, Effect
from tidelog.snapshot.tail import NO_BOUND, Bound, follow, last_bytes

AOF = ROOT / identity.AOF
BEGIN = Start(0, 0, 1, 80, 0)


class FrameAt(NamedTuple):
    position: Position
    lsn: int
    now: int


def a_log(seed: int) -> SimulatedDisk:
    """Two lives, several segments, and frames of one to a few units, each of which takes some time."""
    rng = random.Random(seed)
    disk, past = SimulatedDisk(seed), Past()
    for _ in range(2):
        life = Life(disk, past, segment_bytes=4096)
        clock = [1_700_000_000_000 + 1000 * len(past.units)]
        for _ in range(40):
            clock[0] += rng.randint(0, 3)
            with life.log.lock:
                life.log.last_now = max(clock[0], life.log.last_now)
            life.add(rng.randint(1, 3), rng.choice((0, 100, 500)), flush=rng.random() < 0.5)
        life.close()
    return disk


def frames(disk: Disk) -> Iterator[FrameAt]:
    promises = durable.read(disk, AOF, UUID)
    for info in segments(disk, AOF, UUID):
        scan = Scan(disk, info, promises)
        for frame in scan.frames():
            end = frame.offset + 48 + len(frame.body)
            header = scan.header
            yield FrameAt(
                Position(
                    frame.lsn + frame.count - 1,
                    frame.crc,
                    header.first_lsn,
                    end,
                    header.incarnation,
                ),
                frame.lsn,
                frame.now,
            )


def everything(disk: Disk) -> list[Effect]:
    records: list[Effect] = []
    follow(disk, AOF, UUID, BEGIN, records.extend)
    return records


@pytest.mark.parametrize("seed", range(3))
def test_every_lsn(seed: int) -> None:
    disk = a_log(seed)
    records = everything(disk)
    ends = [lsn for lsn, record in enumerate(records, 1) if record[0] & END]
    inside = 0
    frame_ends = {at.position.lsn for at in frames(disk)}
    for lsn in range(len(records) + 2):
        taken: list[Effect] = []
        tail = follow(disk, AOF, UUID, BEGIN, taken.extend, Bound(lsn=lsn))
        expected = max((end for end in ends if end <= lsn), default=0)
        assert taken == records[:expected]
        assert (tail.position.lsn, tail.records) == (expected, expected)
        assert tail.bound == (lsn < len(records))
        inside += expected not in frame_ends
    assert inside > 10, "bounds inside of frames are the interesting ones"


def test_damage_behind_the_bound_is_none_of_its_business() -> None:
    records = everything(a_log(4))
    known = list(frames(a_log(4)))
    for at, behind in zip(known[::5], known[1::5]):
        if behind.position.segment != at.position.segment:
            continue
        disk = a_log(4)
        file = disk.open(AOF / file_name(at.position.segment), write=True)
        file.write(behind.position.offset - 1, b"\xc1")  # the end of the next frame
        file.close()
        taken: list[Effect] = []
        tail = follow(disk, AOF, UUID, BEGIN, taken.extend, Bound(lsn=at.position.lsn))
        assert taken == records[: at.position.lsn] and tail.bound
        assert tail.position == at.position
        with pytest.raises(Damage):
            follow(disk, AOF, UUID, BEGIN, taken.extend, Bound(lsn=at.position.lsn + 1))


def test_every_time() -> None:
    disk = a_log(1)
    records = everything(disk)
    known = list(frames(disk))
    times = sorted({at.now for at in known})
    for ms in (times[0] - 1, *times, times[-1] + 1):
        taken: list[Effect] = []
        tail = follow(disk, AOF, UUID, BEGIN, taken.extend, Bound(ms=ms))
        last = max((at for at in known if at.now <= ms), default=None)
        assert taken == records[: 0 if last is None else last.position.lsn]
        assert tail.now == (0 if last is None else last.now)
        if last is not None:
            assert tail.position == last.position


def test_from_every_frame() -> None:
    disk = a_log(2)
    records = everything(disk)
    for at in frames(disk):
        taken: list[Effect] = []
        start = Start(*at.position, now=at.now)
        tail = follow(disk, AOF, UUID, start, taken.extend)
        assert taken == records[at.position.lsn :]
        assert not tail.bound and tail.position.lsn == len(records)
        assert last_bytes(disk, AOF, UUID, start) >= 0


@pytest.mark.parametrize("seed", range(3))
def test_what_was_followed_can_be_gone_on_from(seed: int) -> None:
    """A store begun behind a bound inside of a frame opens, takes records, and opens again."""
    disk = a_log(seed)
    records = everything(disk)
    rng = random.Random(seed)
    other = Path("/other")
    for lsn in rng.sample(range(1, len(records)), 12):
        tail = follow(disk, AOF, UUID, BEGIN, lambda records: None, Bound(lsn=lsn))
        new = SimulatedDisk.of({str(other): None})
        create_behind(new, other, UUID, tail.start, 5)
        taken: list[Effect] = []
        again = follow(new, other / identity.AOF, UUID, tail.start, taken.extend)
        assert (taken, again.position.lsn) == ([], tail.position.lsn)
        assert again.epochs == tail.epochs


def test_the_whole_log_is_what_recovery_finds() -> None:
    disk = a_log(0)
    found: list[Effect] = []
    records = everything(disk)
    held, _ = open_store(disk, found.extend)
    held.close()
    assert data_only(records) == data_only(found)
    assert NO_BOUND == (1 << 64) - 1
