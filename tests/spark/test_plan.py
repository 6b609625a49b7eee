"""The plan of a batch read: the same partitions however they are found, and little memory for each stream."""

from __future__ import annotations

import os
import pickle
import random
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import some_and_all

import tidelog
from tidelog.aof.identity import DATA
from tidelog.disk.real import RealDisk
from tidelog.snapshot.place import LocalPlace
from tidelog.snapshot.sealed import open_sealed
from tidelog.spark.source.batch import plan
from tidelog.spark.source.batch.plan import Part
from tidelog.spark.source.batch.read import Read, columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.options import parse

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


def planned(path: Path, **options: str) -> Read:
    parsed = parse({"path": str(path), **options})
    return read(parsed, resolve(parsed.paths, parsed.snapshot), columns_of(parsed))


class Counted(LocalPlace):
    """A local snapshot that counts the bytes that are read."""

    nbytes = 0

    def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
        data = super().read_at(file, offset, nbytes)
        self.nbytes += len(data)
        return data


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


@pytest.mark.parametrize(("cores", "least", "most"), [(1, 3, 4), (2, 5, 8), (64, 6, 12)])
def test_each_core_has_partitions_and_none_is_tiny(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, least: int, most: int
) -> None:
    r = random.Random(7)
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        db.xadd_many("s", [{"data": r.randbytes(10_000)} for _ in range(800)])
        db.snapshot()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert least <= len(list(planned(tmp_path / "s").parts())) <= most
    assert len(list(planned(tmp_path / "s", targetPartitionBytes=f"{1 << 30}").parts())) == 1


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
        parts = [part for part in planned(mixed, **options).parts() if isinstance(part, Part)]
        found.append((parts, [piece for part in parts for piece in part.pieces]))
    (parts, pieces), looked_up = found
    if "db" in options or "streamsPattern" in options:
        assert (parts, pieces) == looked_up
    elif "maxPartitions" not in options:
        # The sizes of short streams are estimates, so that partitions may end elsewhere.
        assert pieces == looked_up[1]
    assert pieces
    assert [piece.number for piece in pieces] == sorted(piece.number for piece in pieces)
    # Pieces of one stream follow each other without a gap, and the last one has the tail.
    for number in {piece.number for piece in pieces}:
        own = [piece for piece in pieces if piece.number == number]
        assert [piece.until for piece in own[:-1]] == [piece.first for piece in own[1:]]
        assert own[-1].until is None
    if "maxPartitions" in options:
        assert len(parts) <= 4


def test_a_plan_of_short_streams_does_not_read_them(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", **OPTIONS) as db:
        for number in range(3_000):
            db.xadd(f"stream-{number:06d}", {"text": bytes(900)})
        db.snapshot()
    whole = planned(tmp_path / "s", targetPartitionBytes="400000")
    (path,) = whole.paths
    place = Counted(RealDisk(), Path(path))
    with closing(open_sealed(place)) as sealed:
        parts = plan.parts(sealed, whole.wanted, whole.options)
        assert place.nbytes < place.size(DATA) / 3
        pieces = [len(part.pieces) for part in parts]
        exact = plan.parts(sealed, whole.wanted._replace(pattern=b"*"), whole.options)
    assert sum(pieces) == 3_000 and max(pieces) < 1.5 * min(pieces[:-1])
    assert len(exact) / 1.5 <= len(parts) <= 1.5 * len(exact)


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
