"""kill -9 of a process that puts, moves, cancels and does delayed jobs while a schedule ticks, again and again.

Every acknowledged put is done exactly once by its effect, a cancelled job never, and each tick has one effect.
"""

from __future__ import annotations

import json
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import slow_and_soak
from tests.until import PATIENCE_S

import tidelog

CHILD = Path(__file__).with_name("later_worker.py")
PUTS = 40  # jobs that each process puts at most


class Life:
    """One directory through many processes."""

    def __init__(self, directory: Path, policy: str, seed: int) -> None:
        self.directory, self.policy, self.dice = directory, policy, random.Random(seed)
        self.tried: set[int] = set()
        self.put: set[int] = set()
        self.doubtful: set[int] = set()  # perhaps cancelled
        self.cancelled: set[int] = set()
        self.done: set[str] = set()
        self.lives = self.kills = 0

    def run(self, delay_s: float | None, count: int) -> None:
        """Start a process and kill it `delay_s` after it began; None: let it end."""
        first, seed = self.lives * 1000, self.dice.getrandbits(32)
        self.lives += 1
        arguments = [str(self.directory), self.policy, str(first), str(seed), str(count)]
        child = subprocess.Popen([sys.executable, str(CHILD), *arguments], stdout=subprocess.PIPE)
        assert child.stdout is not None
        received = bytearray()
        end_by, deadline = time.monotonic() + 4 * PATIENCE_S, None
        try:
            while True:
                until = end_by if deadline is None else deadline
                ready, _, _ = select.select(
                    [child.stdout], [], [], max(0, until - time.monotonic())
                )
                if not ready:
                    assert deadline is not None, "the process does not come to an end"
                    break
                piece = child.stdout.raw.read(1 << 16)  # type: ignore[attr-defined]
                if not piece:
                    assert child.wait() == 0, "it ended by itself"
                    break
                received += piece
                if deadline is None and delay_s is not None and b"ready\n" in received:
                    deadline = time.monotonic() + delay_s
            child.send_signal(signal.SIGKILL)
            received += child.stdout.read()
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        self.take(bytes(received).decode().split("\n")[:-1])

    def take(self, lines: list[str]) -> None:
        self.kills += "end" not in lines
        for line in lines:
            kind, _, key = line.partition(" ")
            if kind == "s":
                assert key not in self.done, f"job {key} was done, and is delivered again"
                assert not key.isdigit() or int(key) not in self.cancelled
            elif kind == "k":
                assert key not in self.done, f"job {key} was done twice"
                self.done.add(key)
            elif kind in ("t", "p", "d", "c"):
                {"t": self.tried, "p": self.put, "d": self.doubtful, "c": self.cancelled}[kind].add(
                    int(key)
                )

    def verify(self, *, at_the_end: bool) -> None:
        with tidelog.open(self.directory, fsync=self.policy) as db:
            effects = Counter(str(value["key"]) for _, value in self.stored(db, "effects"))
            left = [value for key in ("jobs", "jobs:later") for _, value in self.stored(db, key)]
            assert db.xlen("jobs:dead") == 0
        assert all(count == 1 for count in effects.values()), effects.most_common(3)
        assert self.done <= set(effects), f"told done, no effect: {self.done - set(effects)}"
        numbers = [value["n"] for value in left if "n" in value]
        assert len(numbers) == len(set(numbers)), "a job is there twice"
        finished = {int(key) for key in effects if key.isdigit()}
        assert not finished & set(numbers), "its effect is there, and the job is as well"
        there = finished | set(numbers)
        assert there <= self.tried and not there & self.cancelled
        assert self.put - self.doubtful <= there, f"lost: {self.put - self.doubtful - there}"
        ticks = sorted(datetime.fromisoformat(key) for key in effects if not key.isdigit())
        if at_the_end:
            assert not numbers and ticks
            gaps = {after - before for before, after in zip(ticks, ticks[1:])}
            assert gaps <= {timedelta(seconds=1)}, f"a tick is missing: {gaps}"

    def stored(self, db: Any, key: str) -> list[tuple[bytes, dict[str, Any]]]:
        return [(id, json.loads(fields[b"value"])) for id, fields in db.xrange(key)]


def rounds(directory: Path, policy: str, count: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    life = Life(directory / "store", policy, seed)
    for _ in range(count):
        life.run(life.dice.uniform(0.0, 0.4), PUTS)
        life.verify(at_the_end=False)
    life.run(None, PUTS)
    life.verify(at_the_end=True)
    print(f"{life.kills} killed, {len(life.put)} jobs, {len(life.done)} done")
    assert life.kills > count // 2, "it was not in the middle of anything"


def test_killed_with_delayed_jobs(tmp_path: Path) -> None:
    rounds(tmp_path, "no", 3)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", ["no", "everysec", "always"])
@pytest.mark.parametrize("count", slow_and_soak(30, 100))
def test_many_killed_with_delayed_jobs(tmp_path: Path, policy: str, count: int) -> None:
    rounds(tmp_path, policy, count)
