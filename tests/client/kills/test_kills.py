"""kill -9 of the owner, of putters and of workers of shared queues.

The queues have delays, schedules, results, limits, priorities, keys and dedup IDs.

`make test` kills some, `make test-slow` more than 300 over the three policies. In a storm, some processes are asked to
end, some are stopped for a while, and workers of asyncio have their calls cancelled. `make test-soak` has one of 1,000
kills.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.client.kills.checks import check_all, limits_are_reached, overtakings
from tests.client.kills.crowd import ROLES, STORM, Crowd, strays
from tests.client.kills.remains import held_here, left_behind
from tests.client.owners import ended_owner, owners
from tests.rounds import slow_and_soak

from tidelog.aof.layout import SHARED, SHARED_LOG


def test_some_processes_are_killed(tmp_path: Path) -> None:
    rounds(tmp_path, random.choice(POLICIES), 10)


POLICIES = ("always", "everysec", "no")
LIMITS_ARE_REACHED = 100  # kills after which the workers have met each limit


@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kills", slow_and_soak(105, 400))
def test_many_processes_are_killed(tmp_path: Path, policy: str, kills: int) -> None:
    rounds(tmp_path, policy, kills)


@pytest.mark.timeout(7200)
@pytest.mark.soak
@pytest.mark.parametrize("kills", [12, 1000])
def test_a_storm(tmp_path: Path, kills: int) -> None:
    rounds(tmp_path, random.choice(POLICIES), kills, storm=True)


def rounds(tmp_path: Path, policy: str, kills: int, storm: bool = False) -> None:
    """Kill processes that share a store, and check all that they and the store tell."""
    seed = random.randrange(1 << 32)
    print("seed", seed, policy)
    root = tmp_path / "store"
    begun, before = time.monotonic(), held_here(root)
    with ended_owner(root):
        crowd = Crowd(root, policy, seed, STORM if storm else ROLES)
        try:
            crowd.first_steps()
            while crowd.kills < kills:
                crowd.act()
        finally:
            crowd.end()
        story = crowd.tell()
        assert "Traceback" not in crowd.errors(), crowd.errors()
        owners_told = (root / SHARED_LOG).read_text()
        assert "Traceback" not in owners_told, owners_told
    check_all(story)
    assert not owners(root) and not strays(root)
    assert not left_behind(before, root=root)
    assert not (root / SHARED).exists()
    made = Counter(call.what for call in story.calls)
    took = time.monotonic() - begun
    print(
        f"{crowd.kills} kills; {dict(crowd.acts)}; {len(story.owners_killed)} owners; in {took:.0f} s, "
        f"{story.slowness:.1f} times slow; {overtakings(story)} jobs came before earlier ones of a lower priority; "
        f"{dict(made)}"
    )
    if kills >= LIMITS_ARE_REACHED:
        limits_are_reached(story)
