"""A query reports records that it cannot read, or has read in vain, as one of three losses, with their LSNs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.query import OPTIONS, Query, add, gaps, last_lsn, values

import tidelog
from tidelog.aof import bookmarks, identity
from tidelog.aof.segment import End, SegmentHeader, file_name
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.log import stream
from tidelog.spark.source.log.offsets import Log


def test_released(tmp_path: Path) -> None:
    root = tmp_path / "s"
    tidelog.open(root, **OPTIONS).close()
    strict, loose = Query(root), Query(root, failOnDataLoss="false", table="events")
    entries = Query(root, failOnDataLoss="false")
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(10))
        at = last_lsn(db)
        for query in (strict, loose, entries):
            assert query.all() == list(range(10))
        add(db, range(10, 200))
        db.checkpoint()
        add(db, range(200, 210))
        first = min(int(path.stem) for path in (root / "aof").glob("*.aof"))
        assert first > at + 1
        text = rf"\[TIDELOG_LOSS_RELEASED\].* LSN {at + 1} to {first - 1} "
        with pytest.raises(TidelogSparkError, match=text):
            strict.plan()
        assert loose.plan()
        once = loose.run()
        loose.restart()
        again = loose.run()
        assert [{**row, "ts": None} for row in again] == [{**row, "ts": None} for row in once]
        assert loose.all() == entries.all() == list(range(first - 2, 210))
        assert gaps(loose) == [{"reason": "released", "from_lsn": at + 1, "to_lsn": first - 1}]
        add(db, range(210, 215))
        assert loose.all() == entries.all() == list(range(210, 215))


def power_cut(root: Path, db: tidelog.Store, change: Callable[[], None]) -> None:
    """Everything that `change` does is taken back."""
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    change()
    db.close()
    shutil.rmtree(root)
    copy.rename(root)


@pytest.mark.parametrize("more", [0, 3, 30])
@pytest.mark.parametrize("segment_bytes", [4096, 1 << 20])
def test_rewound_by_a_power_cut(tmp_path: Path, more: int, segment_bytes: int) -> None:
    root = tmp_path / "s"
    db = tidelog.open(root, **OPTIONS, segment_bytes=segment_bytes)
    strict, loose = Query(root), Query(root, failOnDataLoss="false", table="events")
    add(db, range(40))
    at = last_lsn(db)
    assert loose.all() == list(range(40))

    def change() -> None:
        add(db, range(40, 60))
        assert loose.all() == list(range(40, 60))
        assert strict.all() == list(range(60))

    power_cut(root, db, change)
    with tidelog.open(root, **OPTIONS, segment_bytes=segment_bytes) as db:
        add(db, range(100, 100 + more))
        text = rf"\[TIDELOG_LOSS_REWOUND\] LSN {at + 1} to {at + 20}, which the query has read"
        with pytest.raises(TidelogSparkError, match=text):
            strict.plan()
        strict.restart()
        with pytest.raises(TidelogSparkError, match=text):
            strict.plan()
        assert loose.all() == list(range(100, 100 + more))
        assert gaps(loose) == [{"reason": "rewound", "from_lsn": at + 1, "to_lsn": at + 20}]


@pytest.mark.parametrize("more", [1, 10, 30])
@pytest.mark.parametrize("fold", [False, True])
def test_rewound_by_a_restore(tmp_path: Path, more: int, fold: bool) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
        made = db.snapshot()
    with tidelog.open(root, **OPTIONS) as db:  # a life that the restored store does not have
        add(db, range(10, 20))
        last = last_lsn(db)
    strict, loose = Query(root), Query(root, failOnDataLoss="false", table="events")
    assert loose.all() == strict.all() == list(range(20))
    restore(RealDisk(), made.path, tmp_path / "restored")
    shutil.rmtree(root)
    (tmp_path / "restored").rename(root)
    with tidelog.open(root, **OPTIONS, retain_bytes=0) as db:
        add(db, range(100, 100 + more))
        if fold:
            db.checkpoint()
        text = rf"\[TIDELOG_LOSS_REWOUND\] LSN {made.lsn + 1} to {last}, "
        with pytest.raises(TidelogSparkError, match=text):
            strict.plan()
        assert loose.all() == list(range(100, 100 + more))
        assert gaps(loose) == [{"reason": "rewound", "from_lsn": made.lsn + 1, "to_lsn": last}]


def test_another_store(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
    strict, loose = Query(root), Query(root, failOnDataLoss="false", table="events")
    assert loose.all() == strict.all() == list(range(10))
    shutil.rmtree(root)
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(20, 30))
    with pytest.raises(TidelogSparkError, match=r"\[TIDELOG_LOSS_OTHER_STORE\].*another store now"):
        strict.plan()
    assert loose.all() == list(range(20, 30))
    assert [gap["reason"] for gap in gaps(loose)] == ["other store"]


def test_hints_may_be_wrong(tmp_path: Path) -> None:
    """Segment and byte of an offset only say where to look first: a follower has segments of its own."""
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096) as db:
        add(db, range(100))
    query = Query(root, maxOffsetsPerTrigger="30")
    assert query.plan()
    query.finish()
    query.offset |= {"segment": 5, "byte": 4711}
    query.restart()
    assert query.all() == list(range(30, 100))


def test_what_was_planned_is_gone_when_it_is_read(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(100))
        query = Query(root)
        assert query.plan() and query.planned is not None
        parts = query.reader.partitions(*query.planned)
        add(db, range(100, 200))
        db.checkpoint()
        with pytest.raises(TidelogSparkError, match="TIDELOG_LOSS_RELEASED"):
            for part in parts:
                list(query.reader.read(part))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_what_was_planned_is_released_while_its_partitions_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(100))
        query = Query(root, failOnDataLoss=fail)
        assert query.plan()
        query.restart()  # it forgets where the partitions end
        found = stream._walk
        times = 0

        def walk(*args: Any) -> Any:
            nonlocal times
            times += 1
            if times == 1:
                add(db, range(100, 200))
                db.checkpoint()
            return found(*args)

        monkeypatch.setattr(stream, "_walk", walk)
        assert query.planned is not None
        if fail == "true":
            with pytest.raises(TidelogSparkError, match="TIDELOG_LOSS_RELEASED"):
                query.reader.partitions(*query.planned)
        else:
            assert query.reader.partitions(*query.planned) == []
        assert times == 1


def test_a_frame_with_the_same_lsn_and_another_checksum(tmp_path: Path) -> None:
    """It is another record, even in a life that the query knows."""
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096) as db:
        add(db, range(100))
    query = Query(root, maxOffsetsPerTrigger="30")
    assert query.plan()
    query.finish()
    for hints in ({}, {"segment": 5, "byte": 4711}):
        query.offset |= {**hints, "crc": "00000000"}
        query.restart()
        with pytest.raises(TidelogSparkError, match=r"LOSS_REWOUND\] LSN 31 to 31,"):
            query.plan()


def test_an_idle_query_notices_a_loss(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
        made = db.snapshot()
        add(db, range(10, 20))
        query, other = Query(root), Query(root)
        assert query.all() == other.all() == list(range(20))
        assert not query.plan() and not other.plan()
    restore(RealDisk(), made.path, tmp_path / "restored")
    shutil.rmtree(root)
    (tmp_path / "restored").rename(root)
    with pytest.raises(TidelogSparkError, match=r"LOSS_REWOUND\] LSN 12 to 21,"):
        query.plan()
    shutil.rmtree(root)
    tidelog.open(root, **OPTIONS).close()
    with pytest.raises(TidelogSparkError, match="LOSS_OTHER_STORE"):
        other.plan()


# --- found by a task, after the batch was planned


def planned(query: Query) -> list[Any]:
    """The partitions of the next batch."""
    assert query.plan() and query.planned is not None
    return list(query.reader.partitions(*query.planned))


def test_a_task_whose_records_were_taken_back(tmp_path: Path) -> None:
    root = tmp_path / "s"
    options = {**OPTIONS, "segment_bytes": 4096}
    db = tidelog.open(root, **options)
    add(db, range(10))
    parts: list[Any] = []
    query = Query(root, failOnDataLoss="false")

    def change() -> None:
        add(db, range(10, 200))
        parts.extend(planned(query))

    power_cut(root, db, change)
    with tidelog.open(root, **options) as db:
        add(db, range(100, 130))
        with pytest.raises(TidelogSparkError, match=r"\[TIDELOG_LOSS_REWOUND\] LSN 12 to 201"):
            for part in parts:
                list(query.reader.read(part))
        query.restart()
        # the batch, planned again, and what follows
        assert query.all() == [*range(10), *range(100, 130)]


def test_a_task_whose_store_is_another_one(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
    query = Query(root)
    (part,) = planned(query)
    shutil.rmtree(root)
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(20))
    with pytest.raises(TidelogSparkError, match="TIDELOG_LOSS_OTHER_STORE"):
        list(query.reader.read(part))


def test_a_task_whose_records_were_released_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(100))
        query = Query(root, failOnDataLoss="false", table="events", targetPartitionBytes="3000")
        parts = planned(query)
        assert len(parts) > 3 and query.planned is not None
        db.checkpoint()
        add(db, range(100, 200))
        first = min(int(path.stem) for path in (root / "aof").glob("*.aof"))
        assert 1 < first < 101
        for part in parts:
            for batch in query.reader.read(part):
                query.rows += batch.to_pylist()
        lost = [lsn for gap in gaps(query) for lsn in range(gap["from_lsn"], gap["to_lsn"] + 1)]
        assert lost == list(range(1, first))
        assert values(query.rows) == list(range(first - 2, 100))
        query.offset, query.finished = query.planned[1], 1
        assert query.all() == list(range(100, 200))


# --- which one it is


def test_gaps_of_two_batches_do_not_overlap(tmp_path: Path) -> None:
    """All of a planned batch is released, and more."""
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(10))
        query = Query(root, failOnDataLoss="false", table="events", startingOffsets="3")
        assert query.plan()
        add(db, range(10, 200))
        db.checkpoint()
        add(db, range(200, 210))
        first = min(int(path.stem) for path in (root / "aof").glob("*.aof"))
        query.finish()
        query.all()
    assert gaps(query) == [
        {"reason": "released", "from_lsn": 3, "to_lsn": 11},
        {"reason": "released", "from_lsn": 12, "to_lsn": first - 1},
    ]
    assert values(query.rows) == list(range(first - 2, 210))


def test_the_new_history_is_released_too(tmp_path: Path) -> None:
    """The records that came instead of those that were taken back are named as well."""
    root = tmp_path / "s"
    options = {**OPTIONS, "segment_bytes": 4096, "retain_bytes": 0}
    db = tidelog.open(root, **options)
    strict, loose = Query(root), Query(root, failOnDataLoss="false", table="events")
    add(db, range(10))

    def change() -> None:
        add(db, range(10, 20))
        assert loose.all() == strict.all() == list(range(20))

    power_cut(root, db, change)
    with tidelog.open(root, **options) as db:
        add(db, range(100, 300))
        db.checkpoint()
        add(db, range(300, 310))
        first = min(int(path.stem) for path in (root / "aof").glob("*.aof"))
        text = rf"LOSS_REWOUND\] LSN 12 to 21, .* and LSN 12 to {first - 1}, which came instead, are released"
        with pytest.raises(TidelogSparkError, match=text):
            strict.plan()
        at = len(loose.rows)
        loose.all()
    assert gaps(loose) == [
        {"reason": "rewound", "from_lsn": 12, "to_lsn": 21},
        {"reason": "released", "from_lsn": 12, "to_lsn": first - 1},
    ]
    assert values(loose.rows[at:]) == list(range(first + 87, 310))  # LSN 13 has 100


@pytest.mark.parametrize("starting", ["latest", "22", "2101-01-01"])
def test_a_position_in_a_life_without_records(tmp_path: Path, starting: str) -> None:
    """Nobody knows this life later, and nothing of it was read: the records behind it were released, not taken back."""
    root = tmp_path / "s"
    options = {**OPTIONS, "segment_bytes": 4096, "retain_bytes": 0}
    with tidelog.open(root, **options) as db:
        add(db, range(20))
    log = Log(root)
    lsn, crc, _, byte, _ = log.latest()
    header = SegmentHeader(log.uuid, 0xB2, lsn + 1, 1, End(lsn, byte, crc))
    (root / "aof" / file_name(lsn + 1)).write_bytes(header.pack())  # its process was killed then
    query = Query(root, startingOffsets=starting)
    with tidelog.open(root, **options) as db:
        add(db, range(20, 25))
        assert query.plan()
        assert values(query.run()) == list(range(20, 25))
        add(db, range(25, 200))
        db.checkpoint()
        add(db, range(200, 201))
        with pytest.raises(
            TidelogSparkError, match=r"\[TIDELOG_LOSS_RELEASED\].* released LSN 22 to"
        ):
            query.plan()


@pytest.mark.parametrize("restored", [True, False])
def test_a_bookmark_after_a_loss(tmp_path: Path, restored: bool) -> None:
    """It says what the query needs of the log that is there now."""
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
        made = db.snapshot()
        add(db, range(10, 20))
        query = Query(root, failOnDataLoss="false", bookmark="q")
        assert query.all() == list(range(20))
        committed = query.offset
    if restored:
        restore(RealDisk(), made.path, tmp_path / "restored")
        shutil.rmtree(root)
        (tmp_path / "restored").rename(root)
    else:
        shutil.rmtree(root)
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(50, 55))
        if not restored:
            query.reader.commit(committed)
            assert not (root / "bookmarks").exists()
        assert query.plan()
        uuid = identity.read(RealDisk(), root)
        (mark,) = bookmarks.bookmarks(RealDisk(), root, uuid)[0]
        assert mark.lsn == (made.lsn if restored else 0)
        query.finish()
        assert values(query.rows)[20:] == list(range(50, 55))
