"""Power is lost at every operation of a repair in place: the store does not open, or opens with what the repair keeps,
and the same command finishes the work."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.broken import STORE, Past, broken, data_of, here, looked_at, past, put, unkept

from tidelog.aof.errors import AofError
from tidelog.crash.commits import commits_noted
from tidelog.crash.record import RecordingDisk
from tidelog.crash.states import cuts, fingerprint
from tidelog.crash.trace import SyncBegin, Trace, Tree, versions
from tidelog.disk.real import RealDisk
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.store.errors import TidelogError
from tidelog.testing.scratch import scratch
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.repair import in_place, look, plan
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.plan import Plan
from tidelog.tools.replay import contents

# seed -> what goes on
# fmt: off
DEFAULT = {
    6: "a damaged frame in a released log, and a missing segment behind",
    14: "two segments under each other's name, over a checkpoint",
    47: "a snapshot takes the place of the checkpoint",
}
# fmt: on
SLOW = range(96, 124)
SHARES = 3
SAMPLE = 8  # images tried for each seed by default
STATES = 512  # a moment with no more states than this has all of them tried
DRAWN = 12  # states of a moment that has more: one in which data.mdb is written


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (look, plan):
        monkeypatch.setattr(module, "walk", here)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with scratch(lambda text: None) as directory:
        yield directory


def opens_with(root: Path) -> tuple[str, int] | None:
    """(digest, last LSN) of a store, None if it does not open."""
    try:
        with contents(LogFiles(root)) as held:
            return digest(held.state), held.last_lsn
    except (AofError, TidelogError, CorruptBlock):
        return None


def repaired(root: Path) -> tuple[Plan, bool]:
    """Repair in place what is damaged, as the command does. Returns the plan, and whether anything was damaged."""
    in_place.settle(MendedFiles(root))
    files, seen, found = looked_at(root)
    assert found is not None
    damaged = bool(seen.damages) or found.reach.damage is not None
    if damaged:
        in_place.repair(files, seen, found, b"{}", 2)
    return found, damaged


def recorded(root: Path, place: Path) -> tuple[Trace, Plan] | None:
    """A repair in place, recorded. None if nothing is damaged, or nothing can be kept."""
    disk = RecordingDisk(RealDisk(), place)
    files, seen, found = looked_at(root, disk)
    if found is None or not found.lsn or not (seen.damages or found.reach.damage is not None):
        return None
    with commits_noted():
        in_place.settle(files)
        in_place.repair(files, seen, found, b"{}", 1)
    return disk.trace({"workload": "repair", **versions()}, []), found


def images(trace: Trace, rng: random.Random) -> list[Tree]:
    """The different disks that a power cut may leave, of every moment."""
    found: dict[bytes, Tree] = {}
    for cut in cuts(trace):
        if isinstance(trace.operations[cut.time - 1], SyncBegin):
            continue
        for state in cut.states(rng, DRAWN, STATES):
            image = cut.image(state)
            found.setdefault(fingerprint(image), image)
    return [*found.values()]


def data_in(tree: Tree) -> Tree:
    """The data of a store in the tree of its disk, by the names that `data_of` gives."""
    return {
        name.removeprefix(f"{STORE}/"): data
        for name, data in tree.items()
        if not name.endswith("lock.mdb")
    }


def explore(seed: int, place: Path, story: Past, most: int | None = None) -> int:
    """Try the images of one repair, all or `most` of them. Returns how many were tried."""
    rng = random.Random(seed)
    work = place / str(seed)
    try:
        root, _, _ = broken(seed, rng, work / "damaged", story)
        made = recorded(root, root.parent)
        if made is None:
            return 0
        trace, found = made
        there = images(trace, rng)
        chosen = there if most is None else rng.sample(there, min(most, len(there)))
        before = data_in(trace.base)
        for number, image in enumerate(chosen):
            where = f"seed {seed}, image {number}"
            root = put(work / f"cut-{number}", image)
            served = opens_with(root)
            assert served in (None, (found.digest, found.lsn)), where
            again, wrote = repaired(root)
            assert (again.digest, again.lsn) == (found.digest, found.lsn), where
            if wrote:
                assert opens_with(root) == (found.digest, found.lsn), where
                assert look.look(MendedFiles(root)).damages == [], where
            else:
                assert served is not None, where
            assert unkept(before, data_of(root)) < 200, where
            shutil.rmtree(root.parent)
        return len(chosen)
    finally:
        shutil.rmtree(work)


@pytest.mark.parametrize("seed", DEFAULT)
def test_power_is_lost(seed: int, place: Path) -> None:
    assert explore(seed, place, past(place), SAMPLE) == SAMPLE


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_power_is_lost_at_every_operation(place: Path, share: int) -> None:
    story = past(place)
    seeds = [*DEFAULT, *SLOW][share::SHARES]
    tried = {seed: explore(seed, place, story) for seed in seeds}
    print(f"images tried, by seed: {tried}")
    assert sum(tried.values()) > 500, tried
