"""Changed inputs whose checksums are put right: each is taken or refused with one line, and never takes much memory.

`python -m tests.fuzz --coverage` shows which lines of the readers the inputs reach.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.rdb.test_damage import image, taken
from tests.fuzz.__main__ import ROOT
from tests.fuzz.kinds import KINDS, bounded, fuzz
from tests.fuzz.others import among
from tests.fuzz.outcome import REFUSED, TAKEN

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_some(kind: str, tmp_path: Path) -> None:
    with bounded():
        outcomes = fuzz(kind, 1, range(200), tmp_path / "db", states=4)
    assert outcomes[TAKEN] > 5 and outcomes[REFUSED] > 20, outcomes


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("first", range(0, 40_000, 10_000))
def test_many(kind: str, first: int, tmp_path: Path) -> None:
    with bounded():
        outcomes = fuzz(kind, 2, range(first, first + 10_000), tmp_path / "db")
    assert outcomes[TAKEN] > 200 and outcomes[REFUSED] > 800, outcomes


@pytest.mark.soak
@kinds
@pytest.mark.timeout(3600)
def test_a_million(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    with bounded():
        outcomes = fuzz(kind, seed, range(1_000_000), tmp_path / "db", states=1000)
    assert outcomes.total() == 1_000_000


def test_the_parts_that_are_put_among_keys_are_as_redis_writes_them() -> None:
    for number in range(300):
        assert taken(among(image(number % 5), random.Random(number))) is not None, number


# The percentage of lines that these inputs have to reach. They do not reach a wrong checksum, which is put right, and
# the refusal of what no writer is given. Most of aof/reading/recovery.py runs only when a store is opened for writing,
# so the other files of its folder have floors of their own.
FLOORS = {
    "engine/rdb": 91.0,
    "aof/reading/reader.py": 95.0,
    "aof/reading/verdicts.py": 95.0,
    "aof/reading/window.py": 95.0,
}


@pytest.mark.slow
def test_the_lines_that_are_reached() -> None:
    """In a process of its own: here the caches of other tests would spare the inputs some lines."""
    words = [sys.executable, "-m", "tests.fuzz", "--inputs", "700", "--seed", "2", "--coverage"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=600)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    reached = dict(re.findall(r"^(\S+): ([\d.]+)% of \d+ lines$", done.stdout, re.M))
    reached |= {
        path: share for share, path in re.findall(r"^ *([\d.]+)%  (\S+)", done.stdout, re.M)
    }
    for place, floor in FLOORS.items():
        assert float(reached[place]) >= floor, f"{place}: {reached[place]}% of the lines"


def test_an_input_that_is_found_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seed: int, r: random.Random, place: Path) -> str:
        raise ValueError("a fault")

    monkeypatch.setitem(KINDS, "rdb", broken)
    with pytest.raises(AssertionError, match="a fault; to try it again: .* --input 3$"):
        fuzz("rdb", 12, range(3, 4), tmp_path)
