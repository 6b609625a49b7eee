"""A log is ended after an earlier record. The records behind it are kept, and the store opens after every power cut."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.aof.shipping import AOF, Follower, Leader, batches, frames_in
from tests.aof.test_power_loss import CHANGES, SYNCS, new_images
from tests.aof.world import ROOT, Life, Past, open_store
from tests.rounds import new_seeds, slow_and_soak

from tidelog.aof import durable, segment
from tidelog.aof.errors import CorruptFrame, NoFrameEnds, NoSpace
from tidelog.aof.frame import HEADER
from tidelog.aof.reading.reader import Scan, segment_paths, segments
from tidelog.aof.release import release
from tidelog.aof.rewind import rewind
from tidelog.aof.seek import position_after
from tidelog.aof.segment import Position
from tidelog.crash.logs import UUID
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk

ASIDE = ROOT / "quarantine" / "surplus"


def frames_of(disk: Disk, directory: Path) -> bytes:
    """The frames in all segments of a directory, read and checked as any log."""
    data = b""
    for info in segments(disk, directory, UUID):
        scan = Scan(disk, info)
        for _ in scan.tuples():
            pass
        assert scan.error() is None
        file = disk.open(info.path)
        data += file.pread(scan.offset - segment.HEADER_BYTES, segment.HEADER_BYTES)
        file.close()
    return data


def aside_of(disk: Disk) -> bytes:
    return frames_of(disk, ASIDE) if disk.exists(ASIDE) else b""


def recovered(disk: Disk) -> int:
    """Open the store, and return the last LSN."""
    held, found = open_store(disk, lambda _: None)
    held.close()
    return found.last_lsn


def closed_log(seed: int = 2, units: int = 14, lives: int = 3) -> SimulatedDisk:
    leader, rng = Leader(seed), random.Random(seed)
    for life in range(lives):
        if life:
            leader.restart()
        leader.fill(units, rng)
    leader.life.close()
    return leader.disk


def places(data: bytes) -> list[tuple[int, int]]:
    """(LSN, bytes of the log through it) of the end of each frame, and of the beginning."""
    found, at = [(0, 0)], 0
    for part in frames_in(data):
        at += len(part)
        fields = HEADER.unpack_from(part)
        found.append((fields[2] + fields[3] - 1, at))
    return found


def position_at(disk: Disk, lsn: int) -> Position:
    position = position_after(disk, AOF, UUID, lsn)
    assert position is not None
    return position


def test_a_log_is_rewound_to_every_frame() -> None:
    data = frames_of(closed_log(), AOF)
    assert len(segments(closed_log(), AOF, UUID)) > 3
    for lsn, nbytes in places(data):
        disk = closed_log()
        disk.operations.clear()
        files = rewind(disk, ROOT, UUID, position_at(disk, lsn), ASIDE)
        assert "truncate" not in {name for name, _ in disk.operations}, "a cut may leave holes"
        assert frames_of(disk, AOF) == data[:nbytes]
        assert aside_of(disk) == data[nbytes:]
        assert files == (segment_paths(disk, ASIDE) if nbytes < len(data) else [])
        assert all(promise.lsn <= lsn for promise in durable.read(disk, AOF, UUID))
        # what is left is durable, opens, and goes on
        disk = disk.synced()
        assert recovered(disk) == lsn
        assert frames_of(disk, AOF) == data[:nbytes] and aside_of(disk) == data[nbytes:]


def test_a_second_call_changes_nothing() -> None:
    disk = closed_log()
    position = position_at(disk, places(frames_of(disk, AOF))[9][0])
    files = rewind(disk, ROOT, UUID, position, ASIDE)
    before = disk.tree()
    assert files and rewind(disk, ROOT, UUID, position, ASIDE) == files
    assert disk.tree() == before


def test_the_store_follows_another_history_afterwards() -> None:
    """Two stores have parted. One rewinds to where they did, and its log becomes the other's, byte by byte."""
    disk = closed_log()
    parted = recovered(disk)
    own, other = Past(), Past()
    own.recovered = other.recovered = lambda found: None  # type: ignore[method-assign]
    own._incarnation, other._incarnation = 40, 50
    copy = SimulatedDisk.of(disk.tree())
    for each, past, padding in ((disk, own, 10), (copy, other, 500)):
        life = Life(each, past)
        for _ in range(20):
            life.add(1, padding)
        life.log.close()
        life.held.close()
    surplus = frames_of(disk, AOF)
    theirs = frames_of(copy, AOF)
    position = position_at(disk, parted)
    rewind(disk, ROOT, UUID, position, ASIDE)
    follower = Follower(disk)
    nbytes = dict(places(theirs))[parted]
    for batch in batches(theirs[nbytes:], parted, position.crc):
        follower.receive(batch)
    follower.close()
    assert frames_of(disk, AOF) == theirs
    assert theirs[:nbytes] + aside_of(disk) == surplus


def test_the_first_segment_may_be_released() -> None:
    disk = closed_log()
    first = segments(disk, AOF, UUID)[2].header.first_lsn
    release(disk, AOF, first - 1, keep_bytes=0)
    data = frames_of(disk, AOF)
    rewind(disk, ROOT, UUID, position_at(disk, first - 1), ASIDE)
    (left,) = segments(disk, AOF, UUID)
    assert left.header.first_lsn == first and frames_of(disk, AOF) == b""
    assert aside_of(disk) == data


def test_a_place_of_another_history_is_refused() -> None:
    disk = closed_log()
    known = dict(places(frames_of(disk, AOF)))
    lsn = next(lsn for lsn in known if lsn > 5)
    inside = next(lsn for lsn in range(max(known)) if lsn not in known)
    before = disk.tree()
    position = position_at(disk, lsn)
    for wrong in (position._replace(crc=7), position._replace(lsn=inside)):
        with pytest.raises(NoFrameEnds):
            rewind(disk, ROOT, UUID, wrong, ASIDE)
    assert disk.tree() == before


def test_damage_in_the_surplus_is_left_to_a_person() -> None:
    for number in range(4):
        disk = closed_log()
        info = segments(disk, AOF, UUID)[number]
        file = disk.open(info.path, write=True)
        file.write(info.end.offset - 1 if info.end else file.size() - 1, b"\xff")
        before = disk.tree()
        with pytest.raises(CorruptFrame) as raised:
            rewind(disk, ROOT, UUID, position_at(disk, 3), ASIDE)
        assert raised.value.path == info.path
        assert disk.tree() == before


def test_a_full_disk_loses_nothing() -> None:
    """Every operation that needs space fails once; the call succeeds when there is space again."""
    data = frames_of(closed_log(), AOF)
    lsn, nbytes = places(data)[9]
    failed = 0
    for number in range(1000):
        disk = closed_log()
        position, seen = position_at(disk, lsn), 0

        def full(operation: str, path: Path) -> None:
            nonlocal seen
            if operation in ("write", "mkdir", "create") and path.name != durable.NAME:
                seen += 1
                if seen > number:
                    raise OSError(errno.ENOSPC, "full")

        disk.before = full
        try:
            rewind(disk, ROOT, UUID, position, ASIDE)
            break
        except NoSpace:
            failed += 1
        disk.before = None
        log = frames_of(disk, AOF)
        assert data.startswith(log) and len(log) >= nbytes
        if log != data:
            assert aside_of(disk) == data[nbytes:]
        rewind(disk, ROOT, UUID, position, ASIDE)
        assert frames_of(disk, AOF) == data[:nbytes] and aside_of(disk) == data[nbytes:]
    assert failed > 5


def cut_at_every_operation(seed: int, images: int) -> int:
    """Cut the power at every operation of a rewind, a few times each; returns the number of distinct images."""
    rng = random.Random(seed)
    data = frames_of(closed_log(seed), AOF)
    lsn, nbytes = rng.choice(places(data)[:-1])
    disk = closed_log(seed)
    position = position_at(disk, lsn)
    seen: set[int] = set()

    def look(operation: str, path: Path) -> None:
        if operation not in CHANGES | SYNCS:
            return
        for image in new_images(disk, rng, images, seen):
            check(image, rng.random() < 0.5)

    def check(image: SimulatedDisk, reopened: bool) -> None:
        if reopened:
            assert recovered(image) >= lsn
        log = frames_of(image, AOF)
        assert data.startswith(log) and len(log) >= nbytes
        if log != data:
            assert aside_of(image) == data[nbytes:], "records are neither in the log nor aside"
        rewind(image, ROOT, UUID, position, ASIDE)
        assert recovered(image.synced()) == lsn
        assert frames_of(image, AOF) == data[:nbytes] and aside_of(image) == data[nbytes:]

    disk.before = look
    rewind(disk, ROOT, UUID, position, ASIDE)
    disk.before = None
    check(disk, True)
    return len(seen)


def test_every_power_cut_leaves_a_store_that_opens() -> None:
    assert sum(cut_at_every_operation(seed, images=4) for seed in range(3)) > 50


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", slow_and_soak(20, 200))
def test_many_more_power_cuts(count: int) -> None:
    for seed in new_seeds(count):
        cut_at_every_operation(seed, images=8)
