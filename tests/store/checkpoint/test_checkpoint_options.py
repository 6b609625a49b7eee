"""The options of an open: when checkpoints and snapshots are made, and how much of log and snapshots is kept."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import until

import tidelog
from tidelog import testing

NO_CHECKPOINTS: dict[str, Any] = {"checkpoint_bytes": 0, "save": ()}


def segments(path: Path) -> list[int]:
    return [int(name.stem) for name in sorted((path / "aof").glob("*.aof"))]


def snapshots(path: Path) -> list[int]:
    return sorted(int(each.name) for each in (path / "snapshots").glob("[0-9]" * 20))


def fill(db: tidelog.Store, count: int = 100) -> None:
    for number in range(count):
        db.xadd("s", {"n": number, "pad": "x" * 100})


def test_by_the_bytes_of_the_log(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", checkpoint_bytes=5000, save=()) as db:
        assert db.info()["checkpoint_lsn"] == 0
        fill(db)
        until(lambda: db.info()["checkpoint_lsn"] > 0)
        until(lambda: db.info()["bytes_since_checkpoint"] < 5000)


def test_by_time_and_changes(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", checkpoint_bytes=0, save=[(0.05, 10)]) as db:
        fill(db, 8)  # and the record of the life
        time.sleep(0.3)
        assert db.info()["checkpoint_lsn"] == 0
        fill(db, 2)
        until(lambda: db.info()["checkpoint_lsn"] == 11)


def test_never(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", **NO_CHECKPOINTS) as db:
        fill(db)
        time.sleep(0.3)
        assert db.info()["checkpoint_lsn"] == 0
    assert not (tmp_path / "s" / "checkpoint").exists()  # so short a tail is replayed in no time


def test_a_close_folds_a_long_tail(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", **NO_CHECKPOINTS) as db:
        db.xadd_many("s", [{"n": number, "pad": "x" * 100} for number in range(3000)])
        digest = db.digest()
    with tidelog.open(tmp_path / "s", fsync="no", **NO_CHECKPOINTS) as db:
        info = db.info()
        assert (info["bytes_since_checkpoint"], info["checkpoint_lsn"]) == (0, info["next_lsn"] - 1)
        assert db.digest() == digest


def test_nothing_changed_is_nothing_to_fold(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", **NO_CHECKPOINTS) as db:
        fill(db)
        first = db.checkpoint()
        written = (tmp_path / "s" / "checkpoint" / "data.mdb").stat().st_mtime_ns
        assert db.checkpoint() == first
        assert (tmp_path / "s" / "checkpoint" / "data.mdb").stat().st_mtime_ns == written


@pytest.mark.parametrize("every", [0.05, timedelta(milliseconds=50)])
def test_snapshots_by_themselves_and_how_many_stay(
    tmp_path: Path, every: float | timedelta
) -> None:
    path = tmp_path / "s"
    with tidelog.open(
        path, fsync="no", snapshot_every=every, keep_snapshots=2, **NO_CHECKPOINTS
    ) as db:
        seen: set[int] = set()
        while len(seen) < 4:
            fill(db, 5)
            before = len(seen)
            until(lambda: bool(set(snapshots(path)) - seen))
            seen |= set(snapshots(path))
            assert len(seen) > before
        until(lambda: len(snapshots(path)) <= 2)
        assert snapshots(path)[-1] == max(seen | set(snapshots(path)))


def test_all_snapshots_stay_unless_something_else_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, fsync="no", **NO_CHECKPOINTS) as db:
        made = []
        for _ in range(3):
            fill(db, 3)
            made.append(db.snapshot().lsn)
        assert snapshots(path) == made
        assert db.snapshot().lsn == made[-1]  # nothing changed: the one that is there


def test_segments_go_with_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, fsync="no", segment_bytes=4096, retain_bytes=0, **NO_CHECKPOINTS) as db:
        fill(db)
        assert len(segments(path)) > 3
        at = db.checkpoint()
        assert segments(path) == [max(first for first in segments(path) if first <= at + 1)]
        digest = db.digest()
    with tidelog.open(path, fsync="no") as db:
        assert db.digest() == digest and db.verify() == []


def test_so_many_bytes_of_the_log_stay(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(
        path, fsync="no", segment_bytes=4096, retain_bytes=8000, **NO_CHECKPOINTS
    ) as db:
        fill(db, 300)
        whole = segments(path)
        db.checkpoint()
        kept = segments(path)
        assert kept == whole[-len(kept) :] and len(kept) < len(whole)
        sizes = [each.stat().st_size for each in sorted((path / "aof").glob("*.aof"))]
        assert sum(sizes) >= 8000 > sum(sizes[1:]) - sizes[1]


def test_the_log_behind_the_oldest_snapshot_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with tidelog.open(
        path, fsync="no", segment_bytes=4096, retain_bytes=0, keep_snapshots=2, **NO_CHECKPOINTS
    ) as db:
        fill(db)
        first = db.snapshot().lsn
        fill(db)
        second = db.snapshot().lsn
        fill(db)
        db.checkpoint()
        assert segments(path)[0] <= first + 1 < segments(path)[1]
        db.snapshot()  # the first one goes, and with the next checkpoint what only it needed
        fill(db)
        db.checkpoint()
        assert snapshots(path)[0] == second
        assert segments(path)[0] <= second + 1 < segments(path)[1]


def test_what_is_young_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    clock = testing.Clock()
    with tidelog.open(
        path,
        fsync="no",
        segment_bytes=4096,
        retain_bytes=0,
        retain_seconds=60,
        clock=clock,
        **NO_CHECKPOINTS,
    ) as db:
        fill(db)
        clock.advance(50)
        fill(db)
        whole = segments(path)
        db.checkpoint()
        assert segments(path) == whole
        clock.advance(30)  # the first hundred are 80 seconds old by now, the others 30
        fill(db)
        db.checkpoint()
        kept = segments(path)
        # the segment in which the second hundred begin is the oldest
        assert 1 < kept[0] <= 102 and kept[1] > 102


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("memory_budget", 1000, "memory_budget must be an integer of at least 1048576, not 1000"),
        ("maxdisk", 1000, "maxdisk must be an integer of at least 1048576, not 1000"),
        ("memory_budget", "64M", "memory_budget must be an integer"),
        ("checkpoint_bytes", -1, "checkpoint_bytes must be an integer of at least 0, not -1"),
        ("checkpoint_bytes", True, "checkpoint_bytes must be an integer"),
        ("save", "3600 1", "save must be pairs"),
        ("save", [(60,)], "save must be pairs"),
        ("save", [(0, 1)], "the seconds of save must be a number of seconds above 0"),
        ("save", [(60, 0)], "the changes of save must be an integer of at least 1, not 0"),
        ("snapshot_every", 0, "snapshot_every must be a number of seconds above 0"),
        ("snapshot_every", float("nan"), "snapshot_every must be a number of seconds above 0"),
        ("keep_snapshots", -1, "keep_snapshots must be an integer of at least 0, not -1"),
        ("retain_bytes", 1.5, "retain_bytes must be an integer of at least 0, not 1.5"),
        ("retain_seconds", timedelta(0), "retain_seconds must be a number of seconds above 0"),
    ],
)
def test_an_option_that_makes_no_sense(tmp_path: Path, option: str, value: Any, text: str) -> None:
    with pytest.raises(tidelog.DataError, match=text):
        tidelog.open(tmp_path / "s", **{option: value})
    assert not (tmp_path / "s").exists()


def test_a_read_only_store_makes_none(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        fill(db, 1)
    with tidelog.open(tmp_path / "s", read_only=True) as db:
        for call in (db.checkpoint, db.snapshot, db.verify):
            with pytest.raises(tidelog.DataError, match="its writer makes checkpoints"):
                call()


def test_nor_one_on_a_disk_in_memory() -> None:
    from tidelog.disk.simulated import SimulatedDisk

    disk = SimulatedDisk()
    disk.mkdir(Path("/d"))
    with tidelog.open("/d/s", fsync="no", disk=disk) as db:
        fill(db, 1)
        with pytest.raises(tidelog.CheckpointFailed, match="simulated in memory"):
            db.checkpoint()


async def _all(path: Path) -> None:
    async with tidelog.aopen(path, fsync="no") as db:
        await db.xadd("s", {"n": 1})
        assert await db.checkpoint() == 2
        assert (await db.snapshot()).lsn == 2
        assert await db.verify() == []


def test_the_same_awaited(tmp_path: Path) -> None:
    import asyncio

    asyncio.run(_all(tmp_path / "s"))


def test_a_snapshot_is_a_store_to_look_into(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        fill(db)
        made = db.snapshot()
        digest = db.digest()
        fill(db)
    with tidelog.open(made.path, read_only=True) as copy:
        assert copy.digest() == digest and copy.xlen("s") == 100
        assert copy.refresh() == made.lsn
        with pytest.raises(tidelog.ReadOnlyError):
            copy.xadd("s", {"n": 1})
    with pytest.raises(tidelog.CannotOpen, match="is a snapshot"):
        tidelog.open(made.path)


def test_what_was_worked_off_behind_a_checkpoint_leaves_nothing_in_memory(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", **NO_CHECKPOINTS) as db:
        fill(db, 1000)
        db.checkpoint()
        for entry_id, _ in db.xrange("s"):
            db.xdel("s", entry_id)
        (stream,) = dict.values(inside.databases(db)[0].keys)
        assert not isinstance(stream, bytes) and stream.marks is not None
        assert (stream.length, stream.marks.now) == (0, {})
        digest = db.digest()
        db.checkpoint()
        assert db.verify() == []
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        assert db.digest() == digest
