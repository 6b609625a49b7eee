"""The guard: every workload comes to the bytes, states, replies, rows and verdicts that were recorded of it.

A change that is meant is recorded with `python -m tests.guard record`; a refactoring records nothing.
tests/guard/__main__.py says how to see both versions whole.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.guard import record
from tests.guard.record import Items
from tests.guard.workloads import WORKLOADS

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = record.load()


@pytest.mark.soak
def test_it_is_as_it_was() -> None:
    """All workloads in one process and in their order, as they were recorded: run alone, one of them differs."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.guard", "compare"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_else_is_recorded() -> None:
    assert list(RECORDED) == list(WORKLOADS)
    for aspects in RECORDED.values():
        assert tuple(aspects) == record.ASPECTS


def items(count: int, changed: int | None = None) -> Items:
    texts = [f"item {n}" if n != changed else "another" for n in range(count)]
    return [(text.encode(), text) for text in texts]


@pytest.mark.parametrize("count", [1, 40, 300, 301, 1000])
@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_difference_is_found_where_it_is(count: int, place: float) -> None:
    """One letter of the ladder may agree by chance, and then the next one does not: these do not."""
    changed = int(count * place)
    every = record.step(count)
    before = {aspect: record.kept(items(count)) for aspect in record.ASPECTS}
    found = {aspect: items(count) for aspect in record.ASPECTS}
    assert not list(record.differences("w", before, found))
    found["replies"] = items(count, changed)
    (told,) = record.differences("w", before, found)
    assert told.startswith(f"w, replies: {count} items then, {count} now; ")
    assert f"at item {changed // every * every}" in told and "another" in told


def test_items_that_are_missing_or_more_are_found() -> None:
    before = {aspect: record.kept(items(10)) for aspect in record.ASPECTS}
    for count in (9, 11, 900):
        found = {aspect: items(10) for aspect in record.ASPECTS}
        found["units"] = items(count)
        (told,) = record.differences("w", before, found)
        assert f"10 items then, {count} now" in told


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    recorded = {"w": {aspect: record.kept(items(7)) for aspect in record.ASPECTS}}
    record.save(recorded, "a commit", tmp_path / "hashes.json")
    assert record.load(tmp_path / "hashes.json") == recorded
