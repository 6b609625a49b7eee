"""The guard: every workload comes to the bytes, states, replies, rows and verdicts that were recorded of it.

A wanted change retires the workloads that it changes (docs/decisions/guard.md); a refactoring records nothing.
tests/guard/__main__.py says how to see both versions whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.guard import __main__ as program
from tests.guard import record, retired, workloads
from tests.guard.record import Items
from tests.guard.retired import Retired
from tests.guard.workloads import SLOW, SOAK, TEST, WORKLOADS, Workload
from tests.guard.world import World

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = record.load()
LIMIT_S: Final = 280.0  # less than a test may take


def compare(part: str) -> None:
    """Compare the workloads of a part in a process of their own, in the order of the list: threads of other tests would
    take draws from them. The disk is one of memory where there is one, because most of the time goes into syncs.
    """
    names = [name for name, workload in WORKLOADS.items() if workload.part == part]
    memory = Path("/dev/shm")
    env = {**os.environ, **({"TMPDIR": str(memory)} if os.access(memory, os.W_OK) else {})}
    command = [sys.executable, "-m", "tests.guard", "compare", *names]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env=env, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as late:  # a call that waits for the clock, which stands still
        pytest.fail(f"the workload after these hangs: {late.stdout!r}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_queue_is_as_it_was() -> None:
    compare(TEST)


@pytest.mark.slow
def test_it_is_as_it_was() -> None:
    compare(SLOW)


@pytest.mark.soak
def test_it_is_as_it_was_for_longer() -> None:
    compare(SOAK)


def test_nothing_else_is_recorded() -> None:
    assert list(RECORDED) == list(WORKLOADS)
    for aspects in RECORDED.values():
        assert tuple(aspects) == record.ASPECTS


def test_a_name_that_was_recorded_is_a_workload_or_retired() -> None:
    entries = retired.load()
    assert list(retired.problems(record.names(), WORKLOADS, RECORDED, entries)) == []


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
    record.save({"x": recorded["w"]}, "a commit", tmp_path / "hashes.json")
    assert record.names(tmp_path / "hashes.json") == ["w", "x"]


GONE: Final = Retired("old", "new", "a longer pause", "a commit", "old, replies: 3 items then")


@pytest.mark.parametrize(
    ("ever", "workloads", "recorded", "entries", "text"),
    [
        (["old", "new"], ["new"], ["new"], [GONE], ""),
        (
            ["old", "new"],
            ["next"],
            ["next"],
            [GONE, GONE._replace(name="new", successor="next")],
            "",
        ),
        (["old", "new"], ["new"], ["new"], [], "old was recorded, and is neither"),
        (["old"], ["old", "new"], ["new"], [GONE], "old is retired, but still"),
        (["old"], ["new"], ["old", "new"], [GONE], "old is retired, but still"),
        (["old"], [], [], [GONE], "its successor new does not exist"),
        (["old"], [], [], [GONE._replace(successor="old")], "its successor old does not exist"),
        (
            ["old"],
            ["new"],
            ["new"],
            [GONE._replace(reason=" ")],
            "the reason or the first difference",
        ),
        (
            ["old"],
            ["new"],
            ["new"],
            [GONE._replace(first="")],
            "the reason or the first difference",
        ),
    ],
)
def test_what_is_wrong_with_the_retired_is_named(
    ever: list[str], workloads: list[str], recorded: list[str], entries: list[Retired], text: str
) -> None:
    found = list(retired.problems(ever, workloads, recorded, entries))
    assert [text in problem for problem in found] == ([True] if text else [])


def test_a_workload_is_retired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(world: World) -> None:
        world.told("begin", world.seed)
        world.told("put", 1)

    def other(world: World) -> None:
        world.told("begin", world.seed)
        world.told("put", 2)

    listed = dict[str, Workload]()
    for module in (workloads, program):
        monkeypatch.setattr(module, "WORKLOADS", listed)
    monkeypatch.setattr(record, "DATA", tmp_path / "hashes.json")
    monkeypatch.setattr(retired, "DATA", tmp_path / "retired.json")
    retired.save([])
    listed["w"] = Workload(one, 0)
    assert program.main(["record"]) == 0
    assert program.main(["record", "w"]) == 2  # once
    assert program.main(["retire", "w", "w2", "why"]) == 2  # it is still in the list
    listed["w2"] = listed.pop("w")
    assert program.main(["retire", "w", "w2", "why"]) == 1  # nothing differs
    listed["w2"] = Workload(other, 0)
    assert program.main(["retire", "w", "w2", "why"]) == 0
    (entry,) = retired.load()
    assert (entry.name, entry.successor, entry.reason) == ("w", "w2", "why")
    assert "the first difference is at item 1" in entry.first and "put -> 2" in entry.first
    assert list(record.load()) == ["w2"] and record.names() == ["w", "w2"]
    assert program.main(["compare"]) == 0
