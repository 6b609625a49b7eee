"""The streaming source, planned and read as Spark does it, without a JVM."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.aof.counting import Counting
from tests.rounds import rest_slow
from tests.spark.query import OPTIONS, Query, add, gaps, last_lsn, values

import tidelog
from tidelog import testing
from tidelog.aof.tail import Tail
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.log import offsets, stream

LIMITLESS = ReadAllAvailable()
MOST = {"targetPartitionBytes": 20_000, "maxOffsetsPerTrigger": 300, "maxBytesPerTrigger": 30_000}


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


def when_waiting(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> list[float]:
    """Let queries wait, and do something when one does. Returns how long each wait was."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        do()

    monkeypatch.setattr(stream, "_WAIT_S", 60.0)
    monkeypatch.setattr(stream, "sleep", sleep)
    return waited


@pytest.mark.parametrize("level", ["written", "fsynced"])
def test_a_question_waits_for_the_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Spark asks again every 10 ms as long as nothing is new, and a question costs it much."""
    with tidelog.open(tmp_path / "s", **{**OPTIONS, "fsync": "always"}) as db:
        add(db, range(3))
        query = Query(tmp_path / "s", level=level)
        assert query.all() == [0, 1, 2]
        waited = when_waiting(monkeypatch, lambda: add(db, range(3, 4)))
        assert query.plan(), "a record that comes meanwhile is the answer to the same question"
        assert len(waited) == 1
        query.finish()
        assert values(query.rows) == [0, 1, 2, 3]


def test_a_question_that_waits_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(3))
        query = Query(tmp_path / "s")
        query.all()
        clock = iter(range(1000))
        monkeypatch.setattr(stream, "monotonic", lambda: 10.0 * next(clock))
        waited = when_waiting(monkeypatch, lambda: None)
        assert not query.plan()
        assert len(waited) == 5


def test_what_is_released_while_a_question_waits_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(3))
        query = Query(root)
        query.all()

        def release() -> None:
            add(db, range(3, 300))
            db.checkpoint()

        when_waiting(monkeypatch, release)
        with pytest.raises(TidelogSparkError, match="TIDELOG_LOSS_RELEASED"):
            query.plan()


def test_a_writer_that_releases_segments_as_fast_as_they_are_found_ends_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(3))
        query = Query(root, failOnDataLoss="false")
        query.all()
        begun, walk = iter(range(3, 3000, 300)), stream._walk

        def walk_late(*args: Any) -> Any:
            number = next(begun)
            if number < 2400:
                add(db, range(number, number + 300))
                db.checkpoint()
            return walk(*args)

        monkeypatch.setattr(stream, "_walk", walk_late)
        add(db, range(3))
        assert query.plan()


def test_a_query_that_takes_what_is_there_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(3))
        query = Query(tmp_path / "s")
        waited = when_waiting(monkeypatch, lambda: add(db, range(9)))
        query.reader.prepareForTriggerAvailableNow()
        assert query.all() == [0, 1, 2]
        assert not waited


@pytest.mark.parametrize("target", ["1", "3000", "2000000", "16777216"])
def test_partitions_of_any_size(tmp_path: Path, target: str) -> None:
    """A log of some MiB is planned by the MiB where no partition ends there."""
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        for start in range(0, 3000, 300):
            with db.pipeline(transaction=True) as pipe:
                for n in range(start, start + 300):
                    pipe.xadd("s", {"n": n, "filling": "x" * 1000})
                pipe.execute()
    query = Query(tmp_path / "s", targetPartitionBytes=target)
    assert query.all() == list(range(3000))
    sizes = {"1": 11, "3000": 10, "2000000": 2, "16777216": 1}
    whole = query.reader.partitions(query.reader.initialOffset(), query.offset)
    assert len(whole) == sizes[target]
    limited = Query(tmp_path / "s", maxOffsetsPerTrigger="2399")
    counts = []
    while limited.plan():
        counts.append(len(values(limited.run())))
        limited.finish()
    assert counts == [2100, 900]


def test_batches_end_where_frames_do_however_these_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planner that skims the frames that are proven makes the partitions of one that reads them."""
    with tidelog.open(tmp_path / "s", **OPTIONS, segment_bytes=8192) as db:
        add(db, range(150))
    rng = random.Random(18)
    limits = [{"targetPartitionBytes": "500"}, {"targetPartitionBytes": "3000"}]
    for _ in range(4):
        limits.append({name: str(rng.randrange(most // 8, most)) for name, most in MOST.items()})

    def planned(options: dict[str, str]) -> list[object]:
        query = Query(tmp_path / "s", **options)
        query.reader.prepareForTriggerAvailableNow()
        found: list[object] = []
        while query.plan() and query.planned is not None:
            found += [part.value for part in query.reader.partitions(*query.planned)]
            query.finish()
        return found

    skims = 0

    def counted(tail: Tail, nbytes: int) -> object:
        nonlocal skims
        skims += (found := skim(tail, nbytes)) is not None
        return found

    skim = Tail.skim
    for each in limits:
        found = []
        for way in (lambda tail, nbytes: None, counted):
            monkeypatch.setattr(Tail, "skim", way)
            monkeypatch.setattr(stream, "_LOOK_BYTES", rng.choice((1, 200, 4000)))
            found.append(planned(each))
        assert found[0] == found[1], each
    assert skims > 30


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


@pytest.mark.parametrize("starting", ["earliest", "latest", "snapshot"])
def test_a_first_batch_that_is_planned_is_the_same_after_a_restart(
    tmp_path: Path, starting: str
) -> None:
    """Spark asks again where the query begins. By then the answer is another one."""
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(20))
        db.snapshot()
        query = Query(root, startingOffsets=starting, bookmark="first")
        add(db, range(20, 30))
        assert query.plan()
        first = query.run()
        add(db, range(30, 200))
        db.snapshot()
        query.restart()
        assert query.run() == first
        query.finish()
        query.all()
        begun = 20 if starting == "latest" else 0
        assert values(query.rows) == list(range(begun, 200))


def test_a_snapshot_is_held_until_its_entries_are_committed(tmp_path: Path) -> None:
    """And with it the log behind it."""
    root = tmp_path / "s"
    options = {**OPTIONS, "segment_bytes": 4096, "retain_bytes": 0, "keep_snapshots": 1}
    with tidelog.open(root, **options) as db:
        add(db, range(10))
        made = db.snapshot()
        query = Query(root, startingOffsets="snapshot")

        def go_on(n: int) -> None:
            add(db, range(n, n + 100))
            db.snapshot()

        go_on(10)
        assert query.plan() and made.path.exists()
        go_on(110)
        query.finish()
        assert query.plan()
        query.finish()
        assert values(query.rows) == list(range(210))
        go_on(210)
        assert not made.path.exists()


def test_a_snapshot_that_is_pruned_while_the_query_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, keep_snapshots=1) as db:
        add(db, range(5))
        db.snapshot()

        def then_pruned(paths: tuple[str, ...], which: str) -> tuple[str, ...]:
            answer = resolve(paths, which)
            if not turns:
                turns.append(1)
                add(db, range(5, 8))
                db.snapshot()
            return answer

        turns: list[int] = []
        monkeypatch.setattr(stream, "resolve", then_pruned)
        query = Query(root, startingOffsets="snapshot")
        assert turns and query.plan() and values(query.run()) == list(range(8))


def test_a_planned_snapshot_that_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(5))
        made = db.snapshot()
    query = Query(root, startingOffsets="snapshot")
    assert query.plan()
    shutil.rmtree(made.path)
    with pytest.raises(TidelogSparkError, match=r"\[TIDELOG_SNAPSHOT\].* is gone"):
        query.run()


@pytest.mark.parametrize("seed", rest_slow(range(20), 3))
def test_a_start_with_a_snapshot_beside_a_busy_writer(tmp_path: Path, seed: int) -> None:
    """Each entry is in the snapshot or comes behind it, whenever the query begins and is stopped."""
    print("seed", seed)
    rng = random.Random(seed)
    root = tmp_path / "s"
    ended = threading.Event()
    added = 0

    def write(db: tidelog.Store) -> None:
        nonlocal added
        turns = random.Random(seed)
        while not ended.is_set():
            count = turns.randrange(1, 40)
            add(db, range(added, added + count))
            added += count
            if turns.random() < 0.1:
                db.snapshot()

    options = {**OPTIONS, "segment_bytes": 4096, "retain_bytes": 0, "keep_snapshots": 1}
    with tidelog.open(root, **options) as db:
        db.snapshot()
        writer = threading.Thread(target=write, args=(db,))
        writer.start()
        try:
            for _ in range(6):
                query = Query(
                    root, startingOffsets="snapshot", bookmark="q", maxOffsetsPerTrigger="50"
                )
                for _ in range(rng.randrange(1, 12)):
                    if rng.random() < 0.3:
                        query.restart()
                    if query.plan() and rng.random() < 0.7:
                        query.finish()
                whole = values(query.rows)
                assert sorted(whole) == list(range(len(whole)))
        finally:
            ended.set()
            writer.join()
        query.all()
    assert sorted(values(query.rows)) == list(range(added))


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
    assert sizes == [3, 2, 3, 3, 1]  # the transaction is one unit
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


@pytest.mark.parametrize("segment_bytes", [4096, 8 << 20])
def test_an_idle_query_reads_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """A question waits, and looks at few bytes meanwhile."""
    disks: list[Counting] = []
    looks = 12

    def disk() -> Counting:
        disks.append(Counting())
        return disks[-1]

    monkeypatch.setattr(offsets, "RealDisk", disk)
    with tidelog.open(tmp_path / "s", **OPTIONS, segment_bytes=segment_bytes) as db:
        query = Query(tmp_path / "s")
        for n in range(3):
            add(db, range(n * 100, n * 100 + 100))
            assert query.all() == list(range(n * 100, n * 100 + 100))
            for each in disks:
                each.take()
            with monkeypatch.context() as waiting:
                clock = iter(range(1000))
                waiting.setattr(stream, "monotonic", lambda: 60.0 / looks * next(clock))
                waited = when_waiting(waiting, lambda: None)
                assert not query.plan()
            assert len(waited) == looks - 1
            assert sum(each.opened for each in disks) <= 5
            assert 0 < sum(each.reads for each in disks) <= 5 + looks
            assert sum(each.take() for each in disks) < 16 << 10


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


def test_a_start_before_the_beginning_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = testing.Clock()
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, clock=clock, segment_bytes=4096, retain_bytes=0) as db:
        for n in range(100):
            clock.advance(10)
            add(db, range(n, n + 1))
        began = clock.time_ns() // 1_000_000
        db.checkpoint()
        clock.advance(10)
        add(db, range(100, 103))
        first = Query(root).offset["lsn"] + 1
        rest = Query(root).all()
        assert 0 < len(rest) < 100
        text = rf"\[TIDELOG_LOSS_RELEASED\] .* begins with LSN {first}, written since .* since 2001-01-01T00:00:00.000Z"
        for start in ("2001-01-01", "978307200000ms"):
            with pytest.raises(TidelogSparkError, match=text):
                Query(root, startingOffsets=start)
            caplog.clear()
            assert Query(root, startingOffsets=start, failOnDataLoss="false").all() == rest
            (line,) = caplog.messages
            assert line.endswith(f"the query starts with LSN {first}")
        assert Query(root, startingOffsets=f"{began + 10}ms").all() == [100, 101, 102]
        caplog.clear()
        assert Query(root, startingOffsets="2101-01-01").all() == [] == caplog.messages


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
    assert sorted([*seen, *lost]) == list(range(query.begun["lsn"] + 1, max([*seen, *lost, 0]) + 1))
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


def test_damage_that_a_plan_passed_is_told_by_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_LOOK_BYTES", 1)
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096) as db:
        add(db, range(100))
        query = Query(root)
    path = sorted((root / "aof").glob("*.aof"))[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert query.plan()
    with pytest.raises(TidelogSparkError, match=rf"\[TIDELOG_DAMAGED\].*{path.name}.*byte "):
        query.run()


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
        assert query.all() == list(range(250, 500))
        assert values(query.rows) == list(range(500))
        add(db, range(500, 600))
        db.checkpoint()
        assert min(int(path.stem) for path in (root / "aof").glob("*.aof")) > 450
    with pytest.raises(TidelogSparkError, match="option bookmark"):
        Query(root, bookmark="../x")
