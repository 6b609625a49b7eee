"""A tail beside a writer: every frame once, at the cost of what is new."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.aof.counting import Counting
from tests.tools.made import T0, UUID, Made

import tidelog
from tidelog.aof import identity
from tidelog.aof.errors import CorruptFrame, Damage, MissingSegment, Vanished
from tidelog.aof.segment import Position
from tidelog.aof.tail import Tail
from tidelog.disk.real import RealDisk
from tidelog.engine.effects import effect as e
from tidelog.store.clock import SYSTEM
from tidelog.store.read_only import open_read_only
from tidelog.tools import logfiles

IDLE_BYTES = 16 << 10
IDLE_READS = 4


def made_at(root: Path, units: int = 3) -> Made:
    made = Made(root)
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    for n in range(units):
        made.unit(T0, (e.SET, 0, b"k", b"%d" % n, -1))
    made.write(zeros=1 << 20)
    return made


def tail_of(root: Path, position: Position | None = None) -> Tail:
    return Tail(RealDisk(), root / identity.AOF, UUID, position)


def taken(tail: Tail) -> list[int]:
    """The LSNs of the frames behind the tail's position, which is moved along."""
    lsns = []
    while (stretch := tail.look()) is not None:
        lsns += [fields[1] for fields in stretch.frames]
        assert stretch.behind(stretch.frames[-1]) == stretch.end
        tail.position = stretch.end
    return lsns


def test_a_look_costs_what_is_new(tmp_path: Path) -> None:
    """The prepared space of the segment is not read again and again."""
    disk = Counting()
    with tidelog.open(tmp_path / "s", fsync="no", segment_bytes=8 << 20) as db:
        db.xadd("s", {"n": 0})
        tail = Tail(disk, tmp_path / "s" / "aof", identity.read(disk, tmp_path / "s"))
        assert taken(tail) == [1, 2]
        for n in range(5):
            disk.take()
            assert taken(tail) == []
            assert disk.take() < IDLE_BYTES
            db.xadd("s", {"n": n})
            assert len(taken(tail)) == 1
            assert disk.take() < 2 * IDLE_BYTES


def test_following_and_refreshing_cost_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfiles, "RealDisk", Counting)
    disk = Counting()
    with tidelog.open(tmp_path / "s", fsync="no", segment_bytes=8 << 20) as db:
        db.xadd("s", {"n": 0})
        files = logfiles.LogFiles(tmp_path / "s")
        assert isinstance(files.disk, Counting)
        assert len(list(files.new())) == 2
        copy = open_read_only(disk, tmp_path / "s", SYSTEM)
        assert copy.refresh() == 2
        for counting in (disk, files.disk):
            counting.take()
        assert list(files.new()) == [] and copy.refresh() == 2
        assert 0 < disk.reads <= IDLE_READS and 0 < files.disk.reads <= IDLE_READS
        assert 0 < disk.take() < IDLE_BYTES and 0 < files.disk.take() < IDLE_BYTES
        db.xadd("s", {"n": 1})
        assert len(list(files.new())) == 1 and copy.refresh() == 3
        assert 0 < disk.take() < 2 * IDLE_BYTES and 0 < files.disk.take() < 2 * IDLE_BYTES


def test_a_look_is_bounded(tmp_path: Path) -> None:
    made = made_at(tmp_path, units=20)
    tail = tail_of(tmp_path)
    sizes = []
    while (stretch := tail.look(1)) is not None:
        sizes.append(len(stretch.frames))
        tail.position = stretch.end
    assert sizes == [1] * 21
    assert tail.position is not None and tail.position.lsn == made.lsn - 1


def test_watching_between_looks(tmp_path: Path) -> None:
    disk = Counting()
    made_at(tmp_path)
    tail = Tail(disk, tmp_path / identity.AOF, UUID)
    with tail.watching() as may_grow:
        assert may_grow(), "nobody has looked yet"
    assert len(taken(tail)) == 4 and tail.look() is None
    disk.take()
    with tail.watching() as may_grow:
        assert not may_grow() and not may_grow()
        assert (disk.opened, disk.reads) == (1, 2) and disk.take() < 200
        made_at(tmp_path, units=4)
        assert may_grow() and may_grow()
        assert disk.take() < 200
    assert taken(tail) == [5] and tail.look() is None
    next((tmp_path / identity.AOF).glob("*.aof")).unlink()
    with tail.watching() as may_grow:
        assert may_grow(), "a look finds out why the segment is gone"


def test_a_look_does_not_move(tmp_path: Path) -> None:
    made_at(tmp_path)
    tail = tail_of(tmp_path)
    first = tail.look()
    assert first is not None and tail.look() == first


def test_segments_that_are_rolled(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert taken(tail) == [1, 2, 3, 4]
    for life in range(3):
        for _ in range(2):
            made.roll(T0, incarnation=0xB0 + life)
            made.unit(T0, (e.SET, 0, b"k", b"more", -1))
            made.write(zeros=100)
        assert len(taken(tail)) == 2
    made.roll(T0)
    made.write()
    assert taken(tail) == []
    made.unit(T0, (e.SET, 0, b"k", b"more", -1))
    made.write()
    assert taken(tail) == [made.lsn - 1]


def test_a_frame_that_is_being_written(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    made.unit(T0, (e.SET, 0, b"k", b"a value of some length", -1))
    made.write()
    for size in (8, 40, 48, 60):
        made.write()
        made.cut(made.offsets[-1] + size)
        assert taken(tail) == []
        assert taken(tail) == []  # another look is as patient
    made.write()
    assert taken(tail) == [5]


def test_zeros_in_the_place_of_a_promised_frame(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    made.promise(5)
    with pytest.raises(CorruptFrame, match="DURABLE proves that records through LSN 5 existed"):
        tail.look()
    made.promise(4)
    assert taken(tail) == []


def test_a_promise_of_a_life_without_a_segment(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    made.promise(9, incarnation=0xC3)
    with pytest.raises(MissingSegment, match="segment that held the last of them is missing"):
        tail.look()


def test_damage_comes_behind_the_frames_before_it(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    made.promise(4)
    made.flip(made.offsets[-1] + 50)
    tail = tail_of(tmp_path)
    stretch = tail.look()
    assert stretch is not None and [fields[1] for fields in stretch.frames] == [1, 2, 3]
    tail.position = stretch.end
    for _ in range(2):
        with pytest.raises(CorruptFrame):
            tail.look()


def test_damage_far_behind_zeros_is_found_at_first(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    data = bytearray(made.path().read_bytes())
    last = slice(made.offsets[-1], made.offsets[-1] + 48)
    data[last] = bytes(48)
    made.path().write_bytes(data)
    made.promise(3)
    assert taken(tail_of(tmp_path)) == [1, 2, 3]  # unfinished, for all that anybody knows
    made.promise(4)
    with pytest.raises(CorruptFrame):
        taken(tail_of(tmp_path))


def test_records_that_were_read_and_cut_off(tmp_path: Path) -> None:
    """A power cut took back what was written, and recovery cut the segment there."""
    made = made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    made.cut(made.offsets[-1])
    with pytest.raises(Vanished):
        tail.look()


def test_the_next_life_after_a_cut(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    other = Made(tmp_path)
    other.roll(T0)
    other.unit(T0, (e.EPOCH, 1, 0xA1))
    other.unit(T0, (e.SET, 0, b"k", b"0", -1))
    other.roll(T0, incarnation=0xB2)
    for n in range(9):
        other.unit(T0, (e.SET, 0, b"k", b"other %d" % n, -1))
    other.write()
    assert other.path(0) == made.path()
    with pytest.raises(Vanished):
        tail.look()


def another_history(root: Path, life: int) -> Made:
    """A log with the same LSNs as that of `made_at`, and with other records."""
    other = Made(root)
    other.roll(T0, incarnation=life)
    other.unit(T0, (e.EPOCH, 1, life))
    for n in range(3):
        other.unit(T0, (e.SET, 0, b"k", b"other %d" % n, -1))
    return other


def test_another_history_goes_on_at_the_same_lsn(tmp_path: Path) -> None:
    made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    other = another_history(tmp_path, 0xA1)
    other.roll(T0)
    other.unit(T0, (e.SET, 0, b"k", b"more", -1))
    other.write()
    with pytest.raises(Vanished):
        tail.look()


def test_another_life_has_a_segment_of_the_same_name(tmp_path: Path) -> None:
    made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    another_history(tmp_path, 0xB2).write()
    with pytest.raises(Vanished):
        tail.look()


def test_segments_that_were_released(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    made.roll(T0)
    made.unit(T0, (e.SET, 0, b"k", b"more", -1))
    made.write()
    made.path(0).unlink()
    assert taken(tail) == [5]
    made.roll(T0)
    made.unit(T0, (e.SET, 0, b"k", b"more", -1))
    made.roll(T0)
    made.write()
    made.path(0).unlink()
    made.path(1).unlink()
    assert taken(tail) == [6]
    left_behind = tail_of(tmp_path, tail.position._replace(lsn=5) if tail.position else None)
    made.path(2).unlink()
    with pytest.raises(Vanished):
        left_behind.look()


def test_the_very_beginning(tmp_path: Path) -> None:
    """A tail at LSN 0 waits for the first segment, and does not begin with a later one."""
    (tmp_path / identity.AOF).mkdir()
    begin = Position(0, 0, 1, 80, 0)
    tail = tail_of(tmp_path, begin)
    (tmp_path / identity.AOF / "DURABLE").write_bytes(bytes(8192))
    assert tail.look() is None
    made = made_at(tmp_path)
    made.roll(T0)
    made.write()
    assert taken(tail) == [1, 2, 3, 4]
    made.path(0).unlink()
    with pytest.raises(Vanished):
        tail_of(tmp_path, begin).look()


def test_an_empty_segment_that_the_next_life_replaces(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    made.roll(T0, incarnation=0xB2)
    made.write()
    tail = tail_of(tmp_path)
    assert len(taken(tail)) == 4
    assert taken(tail) == []
    other = made_at(tmp_path)
    other.roll(T0, incarnation=0xC3)
    other.unit(T0, (e.EPOCH, 2, 0xC3))
    other.write()
    assert taken(tail) == [5]


def test_a_frame_longer_than_a_look(tmp_path: Path) -> None:
    made = made_at(tmp_path)
    made.unit(T0, (e.SET, 0, b"k", bytes(3 << 20), -1))
    made.unit(T0, (e.SET, 0, b"k", b"", -1))
    made.write()
    tail = tail_of(tmp_path)
    stretches = []
    while (stretch := tail.look(1 << 20)) is not None:
        stretches.append([fields[1] for fields in stretch.frames])
        tail.position = stretch.end
    assert stretches == [[1, 2, 3, 4, 5], [6]]


@pytest.mark.parametrize("seed", range(3))
def test_looks_at_any_time_see_the_whole_log(tmp_path: Path, seed: int) -> None:
    """Beside lives that roll, close and open: the tail has every frame of the log, in order."""
    print("seed", seed)
    rng = random.Random(seed)
    root = tmp_path / "s"
    tail: Tail | None = None
    seen: list[int] = []
    for _ in range(5):
        with tidelog.open(root, fsync=rng.choice(["no", "always"]), segment_bytes=4096) as db:
            for n in range(rng.randrange(60)):
                db.xadd("s", {"n": n, "pad": "x" * rng.randrange(200)})
                if tail is None:
                    tail = Tail(RealDisk(), root / "aof", identity.read(RealDisk(), root))
                if rng.random() < 0.3 and (stretch := tail.look(rng.randrange(1, 999))) is not None:
                    seen += [fields[1] for fields in stretch.frames]
                    tail.position = stretch.end
    assert tail is not None
    seen += taken(tail)
    assert seen == taken(Tail(RealDisk(), root / "aof", identity.read(RealDisk(), root)))


def test_any_flipped_byte(tmp_path: Path) -> None:
    """Any byte flipped in what was not read yet: a tail raises what a whole read raises, or waits as that does."""
    made = made_at(tmp_path, units=1)
    made.roll(T0, incarnation=0xB2)
    made.unit(T0, (e.EPOCH, 2, 0xB2))
    made.unit(T0, (e.SET, 0, b"k", b"last", -1))
    made.write(zeros=64)
    made.promise(3, incarnation=0xB2)
    start = tail_of(tmp_path)
    first = start.look(1)
    assert first is not None
    for number in (0, 1):
        for offset in range(0, made.path(number).stat().st_size, 3):
            made.flip(offset, number)
            outcomes: list[object] = []
            for position in (None, first.end):
                try:
                    outcomes.append(taken(tail_of(tmp_path, position))[-1:])
                except Damage as error:
                    outcomes.append(type(error).__name__)
                except Vanished:
                    outcomes.append("Vanished")
            whole, tail = outcomes
            if number == 1 or offset >= first.end.offset:
                assert tail == whole, (number, offset)
            made.flip(offset, number)
