"""A checkpoint file whose structure is damaged, or that has a page of an earlier commit: never silent, never deadly.

Every answer is right, or the damage is named. The process that opened the store lives.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.rounds import some_and_all
from tests.store.checkpoint import structure_damage_child as child

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot.errors import DamagedCheckpoint
from tidelog.snapshot.scrub import verify_store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("structure")
    child.fill(directory)
    return directory


def series(made: Path, way: str, first: int, last: int) -> Counter[str]:
    """How many seeds ended how. Prints the seeds that are no verdict to be had."""
    counts: Counter[str] = Counter()
    bad: list[str] = []
    while first < last:
        argv = [sys.executable, "-m", "tests.store.checkpoint.structure_damage_child"]
        argv += [str(made), way, str(first), str(last)]
        done = subprocess.run(argv, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            seed, kind, *_ = line.split(" ", 2)
            counts[kind] += 1
            first = int(seed) + 1
            if kind in ("wrong", "late"):
                bad.append(line[:600])
        if first < last:
            assert done.returncode < 0, done.stderr
            counts["killed"] += 1
            bad.append(f"{way} {first}: killed by signal {-done.returncode}")
            first += 1
    print(way, counts, *bad, sep="\n")
    return counts


QUIET: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0, "retain_bytes": 0}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store of 400 strings, of which a leaf in the middle has a wrong flag; some of the log is behind it."""
    root = tmp_path / "s"
    with tidelog.open(root, **QUIET) as db:
        for n in range(400):
            db.set(f"k{n}", f"value-{n:04}" * 20)
        db.checkpoint()
        db.set("later", "1")
    data = root / "checkpoint" / "data.mdb"
    at = data.read_bytes().rindex(b"value-0200")
    with data.open("r+b") as file:
        file.seek(at - at % 4096 + 10)
        file.write(b"\7")
    return root


def test_damage_is_named_everywhere_and_everything_else_goes_on(damaged: Path) -> None:
    segments = {path.name for path in (damaged / "aof").glob("*.aof")}
    with pytest.raises(tidelog.StoreDamaged, match="is in its log.*flags 0x7"):
        with tidelog.open(damaged, **QUIET) as db:
            for _ in range(2):
                with pytest.raises(tidelog.CheckpointFailed, match="flags 0x7"):
                    db.checkpoint()
            assert "flags 0x7" in str(db.info()["checkpoint_failure"])
            with pytest.raises(tidelog.StoreDamaged, match="hash .* cannot be read: page .*, byte"):
                db.get("k200")
            readable = 0
            for n in range(400):
                try:
                    assert db.get(f"k{n}") == f"value-{n:04}".encode() * 20
                    readable += 1
                except tidelog.StoreDamaged:
                    pass
            assert 380 < readable < 400
            db.set("new", "1")
            with pytest.raises(tidelog.CheckpointFailed):
                db.snapshot()
    assert segments <= {path.name for path in (damaged / "aof").glob("*.aof")}
    assert any("flags 0x7" in found.text for found in verify_store(RealDisk(), damaged))
    with tidelog.open(damaged, read_only=True) as db:
        assert db.get("new") == db.get("later") == b"1" and db.get("k1") is not None


def test_health_says_it_before_any_checkpoint_is_tried(damaged: Path) -> None:
    db = tidelog.open(damaged, **QUIET)
    checkpoints: Any = inside.checkpoints(db)
    environment = checkpoints._environment
    with pytest.raises(DamagedCheckpoint):
        environment.check()
    assert "flags 0x7" in str(db.info()["checkpoint_failure"])
    with pytest.raises(tidelog.StoreDamaged):
        db.close()
    db.close()  # a second time it is only closed


@pytest.mark.parametrize("count", some_and_all(6, 60))
def test_fields_of_pages(made: Path, count: int) -> None:
    counts = series(made, "structure", 0, count)
    assert not counts["wrong"] and not counts["late"] and not counts["killed"]
    assert counts["damaged"] > count // 3


@pytest.mark.parametrize("count", some_and_all(4, 30))
def test_older_pages(made: Path, count: int) -> None:
    counts = series(made, "older", 0, count)
    assert not counts["wrong"] and not counts["late"] and not counts["killed"]
    assert counts["damaged"] > count // 3


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 3000, 250))
def test_many_fields_of_pages(made: Path, first: int) -> None:
    counts = series(made, "structure", first, first + 250)
    assert not counts["wrong"] and not counts["late"] and not counts["killed"]


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 1500, 250))
def test_many_older_pages(made: Path, first: int) -> None:
    counts = series(made, "older", first, first + 250)
    assert not counts["wrong"] and not counts["late"] and not counts["killed"]
