"""Every kind of damage times every kind of store: the repair keeps a true past state, and what it said it would keep.

A failing case prints its seed: `case(seed)` in a debugger shows it again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.broken import Past, broken, data_of, here, looked_at, past, unkept

from tidelog.disk.real import RealDisk
from tidelog.testing.scratch import scratch
from tidelog.tools.repair import in_place, look, plan, shown, writing
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.plan import Plan

DEFAULT = 52  # cases: each damage on each kind of store
COMBINATIONS = 3000  # of damage, store and way
SHARES = 4


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (look, plan):
        monkeypatch.setattr(module, "walk", here)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with scratch(lambda text: None) as directory:
        yield directory


def sound(root: Path, found: Plan) -> None:
    """The store has what was promised, and nothing is left to repair."""
    assert writing.is_as_promised(RealDisk(), root, found)
    assert look.look(MendedFiles(root)).damages == []


def case(seed: int, place: Path, story: Past, skipped_share: float = 1.0) -> int:
    """Damage one store and repair it in each way. Returns the number of ways, the dry run included."""
    pick = random.Random(seed)
    work = place / str(seed)
    root, kind, done = broken(seed, pick, work / "damaged", story)
    try:
        files, seen, found = looked_at(root)
        damages = "\n".join([*seen.damages, str(found and found.reach.damage)])
        if len(done) == 1:
            for text in done[0].told:
                assert text in damages, f"{text!r} is not in {damages}"
        if len(done) == 1 and done[0].lost is not None:
            folded = 0 if kind == "plain" else story.folded
            first_lost, last_lost = done[0].lost
            kept = story.last if last_lost <= folded else max(first_lost - 1, folded)
            assert (found.lsn if found is not None else 0) == kept, damages
        if found is None or not found.lsn:
            return 1
        assert found.digest == story.digests[found.lsn], "this was never the state"
        told = shown.facts(seen, found, shown.what_is_lost(files, found))
        last = told["kept"]["last_lsn"]
        gaps = sum(end - begin + 1 for begin, end in told["unreadable"])
        behind = told["intact_behind"]
        if behind["records"]:
            assert behind["last_lsn"] == last + gaps + behind["records"]
        before = data_of(root)
        copy = work / "copy"
        writing.write(files, found, copy)
        sound(copy, found)
        ways = 2
        if pick.random() < skipped_share:
            ways += 1
            skipped = plan.plan(files, seen, skip_damaged=True)
            assert skipped is not None
            writing.write(files, skipped, work / "skipped", uuid=pick.randbytes(16))
            sound(work / "skipped", skipped)
        assert data_of(root) == before, "the damaged store was changed"
        if not seen.damages and found.reach.damage is None:
            return ways
        in_place.repair(files, seen, found, b"{}", 1)
        sound(root, found)
        assert unkept(before, data_of(root)) < 200, "something was removed and not kept"
        return ways + 1
    finally:
        shutil.rmtree(work)


def run(first: int, count: int, place: Path, skipped_share: float) -> int:
    story = past(place)
    return sum(case(seed, place, story, skipped_share) for seed in range(first, first + count))


def test_a_few_hundred(place: Path) -> None:
    assert run(0, DEFAULT, place, 0.2) > 2 * DEFAULT


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_three_thousand(place: Path, share: int) -> None:
    each = COMBINATIONS // SHARES
    done, seed = 0, DEFAULT + share * each
    while done < each:
        done += case(seed, place, past(place))
        seed += 1
