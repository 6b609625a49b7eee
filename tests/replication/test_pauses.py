"""The pauses of a follower between its attempts to reach its leader, in virtual time."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests import inside
from tests.replication.stores import begin_to_follow

import tidelog
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication.errors import LinkError, Refused
from tidelog.replication.link import Link

LASTED_S = 2.0  # a connection that is a link


class Outage:
    """A link whose attempts end as `outcome(now)` says: with an error, or in a connection that lasts (None)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
        self.now = 100.0
        self.pauses: list[tuple[float, float]] = []  # (when it began, seconds)
        self._outcome = outcome
        self._yield = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._slept)
        monkeypatch.setattr(Link, "_connected", self._connected)

    async def _connected(self) -> None:
        error = self._outcome(self.now - 100.0)
        if error is None:
            self.now += LASTED_S
            error = LinkError("cut")
        raise error

    async def _slept(self, seconds: float) -> None:
        self.pauses.append((self.now - 100.0, seconds))
        self.now += seconds
        await self._yield(0)

    async def last(self, seconds: float) -> None:
        """Some seconds of a follower's attempts."""
        disk = SimulatedDisk()
        with tidelog.open(Path("/copy"), fsync="no", disk=disk) as db:
            begin_to_follow(db)
            settings = SimpleNamespace(
                announced=lambda: ("", 0), surplus_s=lambda: 10.0, compress=lambda: False
            )
            made = Link(inside.core(db), cast(Any, settings))
            made.loop = cast(Any, SimpleNamespace(time=lambda: self.now))
            while self.now < 100.0 + seconds:
                await self._yield(0)
            made.stop()


def ended(monkeypatch: pytest.MonkeyPatch, seconds: float, outcome: Any) -> Outage:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random.seed(seed)
    outage = Outage(monkeypatch, outcome)
    asyncio.run(outage.last(seconds))
    return outage


def test_for_two_seconds_they_are_short_then_they_double(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(now: float) -> Exception | None:
        return LinkError("connection refused") if now > 0 else None

    pauses = ended(monkeypatch, 60.0, outcome).pauses
    assert pauses.pop(0) == (LASTED_S, 0.0)  # it was a link, so the next attempt is made at once
    short = [pause for at, pause in pauses if at < LASTED_S + 2.0]
    assert len(short) >= 20 and all(0.05 <= pause <= 0.1 for pause in short)
    long = [pause for at, pause in pauses if at >= LASTED_S + 2.0]
    for number, pause in enumerate(long):
        most = min(0.1 * 2 ** (number + 1), 5.0)
        assert most / 2 <= pause <= most
    assert len(long) > 8


def test_they_are_short_again_after_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(now: float) -> Exception | None:
        return None if 20.0 < now < 26.0 else LinkError("connection refused")

    pauses = ended(monkeypatch, 40.0, outcome).pauses
    back = next(index for index, (at, pause) in enumerate(pauses) if not pause)
    assert pauses[back - 1][1] > 1.0
    lost = max(at for at, pause in pauses if not pause)
    assert all(0.05 <= pause <= 0.1 for at, pause in pauses if lost < at < lost + 1.9)


def test_a_leader_that_refuses_is_not_asked_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = ended(monkeypatch, 60.0, lambda now: Refused("no")).pauses
    assert all(0.5 <= pause <= 5.0 for _, pause in pauses)
    assert pauses[-1][1] >= 2.5
