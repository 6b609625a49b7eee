"""The streaming source, planned and read as Spark does it, without a JVM."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from tests.rounds import rest_slow

import tidelog
from tidelog import testing
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.log import stream

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
LIMITLESS = ReadAllAvailable()


class Query:
    """A query: its reader, and what Spark keeps of it."""

    def __init__(self, path: Path, **options: str) -> None:
        self.options = {"path": str(path), **options}
        self.offset: Any = None
        self.rows: list[dict[str, Any]] = []
        self.planned: tuple[Any, Any] | None = None
        self.restart()

    def restart(self) -> None:
        self.reader = stream.reader(self.options)
        if self.offset is None:
            self.offset = json.loads(json.dumps(self.reader.initialOffset()))

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Plan a batch. False if there is nothing new."""
        if limit is None:
            limit = self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(self.offset, limit)))
        if end == self.offset:
            return False
        self.planned = self.offset, end
        return True

    def run(self) -> list[dict[str, Any]]:
        """Read the planned batch, in another process as it were."""
        assert self.planned is not None
        start, end = self.planned
        rows = []
        for partition in self.reader.partitions(start, end):
            partition = pickle.loads(pickle.dumps(partition))
            worker = pickle.loads(pickle.dumps(self.reader))
            for batch in worker.read(partition):
                rows += batch.to_pylist()
        return rows

    def finish(self) -> None:
        assert self.planned is not None
        self.rows += self.run()
        self.offset = self.planned[1]
        self.reader.commit(self.offset)
        self.planned = None

    def all(self, limit: ReadLimit | None = None) -> list[Any]:
        """Read until nothing is new. Returns the values of the field `n` of the entries that came."""
        before = len(self.rows)
        while self.plan(limit):
            self.finish()
        return values(self.rows[before:])


def values(rows: list[dict[str, Any]]) -> list[int]:
    return [int(f["value"]) for row in rows for f in row["fields"] or () if f["name"] == b"n"]


def gaps(query: Query) -> list[dict[str, Any]]:
    return [json.loads(row["detail"]) for row in query.rows if row.get("event") == "gap"]


def add(db: tidelog.Store, numbers: range) -> None:
    for n in numbers:
        db.xadd("s", {"n": n, "pad": "x" * 50})


def last_lsn(db: tidelog.Store) -> int:
    return int(db.info()["next_lsn"]) - 1


def test_beside_a_writer(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        query = Query(tmp_path / "s")
        assert query.all() == []
        add(db, range(10))
        assert query.all() == list(range(10))
        assert query.all() == []
        add(db, range(10, 12))
        query.restart()
        assert query.all() == [10, 11]
        row = query.rows[-1]
        assert (row["db"], row["stream"], row["id"].count("-")) == (0, b"s", 1)


def test_a_planned_batch_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(10))
        query = Query(tmp_path / "s")
        assert query.plan()
        add(db, range(10, 20))
        first = query.run()
        query.restart()
        assert query.run() == first
        assert values(first) == list(range(10))


def test_limits_cut_at_the_end_of_units(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(5))
        with db.pipeline(transaction=True) as pipe:
            for n in (5, 6):
                pipe.xadd("s", {"n": n})
                pipe.set("k", n)
            pipe.execute()
        add(db, range(7, 12))
    query = Query(tmp_path / "s", maxOffsetsPerTrigger="3")
    sizes = []
    while query.plan():
        sizes.append(len(values(query.run())))
        query.finish()
    assert sizes == [2, 3, 2, 3, 2]  # the first record is the life's; the transaction is one unit
    assert values(query.rows) == list(range(12))
    query = Query(tmp_path / "s", maxBytesPerTrigger="1")
    sizes = []
    while query.plan():
        sizes.append(len(values(query.run())))
        query.finish()
    assert sizes == [0, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert Query(tmp_path / "s", maxBytesPerTrigger="1").all(LIMITLESS) == list(range(12))
    limits = {"maxOffsetsPerTrigger": "100", "maxBytesPerTrigger": "1"}
    assert isinstance(Query(tmp_path / "s", **limits).reader.getDefaultReadLimit(), ReadMaxRows)
    query = Query(tmp_path / "s", **limits)
    assert query.plan() and query.plan() and values(query.run()) == []
    query = Query(tmp_path / "s")
    assert query.plan(ReadMaxBytes(1)) and values(query.run()) == []


def test_partitions_share_a_batch(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS, segment_bytes=8192) as db:
        add(db, range(500))
    query = Query(tmp_path / "s", targetPartitionBytes="5000")
    assert query.plan() and query.planned is not None
    parts = [part.value for part in query.reader.partitions(*query.planned)]
    assert len(parts) > 5
    assert values(query.run()) == list(range(500))
    query.restart()
    assert [part.value for part in query.reader.partitions(*query.planned)] == parts


def test_available_now(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(10))
        query = Query(tmp_path / "s", maxOffsetsPerTrigger="4")
        query.reader.prepareForTriggerAvailableNow()
        add(db, range(10, 20))
        assert query.all() == list(range(10))
        query.restart()
        query.reader.prepareForTriggerAvailableNow()
        assert query.all() == list(range(10, 20))


def test_where_it_starts(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
        made = db.snapshot()
        add(db, range(10, 15))
        latest = Query(root, startingOffsets="latest")
        snapshot = Query(root, startingOffsets="snapshot")
        add(db, range(15, 20))
        assert latest.all() == list(range(15, 20))
        assert latest.reader.initialOffset() == latest.reader.initialOffset()
        assert snapshot.plan() and values(snapshot.run()) == list(range(10))
        assert snapshot.all() == list(range(20))
        assert Query(root, startingOffsets="earliest").all() == list(range(20))
        assert Query(root, startingOffsets=str(made.lsn + 1)).all() == list(range(10, 20))
        assert Query(root, startingOffsets="0").all() == list(range(20))
        end = last_lsn(db)
        assert Query(root, startingOffsets=str(end + 1)).all() == []
        with pytest.raises(TidelogSparkError, match=f"ends with LSN {end}"):
            Query(root, startingOffsets=str(end + 2))


def test_latest_is_found_once(tmp_path: Path) -> None:
    """Spark asks twice for the first offset, and nothing may be lost in between."""
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(3))
        reader = stream.reader({"path": str(tmp_path / "s"), "startingOffsets": "latest"})
        first = reader.initialOffset()
        add(db, range(3, 5))
        assert reader.initialOffset() == first


def test_a_start_by_time(tmp_path: Path) -> None:
    clock = testing.Clock()
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, clock=clock, segment_bytes=4096) as db:
        times = []
        for n in range(100):
            clock.advance(10)
            times.append(clock.time_ns() // 1_000_000)
            add(db, range(n, n + 1))
    for n in (0, 1, 50, 99):
        assert Query(root, startingOffsets=f"{times[n]}ms").all() == list(range(n, 100))
        assert Query(root, startingOffsets=f"{times[n] + 1}ms").all() == list(range(n + 1, 100))
    assert Query(root, startingOffsets="2001-01-01T00:00:00Z").all() == list(range(100))
    assert Query(root, startingOffsets="2101-01-01").all() == []


def test_level_fsynced(tmp_path: Path) -> None:
    """Records that a power cut can still take back are not read."""
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(5))
        db.barrier("fsynced")
        add(db, range(5, 9))
        query = Query(tmp_path / "s", level="fsynced")
        assert query.all() == list(range(5))
        assert Query(tmp_path / "s").all() == list(range(9))
        assert Query(tmp_path / "s", level="fsynced", startingOffsets="latest").offset["lsn"] == 6
        db.barrier("fsynced")
        assert query.all() == list(range(5, 9))


# --- losses


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
    assert query.all() == list(range(29, 100))


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


@pytest.mark.parametrize("seed", rest_slow(range(20), 3))
def test_a_query_that_is_stopped_and_a_writer_that_is_too(tmp_path: Path, seed: int) -> None:
    """Segments are rolled and released meanwhile: each entry once, or in a gap that says its LSNs."""
    print("seed", seed)
    rng = random.Random(seed)
    root = tmp_path / "s"
    options: dict[str, Any] = {**OPTIONS, "segment_bytes": 4096, "retain_bytes": 3 * 4096}
    tidelog.open(root, **options).close()
    query = Query(root, failOnDataLoss="false", table="events", maxOffsetsPerTrigger="17")
    n = 0
    for _ in range(8):
        with tidelog.open(root, **options) as db:
            for _ in range(rng.randrange(6)):
                count = rng.randrange(40)
                add(db, range(n, n + count))
                n += count
                match rng.randrange(4):
                    case 0:
                        db.checkpoint()
                    case 1:
                        query.restart()
                        if query.plan() and rng.random() < 0.7:
                            query.finish()
                    case 2 if query.plan():
                        query.run()  # and is killed before it has finished
    query.restart()
    query.all()
    lost = {lsn for gap in gaps(query) for lsn in range(gap["from_lsn"], gap["to_lsn"] + 1)}
    seen = [row["lsn"] for row in query.rows if row["event"] != "gap"]
    assert len(seen) == len(set(seen)) and lost.isdisjoint(seen)
    assert sorted([*seen, *lost]) == list(range(1, max([*seen, *lost, 0]) + 1))
    assert values(query.rows) == sorted(values(query.rows))


# --- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingoffset": "latest"},
            "unknown option startingoffset; did you mean startingOffsets?",
        ),
        ({"table": "groups"}, "option table: 'groups' is not allowed; give entries or events"),
        (
            {"startingOffsets": "soon"},
            "option startingOffsets: 'soon' is not allowed; give earliest",
        ),
        (
            {"startingOffsets": "snapshot", "table": "events"},
            "because table=events reads only the log",
        ),
        ({"level": "safe"}, "give written or fsynced"),
        ({"failOnDataLoss": "no"}, "give true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "a number from 1"),
        ({"path": "s3://bucket/store"}, "a streaming read cannot use a URL"),
        ({"path": ""}, "no store is named"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(TidelogSparkError) as caught:
        stream.reader({"path": str(tmp_path), **options})
    assert caught.value.code == "TIDELOG_OPTION" and text in str(caught.value)


def test_no_store(tmp_path: Path) -> None:
    reader = stream.reader({"path": str(tmp_path / "none")})
    with pytest.raises(TidelogSparkError, match=r"\[TIDELOG_STORE\].*none is not a tidelog store"):
        reader.initialOffset()


def test_damage_is_told(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
        query = Query(root)
    (path,) = (root / "aof").glob("*.aof")
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(data)
    with pytest.raises(TidelogSparkError, match=r"\[TIDELOG_DAMAGED\].*byte "):
        query.all()


def test_only_some_columns(tmp_path: Path) -> None:
    from tidelog.spark.source import schemas

    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(3))
    reader = stream.reader({"path": str(tmp_path / "s")}, {"ms": schemas.LONG, "id": schemas.TEXT})
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, LIMITLESS))
    (batch,) = reader.read(part)
    assert batch.schema.names == ["ms", "id"]
    with pytest.raises(TidelogSparkError, match="has no column other"):
        stream.reader({"path": "s"}, {"other": schemas.LONG})


def test_a_bookmark_keeps_what_was_not_committed(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        query = Query(root, bookmark="pipeline", maxOffsetsPerTrigger="50")
        for turn in range(5):
            add(db, range(turn * 100, turn * 100 + 100))
            db.checkpoint()
            assert query.plan()
            query.finish()
        assert query.all() == list(range(249, 500))
        assert values(query.rows) == list(range(500))
        add(db, range(500, 600))
        db.checkpoint()
        assert min(int(path.stem) for path in (root / "aof").glob("*.aof")) > 450
    with pytest.raises(TidelogSparkError, match="option bookmark"):
        Query(root, bookmark="../x")
