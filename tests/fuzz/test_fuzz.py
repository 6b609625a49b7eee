"""Changed inputs whose checksums are put right: each is taken or refused with one line, and never takes much memory.

`python -m tests.fuzz --coverage` shows which lines of the readers the inputs reach.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.fuzz.kinds import KINDS, bounded, fuzz
from tests.fuzz.outcome import REFUSED, TAKEN

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_some(kind: str, tmp_path: Path) -> None:
    with bounded():
        outcomes = fuzz(kind, 1, range(200), tmp_path / "db", states=4)
    assert outcomes[TAKEN] > 5 and outcomes[REFUSED] > 20, outcomes


@pytest.mark.slow
@kinds
def test_many(kind: str, tmp_path: Path) -> None:
    with bounded():
        outcomes = fuzz(kind, 2, range(40_000), tmp_path / "db")
    assert outcomes[TAKEN] > 1000 and outcomes[REFUSED] > 4000, outcomes


@pytest.mark.soak
@kinds
def test_a_million(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    with bounded():
        outcomes = fuzz(kind, seed, range(1_000_000), tmp_path / "db", states=1000)
    assert outcomes.total() == 1_000_000


def test_an_input_that_is_found_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seed: int, r: random.Random, place: Path) -> str:
        raise ValueError("a fault")

    monkeypatch.setitem(KINDS, "rdb", broken)
    with pytest.raises(AssertionError, match="a fault; to try it again: .* --input 3$"):
        fuzz("rdb", 12, range(3, 4), tmp_path)
