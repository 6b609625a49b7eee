"""A process that is stopped before it sees the jobs that it was sent: a delivery that no handler saw is no delivery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.until import parked, until

PROGRAM = Path(__file__).with_name("stuck_worker.py")
LEASE_S = 0.2  # by real time only in the process; the clock of the store is moved
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def stopped(bench: Bench) -> Iterator[Start]:
    """Start a process whose workers wait for jobs, and stop it."""
    children: list[subprocess.Popen[str]] = []

    def start(face: str, workers: int, most: int) -> subprocess.Popen[str]:
        args = [str(bench.root), face, str(workers), str(LEASE_S), str(most)]
        child = subprocess.Popen(
            [sys.executable, str(PROGRAM), *args], stdout=subprocess.PIPE, text=True
        )
        children.append(child)
        parked(bench.db, workers)
        os.kill(child.pid, signal.SIGSTOP)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def lease_ends(bench: Bench, since: float) -> None:
    """The lease of a job that was given at `since` ends, by both clocks."""
    until(lambda: time.monotonic() >= since + LEASE_S)
    bench.clock.advance(1)


def held(bench: Bench) -> Any:
    return bench.db.queue("mails").stats().in_flight


def said(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    os.kill(child.pid, signal.SIGCONT)
    lines = child.stdout.read().split("\n")
    assert child.wait(60) == 0
    return lines[:-1]


@pytest.mark.parametrize("name", ["worker", "other"])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_another_worker_gets_the_job_uncounted(
    bench: Bench, stopped: Start, face: str, most: int, name: str
) -> None:
    child = stopped(face, 1, most)
    client: Any = bench.connect() if face == "threads" else bench.awaited()
    mails = client.queue("mails", retry_after=LEASE_S, max_deliveries=most)
    mails.put("first")
    until(lambda: held(bench) == {"worker": 1})
    lease_ends(bench, time.monotonic())
    job = mails.get(name, block=0)
    assert job is not None and job.deliveries == 1
    mails.put("end")
    assert said(child) == ["end 1"]  # it got the reply of its first call, too
    assert job.ack()
    stats = mails.stats()
    assert (stats.depth, stats.dead) == (0, 0)


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_the_workers_of_the_stopped_process_itself_get_it_once(
    bench: Bench, stopped: Start, face: str
) -> None:
    """As `run` does: its other workers wait, too, and are as stuck."""
    child = stopped(face, 3, 1)
    mails = bench.connect().queue("mails", retry_after=LEASE_S, max_deliveries=1)
    mails.put("first")
    for waiting in 2, 1, 0:
        parked(bench.db, waiting)
        lease_ends(bench, time.monotonic())
    mails.put_many(["end"] * 3)
    assert sorted(said(child)) == ["end 1", "end 1", "end 1", "first 1"]
    stats = mails.stats()
    assert (stats.depth, stats.dead) == (0, 0)


def test_a_worker_that_waited_longer_than_its_lease_gets_its_job(bench: Bench) -> None:
    mails = bench.connect().queue("mails", retry_after=0.01, max_deliveries=1)
    consumer = mails.consume("worker", block=60)
    mails.put("first")
    with next(consumer) as job:
        assert job.value == "first"
