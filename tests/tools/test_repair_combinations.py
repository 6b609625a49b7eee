"""Every kind of damage times every kind of store: the repair keeps a true past state, and what it said it would keep.

A failing case prints its seed: `case(seed)` in a debugger shows it again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.tools.broken import Past, broken, data_of, here, looked_at, past, unkept
from tests.tools.salvaged import differences, salvage

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.engine.effects.as_commands import commands
from tidelog.engine.effects.digest import digest
from tidelog.snapshot import scrub
from tidelog.testing.scratch import scratch
from tidelog.tools.repair import in_place, look, plan, shown, writing
from tidelog.tools.repair.plan import Plan

DEFAULT = 52  # stores: each damage on each kind
REPAIRS = 3000  # of damaged stores, each way counted; a dry run is none
SHARES = 4


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (look, plan, scrub):
        monkeypatch.setattr(module, "walk", here)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with scratch(lambda text: None) as directory:
        yield directory


@contextmanager
def opened(root: Path, found: Plan) -> Iterator[Any]:
    """The repaired store, opened as any other: it has what was promised, and nothing is left to repair."""
    found_by_verify = scrub.verify_store(RealDisk(), root)
    assert {each.check for each in found_by_verify} <= {"tail"}, found_by_verify
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0) as db:
        assert digest(db._core.state) == found.digest
        yield db


def sound(root: Path, found: Plan) -> None:
    with opened(root, found):
        pass


def added_in(story: Past, key: bytes, gaps: list[list[int]]) -> int:
    """How many entries the records in the gaps had added to a stream."""
    return sum(
        command[:2] == [b"XADD", key]
        for first, (records, _) in story.written.items()
        for lsn, record in enumerate(records, first)
        if any(begin <= lsn <= end for begin, end in gaps)
        for command in commands(record)
    )


class Done(NamedTuple):
    """What was done with one store: the repairs, and how many of them were compared with a second opinion."""

    repairs: int
    compared: int


def case(seed: int, place: Path, story: Past, skipped_share: float = 1.0) -> Done:
    """Damage one store and repair it in each way that applies."""
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
            return Done(0, 0)
        assert found.digest == story.digests[found.lsn], "this was never the state"
        told = shown.facts(seen, found, shown.what_is_lost(files, found))
        last = told["kept"]["last_lsn"]
        gaps = sum(end - begin + 1 for begin, end in told["unreadable"])
        behind = told["intact_behind"]
        if behind["records"]:
            assert behind["last_lsn"] == last + gaps + behind["records"]
        for row in told["missing_entries"]:
            added = added_in(story, row["key"].encode(), told["unreadable"])
            assert 0 < row["entries"] <= added, "more is said to be missing than was there"
        if not seen.damages and found.reach.damage is None:
            return Done(0, 0)
        before = data_of(root)
        copy = work / "copy"
        writing.write(files, found, copy)
        sound(copy, found)
        repairs, compared = 1, 0
        if pick.random() < skipped_share:
            repairs += 1
            skipped = plan.plan(files, seen, skip_damaged=True)
            assert skipped is not None
            writing.write(files, skipped, work / "skipped", uuid=pick.randbytes(16))
            with opened(work / "skipped", skipped) as db:
                if behind["records"] and all(each.stays for each in done):
                    compared = 1
                    assert skipped.salvaged is not None
                    own = salvage(story, root, found.lsn)
                    refused = [each.lsn for each in skipped.salvaged.refused]
                    assert refused == own.refused, skipped.salvaged.refused
                    assert differences(own.streams, db) == []
        assert data_of(root) == before, "the damaged store was changed"
        in_place.repair(files, seen, found, b"{}", 1)
        assert unkept(before, data_of(root)) < 200, "something was removed and not kept"
        sound(root, found)
        return Done(repairs + 1, compared)
    finally:
        shutil.rmtree(work)


def test_each_damage_on_each_kind_of_store(place: Path) -> None:
    done = [case(seed, place, past(place), 0.2) for seed in range(DEFAULT)]
    assert sum(each.repairs for each in done) > 2 * DEFAULT * 3 / 4


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_three_thousand(place: Path, share: int) -> None:
    done: list[Done] = []
    seed = DEFAULT + share * REPAIRS // SHARES
    while sum(each.repairs for each in done) < REPAIRS // SHARES:
        done.append(case(seed, place, past(place)))
        seed += 1
    compared = sum(each.compared for each in done)
    print(f"{len(done)} damaged stores, {REPAIRS // SHARES} repairs, {compared} of them compared")
    assert compared > REPAIRS // SHARES // 20
