"""The plan of a batch read: the same partitions however they are found, and little memory for each stream."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import some_and_all

import tidelog
from tidelog.spark.source.batch import plan
from tidelog.spark.source.batch.plan import Part
from tidelog.spark.source.batch.read import Read, columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.options import parse

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


def planned(path: Path, **options: str) -> Read:
    parsed = parse({"path": str(path), **options})
    return read(parsed, resolve(parsed.paths, parsed.snapshot), columns_of(parsed))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long streams, short ones, and numbers that no stream has any more; in two databases."""
    path = tmp_path_factory.mktemp("mixed") / "s"
    with tidelog.open(path, **OPTIONS) as db:
        for number in range(60):
            view = db.db(1) if number % 7 == 3 else db
            name = f"s{number * 7919 % 60}"
            view.xadd_many(
                name, [{"n": at} for at in range(6000 if number % 5 == 0 else number % 5)]
            )
            view.xadd(name, {"last": number}, id="18446744073709551615-3")
            if number % 4 == 1:
                view.delete(name)
        db.snapshot()
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"targetPartitionBytes": "4000"},
        {"targetPartitionBytes": "1", "db": "1"},
        {"maxPartitions": "3", "targetPartitionBytes": "1"},
        {"startId": "18446744073709551615-3", "targetPartitionBytes": "2000"},
        {"streamsPattern": "s*[13579]", "targetPartitionBytes": "4000"},
    ],
)
def test_streams_looked_up_and_streams_in_order(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    found = []
    for few in (0, 1_000_000):
        monkeypatch.setattr(plan, "FEW", few)
        found.append(planned(mixed, **options).parts())
    assert found[0] == found[1]
    parts = [part for part in found[0] if isinstance(part, Part)]
    pieces = [piece for part in parts for piece in part.pieces]
    assert len(parts) == len(found[0]) and pieces
    assert [piece.number for piece in pieces] == sorted(piece.number for piece in pieces)
    # Pieces of one stream follow each other without a gap, and the last one has the tail.
    for number in {piece.number for piece in pieces}:
        own = [piece for piece in pieces if piece.number == number]
        assert [piece.until for piece in own[:-1]] == [piece.first for piece in own[1:]]
        assert own[-1].until is None
    if "maxPartitions" in options:
        assert len(parts) <= 4


@pytest.mark.parametrize("count", some_and_all(4_000, 15_000))
def test_a_plan_of_many_streams_is_small(tmp_path: Path, count: int) -> None:
    path = tmp_path / "s"
    with tidelog.open(path, **OPTIONS) as db:
        for number in range(count):
            db.xadd(f"stream-{number:06d}", {"n": number})
        db.snapshot()
    whole = planned(path)
    planned(path, streams="stream-000007").parts()  # imports
    tracemalloc.start()
    parts = whole.parts()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(part.pieces) for part in parts if isinstance(part, Part)) == count
    assert peak < 8_000_000 + 150 * count, "what is kept of the file, and what each stream takes"
    assert len(pickle.dumps(parts)) / count < 60
