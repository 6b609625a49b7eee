"""kill -9 of a worker process in the middle of jobs, again and again, until all is worked off.

Every job is done at least once; what was put with done_and is there exactly once; nothing is given up or left over.
Workers either come back under their names (and read their history at once), or under new ones (and take over what the
dead ones had after `retry_after`).
"""

from __future__ import annotations

import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import slow_and_soak

import tidelog

CHILD = Path(__file__).with_name("kill_worker.py")
PART = 60  # jobs put before each round
SLOW_RETRY = 3600.0  # nobody takes over: only its own name reads a worker's history
QUICK_RETRY = 0.2


class Told:
    """The output of the killed processes."""

    def __init__(self) -> None:
        self.started: Counter[int] = Counter()
        self.done: set[int] = set()
        self.lost: Counter[int] = Counter()
        self.plain: Counter[int] = Counter()

    def take(self, lines: list[bytes]) -> bool:
        """Whether it came to its end."""
        ended = False
        for line in lines:
            kind, *rest = line.decode().split()
            if kind == "s":
                number = int(rest[0])
                assert number not in self.done, f"job {number} was done, and is delivered again"
                self.started[number] += 1
            elif kind == "k":
                assert int(rest[0]) not in self.done, f"job {rest[0]} was done twice"
                self.done.add(int(rest[0]))
            elif kind == "l":
                self.lost[int(rest[0])] += 1
            elif kind == "p":
                self.plain[int(rest[0])] += 1
            ended = ended or kind == "end"
        return ended


def run_and_kill(directory: Path, arguments: list[str], delay_s: float | None) -> list[bytes]:
    """Start a worker process, kill it `delay_s` after it began (None: let it end), return its whole lines."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(directory), *arguments], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    received = bytearray()
    end_by = time.monotonic() + 100
    deadline: float | None = None
    try:
        while True:
            until = end_by if deadline is None else deadline
            timeout = max(0.0, until - time.monotonic())
            readable, _, _ = select.select([child.stdout], [], [], timeout)
            if not readable:
                assert deadline is not None, "the workers do not come to an end"
                break
            piece = child.stdout.raw.read(1 << 16)  # type: ignore[attr-defined]
            if not piece:
                assert child.wait() == 0, "a worker ended by itself"
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
    return bytes(received).split(b"\n")[:-1]


class Life:
    """One directory through many processes."""

    def __init__(self, directory: Path, policy: str, same_names: bool, seed: int) -> None:
        self.directory, self.policy, self.same_names = directory, policy, same_names
        self.retry_after = SLOW_RETRY if same_names else QUICK_RETRY
        self.dice = random.Random(seed)
        self.told = Told()
        self.put = self.lives = self.kills = 0

    def open(self) -> Any:
        return tidelog.open(self.directory, fsync=self.policy)

    def more(self) -> None:
        with self.open() as db:
            self.verify(db)
            numbers = range(self.put, self.put + PART)
            for name in ("jobs", "plain"):
                assert db.queue(name).put_many({"n": n} for n in numbers) == PART
            self.put += PART

    def verify(self, db: Any) -> None:
        """After any kill: what was told is so, and every effect there is is there once and whole."""
        effects = Counter((v["job"], v["part"]) for v in values(db, "effects"))
        assert all(count == 1 for count in effects.values()), effects.most_common(3)
        jobs = {job for job, _ in effects}
        for job in jobs:
            assert sum((job, part) in effects for part in range(3)) == job % 3 + 1
        assert self.told.done <= jobs, f"told done, no effect: {sorted(self.told.done - jobs)}"
        left = Counter(v["n"] for v in values(db, "jobs"))
        assert all(count == 1 for count in left.values())
        assert not set(left) & jobs, "its effect is there, and the job is as well"
        assert set(left) | jobs == set(range(self.put)), "a job is lost"
        plain = Counter(v["n"] for v in values(db, "plain"))
        assert all(count == 1 for count in plain.values())
        assert set(range(self.put)) - set(plain) <= set(self.told.plain), "done without a worker"
        for name in ("jobs", "plain", "effects"):
            assert db.xlen(f"{name}:dead") == 0

    def run(self, delay_s: float | None) -> None:
        self.lives += 1
        names = [f"w{n}" if self.same_names else f"w{self.lives}.{n}" for n in range(2)]
        seed = self.dice.getrandbits(32)
        arguments = [self.policy, str(self.retry_after), str(seed), *names]
        ended = self.told.take(run_and_kill(self.directory, arguments, delay_s))
        self.kills += not ended

    def finish(self) -> None:
        with self.open() as db:
            self.verify(db)
        self.run(None)
        with self.open() as db:
            self.verify(db)
            for name in ("jobs", "plain"):
                queue: Any = db.queue(name)
                stats = queue.stats()
                assert stats.depth == len(queue) == db.xlen(name) == 0
                assert db.xpending(name, "workers")["pending"] == 0
                assert stats.dead == 0 and not any(stats.in_flight.values())
                assert db.xlen(f"{name}:holds") == 0, "nobody is paused, and yet it says so"
        assert set(self.told.started) == set(self.told.plain) == set(range(self.put))
        # Without a server all workers are in one process: there is nobody to lose a job to while it lives.
        assert not self.told.lost


def values(db: Any, name: str) -> list[Any]:
    """The values of all jobs that are not done. `peek` shows those that are due, retries too."""
    due = {job.id: job.value for job in db.queue(name).peek(1_000_000)}
    return [*due.values(), *(value for id, value in unfinished(db, name) if id not in due)]


def unfinished(db: Any, name: str) -> list[tuple[str, Any]]:
    import json

    if not db.exists(name) or not db.xinfo_groups(name):
        return []
    rows = db.xpending_range(name, "workers", "-", "+", 1_000_000)
    found = []
    for row in rows:
        ((_, fields),) = db.xrange(name, row["message_id"], row["message_id"])
        found.append((row["message_id"].decode(), json.loads(fields[b"value"])))
    return found


def rounds(directory: Path, policy: str, same_names: bool, count: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    life = Life(directory / "store", policy, same_names, seed)
    # Workers that have ended before this process had time to kill them were not in the middle of anything.
    while life.lives < count or (life.kills <= count // 2 and life.lives < 10 * count):
        life.more()
        life.run(life.dice.uniform(0.0, 0.12))
    life.finish()
    print(f"{life.kills} killed, {life.put} jobs, {life.told.started.total()} deliveries")
    assert life.kills > count // 2, "they were not in the middle of anything"


@pytest.mark.parametrize(
    ("policy", "same_names"), [("no", True), ("no", False), ("always", True), ("always", False)]
)
def test_killed_workers(tmp_path: Path, policy: str, same_names: bool) -> None:
    rounds(tmp_path, policy, same_names, 3)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", ["no", "everysec", "always"])
@pytest.mark.parametrize("same_names", [True, False])
@pytest.mark.parametrize("count", slow_and_soak(17, 100))
def test_a_hundred_killed_workers(
    tmp_path: Path, policy: str, same_names: bool, count: int
) -> None:
    """The rounds of all the slow ones together, and with each policy and choice of names in the soak."""
    rounds(tmp_path, policy, same_names, count)
