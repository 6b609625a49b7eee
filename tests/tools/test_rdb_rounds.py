"""A store, `rdb export`, `import`, and the same store again: for random histories, and every target.

A target of an older Redis loses facts, which are listed. So a store goes there twice: the import of the first file has
what the target carries, and the second journey of that store must lose nothing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.fuzz.logs import STORE, bodies
from tests.fuzz.records import written
from tests.rounds import some_and_all
from tests.tools.conftest import Run

from tidelog.engine.rdb.write import RdbTarget

COMMANDS = 60


def store(root: Path, seed: int) -> Path:
    """A store with the log of a random history."""
    (root / "aof").mkdir(parents=True)
    for name, data in written(bodies(seed, COMMANDS)).files.items():
        (root / "aof" / name).write_bytes(data)
    (root / "STORE").write_bytes(STORE)
    return root


def digest(run: Run, root: Path) -> str:
    done = run("digest", root)
    assert done.code == 0, done.err
    return done.out


def moved(run: Run, root: Path, target: RdbTarget) -> tuple[Path, bool]:
    """Export the store and import the file. Returns the new store, and whether anything was lost on the way."""
    path, again = root.with_suffix(".rdb"), root.with_name(f"{root.name}-again")
    done = run("rdb", "export", root, path, "--target", target.value, "--json")
    assert done.code == 0, done.err
    lost = json.loads(done.out)["lost"]
    done = run("import", again, path)
    assert done.code == 0, done.err
    return again, bool(lost)


def round_trip(run: Run, place: Path, seed: int, target: RdbTarget) -> int:
    """Returns how many of the journeys lost nothing, and so have led to the same store."""
    whole = 0
    root = store(place / "store", seed)
    for _ in range(2):
        again, has_lost = moved(run, root, target)
        if not has_lost:
            assert digest(run, again) == digest(run, root), f"seed {seed} to {target.value}"
            whole += 1
        root = again
    assert not has_lost, f"seed {seed} to {target.value}"
    shutil.rmtree(place)
    return whole


@pytest.mark.parametrize("target", RdbTarget, ids=lambda target: target.value)
@pytest.mark.parametrize("seeds", some_and_all(range(3), range(1000, 1125)))
def test_round_trips(run: Run, tmp_path: Path, target: RdbTarget, seeds: range) -> None:
    whole = sum(round_trip(run, tmp_path / f"{seed}", seed, target) for seed in seeds)
    print(f"to {target.value}: {whole} journeys without a loss")
    assert whole >= len(seeds)
