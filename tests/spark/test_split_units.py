"""maxOffsetsPerTrigger counts rows: a unit that has more of them than a batch may have is read in several batches."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.rounds import rest_slow
from tests.spark.query import OPTIONS, Query, add, gaps, last_lsn, values

import tidelog
from tidelog.spark.errors import TidelogSparkError

NAMES_OF_AN_OFFSET = {"uuid", "life", "lsn", "crc", "segment", "byte"}


def many(db: tidelog.Store, numbers: range) -> None:
    """One unit."""
    db.xadd_many("s", ({"n": n} for n in numbers))


def batches(query: Query, *, restart: bool = False) -> list[list[dict[str, Any]]]:
    """The rows of each batch that is left."""
    found = []
    while query.plan():
        if restart:
            query.restart()
        found.append(query.run())
        query.finish()
    return found


@pytest.mark.parametrize("restart", [False, True])
def test_a_large_unit_is_split(tmp_path: Path, restart: bool) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        add(db, range(5))
        many(db, range(5, 1005))
        add(db, range(1005, 1008))
    query = Query(tmp_path / "s", maxOffsetsPerTrigger="300")
    found = batches(query, restart=restart)
    assert [len(rows) for rows in found] == [5, 300, 300, 300, 103]
    assert values(query.rows) == list(range(1008))


def test_an_offset_behind_a_unit_is_the_one_of_a_query_without_a_limit(tmp_path: Path) -> None:
    """So a checkpoint says what it said before limits split units."""
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        many(db, range(100))
    whole = Query(tmp_path / "s")
    whole.all()
    limited = Query(tmp_path / "s", maxOffsetsPerTrigger="60")
    assert limited.plan()
    limited.finish()
    assert set(limited.offset) == NAMES_OF_AN_OFFSET | {"begun", "within"}
    assert limited.plan()
    limited.finish()
    assert limited.offset == {name: whole.offset[name] for name in NAMES_OF_AN_OFFSET}


def test_a_batch_that_ends_inside_a_unit_is_the_same_when_it_is_run_again(tmp_path: Path) -> None:
    options = {"targetPartitionBytes": "2000", "maxOffsetsPerTrigger": "150"}
    with tidelog.open(tmp_path / "s", **OPTIONS, segment_bytes=4096) as db:
        query = Query(tmp_path / "s", **options)
        for start in (0, 1000):
            many(db, range(start, start + 200))
            add(db, range(start + 200, start + 300))
        wanted = [n for start in (0, 1000) for n in range(start, start + 300)]
        while query.plan():
            assert query.planned is not None
            first = query.run()
            parts = [part.value for part in query.reader.partitions(*query.planned)]
            query.restart()
            assert query.run() == first
            assert [part.value for part in query.reader.partitions(*query.planned)] == parts
            query.finish()
    assert values(query.rows) == wanted


def test_another_table_goes_on_at_the_same_entry(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db, db.pipeline(transaction=True) as pipe:
        db.xgroup_create("s", "g", mkstream=True)
        pipe.set("k", "v")
        for n in range(20):
            pipe.xadd("s", {"n": n})
        pipe.execute()
    query = Query(tmp_path / "s", maxOffsetsPerTrigger="7")
    assert query.plan()
    query.finish()
    query.options["table"] = "events"
    query.restart()
    assert query.all() == list(range(7, 20))


def cut_inside_a_unit(root: Path, more: int) -> tuple[int, list[Query]]:
    """Two queries have read 40 of 100 entries of a unit, which a power cut takes back. A new life adds `more` entries.

    Returns the last LSN that stays.
    """
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(10))
        at = last_lsn(db)
        copy = root.with_name("copy")
        shutil.copytree(root, copy)
        many(db, range(10, 110))
        limit = {"maxOffsetsPerTrigger": "40"}
        queries = [
            Query(root, **limit),
            Query(root, **limit, failOnDataLoss="false", table="events"),
        ]
        for query in queries:
            assert query.plan()
            query.finish()
            assert query.plan()
            query.finish()
            assert "within" in query.offset and values(query.rows) == list(range(50))
    shutil.rmtree(root)
    copy.rename(root)
    with tidelog.open(root, **OPTIONS) as db:
        if more:
            many(db, range(1000, 1000 + more))
    return at, queries


@pytest.mark.parametrize("more", [0, 3, 100])
def test_a_unit_that_was_taken_back_when_a_part_of_it_was_read(tmp_path: Path, more: int) -> None:
    at, (strict, loose) = cut_inside_a_unit(tmp_path / "s", more)
    text = rf"\[TIDELOG_LOSS_REWOUND\] LSN {at + 1} to {at + 1}, which the query has read"
    with pytest.raises(TidelogSparkError, match=text):
        strict.plan()
    assert loose.all() == list(range(1000, 1000 + more))
    assert gaps(loose) == [{"reason": "rewound", "from_lsn": at + 1, "to_lsn": at + 1}]


def test_a_unit_that_was_released_when_a_part_of_it_was_read(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(3))
        at = last_lsn(db)
        many(db, range(3, 100))
        query = Query(root, maxOffsetsPerTrigger="40")
        kept = Query(root, maxOffsetsPerTrigger="40", bookmark="kept")
        for each in (query, kept):
            assert each.plan()
            each.finish()
            assert each.plan()
            each.finish()
        add(db, range(100, 300))
        db.checkpoint()
        kept.restart()
        assert kept.all() == list(range(43, 300))
        add(db, range(300, 500))
        db.checkpoint()
        with pytest.raises(TidelogSparkError, match=rf"LOSS_RELEASED\].* LSN {at + 1} to "):
            query.plan()


@pytest.mark.parametrize("table", ["entries", "events"])
@pytest.mark.parametrize("seed", rest_slow(range(12), 2))
def test_any_log_with_any_limit(tmp_path: Path, seed: int, table: str) -> None:
    """No batch has more rows than the limit, only a unit that has more is split, and each row comes once."""
    print("seed", seed)
    rng = random.Random(seed)
    root = tmp_path / "s"
    n = 0
    with tidelog.open(root, **OPTIONS, segment_bytes=4096) as db:
        inside.core(db).settings.stream_node_max_entries = 20
        db.xgroup_create("s", "g", mkstream=True)
        for _ in range(12):
            count = rng.choice((1, 2, 40))
            match rng.randrange(5):
                case 0:
                    many(db, range(n, n + count))
                case 1:
                    with db.pipeline(transaction=True) as pipe:
                        for each in range(n, n + count):
                            pipe.xadd("s", {"n": each})
                            pipe.set("k", each)
                        pipe.execute()
                case 2:
                    with db.pipeline(transaction=False) as pipe:
                        for each in range(n, n + count):
                            pipe.xadd("s", {"n": each})
                        pipe.execute()
                case 3:
                    for _, found in db.xreadgroup("g", "c", {"s": ">"}, count=count) or ():
                        db.xack("s", "g", *(id for id, _ in found))
                    continue
                case _:
                    add(db, range(n, n + count))
            n += count
    whole = Query(root, table=table)
    whole.all()
    assert values(whole.rows) == list(range(n))
    limit = rng.choice((3, 7, 30))
    query = Query(root, table=table, maxOffsetsPerTrigger=str(limit), targetPartitionBytes="3000")
    found = []
    while query.plan():
        if rng.random() < 0.3:
            query.restart()
        found.append(query.run())
        query.finish()
    assert query.rows == whole.rows
    assert max(map(len, found)) <= limit
    if table == "events":
        units = [row["unit_end"] for row in whole.rows]
        for rows, after in zip(found, found[1:]):
            if rows and after and rows[-1]["unit_end"] == after[0]["unit_end"]:
                assert units.count(after[0]["unit_end"]) > limit
