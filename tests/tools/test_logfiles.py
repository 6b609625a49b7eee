"""Reading a log beside its writer."""

import threading
from pathlib import Path

import pytest
from tests.tools.made import T0, Made

import tidelog
from tidelog.aof.errors import Damage, MissingSegment
from tidelog.engine.effects import effect as e
from tidelog.tools.logfiles import LogFiles


def lsns(files: LogFiles) -> list[int]:
    return [frame.lsn for _, frame in files.new()]


def test_new_yields_every_frame_once(tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    files = LogFiles(made.write())
    assert lsns(files) == [1]
    assert lsns(files) == []
    made.unit(T0, (e.SET, 0, b"k", b"1", -1))
    made.unit(T0, (e.SET, 0, b"k", b"2", -1))
    made.write(zeros=1000)
    assert lsns(files) == [2, 3]
    made.unit(T0, (e.SET, 0, b"k", b"3", -1))
    made.roll(T0)
    made.write()
    assert lsns(files) == [4]
    made.unit(T0, (e.SET, 0, b"k", b"4", -1))
    made.write()
    assert lsns(files) == [5]
    assert lsns(files) == []


def test_new_goes_on_after_an_unfinished_frame(tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    made.unit(T0, (e.SET, 0, b"k", b"1", -1))
    files = LogFiles(made.write())
    made.cut(made.offsets[-1] + 30)
    assert lsns(files) == [1]
    made.write()
    assert lsns(files) == [2]


def test_an_empty_segment_that_the_next_life_replaces(tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    files = LogFiles(made.write())
    assert lsns(files) == []
    other = Made(tmp_path / "data")
    other.roll(T0 + 5, incarnation=0xB2)
    other.unit(T0 + 5, (e.EPOCH, 1, 0xB2))
    other.write()
    assert lsns(files) == [1]


def test_past_damage(made: Made) -> None:
    made.flip(150, number=0)
    made.flip(made.offsets[1] + 55)
    made.promise(made.lsn - 1, incarnation=0xB2)
    found = list(LogFiles(made.root).frames_past_damage())
    damage = [item.offset for _, item in found if isinstance(item, Damage)]
    assert damage == [133, made.offsets[1]]
    assert [item.lsn for _, item in found if not isinstance(item, Damage)] == [
        *(1, 3, 4, 6, 7),
        *(8, 12, 13),
    ]


def test_the_first_segment_is_missing(made: Made) -> None:
    made.path(0).unlink()
    with pytest.raises(MissingSegment):
        list(LogFiles(made.root).frames())


def test_a_reader_beside_a_busy_writer_sees_no_damage(tmp_path: Path) -> None:
    """The writer rolls segments and syncs all the time; the reader must never take that for damage."""
    root = tmp_path / "data"
    with tidelog.open(root, fsync="always", checkpoint_bytes=1 << 40, segment_bytes=4 << 20) as db:
        db.set("k", "v")
        stop = threading.Event()

        def write() -> None:
            value = b"x" * 50_000
            while not stop.is_set():
                for _ in range(20):
                    db.at("written").xadd("s", {"f": value}, maxlen=10)
                db.set("k", "v")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            files, seen = LogFiles(root), 0
            while len(files.survey()[1]) < 4:
                for _, frame in files.new():
                    assert frame.lsn == seen + 1
                    seen = frame.lsn + frame.count - 1
                assert [frame.lsn for _, frame in LogFiles(root).frames()][0] == 1
        finally:
            stop.set()
            writer.join()


def test_frames_before_a_missing_segment_that_was_shorter(tmp_path: Path) -> None:
    """The header behind the gap states the end of the missing segment, and not of the one before it."""
    made = Made(tmp_path / "db")
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    for n in range(5):
        made.unit(T0 + n, (e.SET, 0, b"k", b"%d" % n, -1))
    for n in range(5, 7):
        made.roll(T0 + n)
        made.unit(T0 + n, (e.SET, 0, b"k", b"%d" % n, -1))
    made.write()
    made.path(1).unlink()
    items = [item for _, item in LogFiles(made.root).frames_past_damage()]
    found = [item.lsn for item in items if not isinstance(item, Damage)]
    assert found == [1, 2, 3, 4, 5, 6, 8]
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert isinstance(damage, MissingSegment) and damage.expected_lsn == 7
