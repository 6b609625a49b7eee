"""Paths of batch reads: several snapshots at once, and paths that are no snapshot are one precise error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.rows import rows

import tidelog
from tidelog.aof.identity import DATA
from tidelog.snapshot.manifest import NAME, check_of
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.batch.read import columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.options import parse


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "store"
    with tidelog.open(path) as db:
        for _ in range(2):
            db.xadd("s", {"n": 1})
            db.snapshot()
            db.xadd("s", {"n": 2})
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A store with two snapshots, of LSN 2 and 4."""
    return Path(shutil.copytree(made, tmp_path / "store"))


def snapshot_of(store: Path, which: str = "latest") -> Path:
    (path,) = resolve((str(store),), which)
    return Path(path)


def test_snapshots_of_a_store(store: Path) -> None:
    newest = snapshot_of(store)
    oldest = snapshot_of(store, "2")
    assert len(rows(store)) == len(rows(store, snapshot="4")) == 3
    assert len(rows(store, snapshot="2")) == 1
    assert len(rows(store, snapshot="now")) == 4
    found = rows(store, snapshot="all")
    counts = {(row["snapshot"], row["snapshot_lsn"]): 0 for row in found}
    for row in found:
        counts[row["snapshot"], row["snapshot_lsn"]] += 1
    assert counts == {
        (str(oldest), 2): 1,
        (str(newest), 4): 3,
        (str(snapshot_of(store)), 5): 4,
    }
    both = rows(oldest, columns="id,snapshot_lsn")
    assert [row["snapshot_lsn"] for row in both] == [2]


def newer(path: Path) -> None:
    facts = json.loads((path / NAME).read_text())
    del facts["check"]
    facts["format"] = 99
    (path / NAME).write_text(json.dumps({**facts, "check": check_of(facts)}))


def half(path: Path) -> None:
    (path / NAME).write_bytes((path / NAME).read_bytes()[:100])


def cut(path: Path) -> None:
    (path / DATA).write_bytes((path / DATA).read_bytes()[:8000])


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (newer, "has format version 99, but this tidelog reads only up to version 1"),
        (half, "the text is not valid JSON.*use another snapshot"),
        (cut, "the file has 8000 bytes, but the manifest says"),
        (lambda path: (path / DATA).unlink(), f"{DATA}: the file is missing"),
        (lambda path: (path / NAME).unlink(), "is neither a store nor a snapshot"),
        (shutil.rmtree, "is neither a store nor a snapshot"),
    ],
)
def test_a_path_that_is_no_whole_snapshot(
    store: Path, tmp_path: Path, spoil: Callable[[Path], object], text: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(snapshot_of(store), copy)
    assert len(rows(copy)) == 3
    spoil(copy)
    with pytest.raises(TidelogSparkError, match=rf"(?s)\[TIDELOG_SNAPSHOT\] {copy}.*{text}"):
        rows(copy)


def test_a_store_without_that_snapshot(store: Path, tmp_path: Path) -> None:
    with pytest.raises(TidelogSparkError, match="has no snapshot of LSN 9; it has 2, 4"):
        rows(store, snapshot="9")
    tidelog.open(tmp_path / "other").close()
    with pytest.raises(TidelogSparkError, match="snapshot create .*, or set .*snapshot=now"):
        rows(tmp_path / "other")


def test_a_snapshot_that_is_pruned_between_the_plan_and_a_task(store: Path) -> None:
    options = parse({"path": str(store)})
    paths = resolve(options.paths, options.snapshot)
    planned = read(options, paths, columns_of(options))
    (part,) = planned.parts()
    shutil.rmtree(paths[0])
    with pytest.raises(TidelogSparkError, match="the snapshot is gone; it was pruned or moved"):
        list(planned.batches(part))
