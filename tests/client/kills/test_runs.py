"""kill -9 of runs of workers, of the processes that their handlers run in, of putters and of the owner.

The jobs have limits of time and hang, fail, give up, tell their progress, kill their process, and are cancelled; their
queues are paused, and the processes recycled. `make test-slow` kills some, `make test-soak` 100 and 500.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.client.kills.crowd import strays
from tests.client.kills.ends import nothing_is_left_of_those_who_ended
from tests.client.kills.herd import MANY, SOME, Herd
from tests.client.kills.lives import check_lives, much_has_happened
from tests.client.kills.remains import held_here, left_behind
from tests.client.kills.whys import whys_agree
from tests.client.owners import ended_owner, owners

from tidelog.aof.layout import SHARED, SHARED_LOG

POLICIES = ("always", "everysec", "no")
MANY_KILLS = 60


def rounds(tmp_path: Path, policy: str, kills: int, roles: tuple[str, ...]) -> None:
    """Kill processes that share a store, and check all that they and the store tell."""
    seed = random.randrange(1 << 32)
    print("seed", seed, policy)
    root = tmp_path / "store"
    begun, before = time.monotonic(), held_here(root)
    with ended_owner(root):
        herd = Herd(root, policy, seed, roles)
        try:
            herd.first_steps()
            while herd.kills < kills:
                herd.act()
            herd.settle()
        finally:
            herd.end()
        lives = herd.lives()
    took = time.monotonic() - begun
    story = lives.story
    made = Counter(call.what for call in story.calls)
    print(
        f"{herd.kills} kills; {dict(herd.acts)}; {len(story.owners_killed)} owners; in {took:.0f} s, "
        f"{story.slowness:.1f} times slow; {dict(lives.ends())}; {dict(made)}"
    )
    assert not owners(root) and not strays(root)
    assert not left_behind(before, root=root)
    assert not (root / SHARED).exists()
    check_lives(lives)
    assert whys_agree(root, lives, random.Random(seed)), "why was asked for no job"
    if kills >= MANY_KILLS:
        much_has_happened(lives)
    nothing_is_left_of_those_who_ended(story)
    assert "Traceback" not in herd.errors(), herd.errors()
    owners_told = (root / SHARED_LOG).read_text()
    assert "Traceback" not in owners_told, owners_told


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("kills", "roles"),
    [
        pytest.param(12, SOME, marks=pytest.mark.slow, id="some"),
        pytest.param(100, MANY, marks=pytest.mark.soak, id="many"),
        pytest.param(500, MANY, marks=pytest.mark.soak, id="soak"),
    ],
)
def test_runs_are_killed(tmp_path: Path, kills: int, roles: tuple[str, ...]) -> None:
    rounds(tmp_path, random.choice(POLICIES), kills, roles)
