"""`tidelog worker` with limits of time: what hangs stops no other job, and processes are replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.owners import ended_owner
from tests.tools.conftest import Run
from tests.tools.test_worker import place
from tests.until import PATIENCE_S

import tidelog
from tidelog.client import processes
from tidelog.disk.process import environment
from tidelog.tools import exits
from tidelog.tools.worker.command import count_of

__all__ = ["place"]  # a fixture

WORK = r"""
import asyncio, os, time

def named(function):
    def handle(job):
        return function(job)
    return handle

@named
def send(job):
    if job.value == "hangs":
        time.sleep(600)
    said(job)

def said(job):
    print(f"sent {job.value} {job.deliveries} {os.getpid()}\n", end="", flush=True)

async def asend(job):
    if job.value == "hangs":
        await asyncio.sleep(600)
    said(job)
"""


@pytest.fixture
def shop(place: Path) -> Iterator[Path]:  # noqa: F811
    """A store with one job that hangs and five others, beside the module `limited`."""
    (place / "limited.py").write_text(WORK)
    with tidelog.queue(place / "s", "mails", fsync="no") as mails:
        mails.put_many(["hangs", *range(5)])
    with ended_owner(place / "s"):
        yield place / "s"
    sys.modules.pop("limited", None)


def worker(shop: Path, function: str, *words: Any) -> subprocess.CompletedProcess[str]:
    """A worker in a process of its own, which ends with success."""
    line = [sys.executable, "-m", "tidelog", "worker", str(shop), "mails", function]
    done = subprocess.run(
        [*line, *map(str, words)],
        cwd=shop.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
    )
    assert done.returncode == exits.OK, done.stderr
    return done


def sent(said: str) -> list[list[str]]:
    """Value, deliveries and process of each job that was sent."""
    return sorted(line.split()[1:] for line in said.splitlines() if line.startswith("sent"))


def dead(shop: Path) -> list[Any]:
    with tidelog.open(shop, read_only=True) as db:
        mails = db.queue("mails")
        assert len(mails) == 0
        return [(job.value, job.errors[-1].error) for job in mails.dead]


LATE = "TimeLimitExceeded: the handler worked for more than 1 s"
ONCE = ("--max-deliveries", 1, "--time-limit", 1)
EMBEDDED = ("--embedded", "--until-idle", 3)


@pytest.mark.parametrize("function", ["send", "asend"])
def test_a_job_that_hangs_stops_no_worker(shop: Path, function: str) -> None:
    done = worker(shop, f"limited:{function}", *EMBEDDED, *ONCE)
    found = sent(done.stdout)
    assert [job[:2] for job in found] == [[str(value), "1"] for value in range(5)]
    own = re.search(r"-(\d+)-\d+ takes jobs with 4", done.stderr)
    assert own is not None
    assert all((pid == own[1]) is (function == "asend") for *_, pid in found)
    assert dead(shop) == [("hangs", LATE)]


def test_a_process_of_which_half_hang_is_replaced(
    shop: Path,
) -> None:
    words = ("--isolate", "thread", "--workers", 2, "--max-deliveries", 2, "--retry-after", 0.1)
    done = worker(shop, "limited:send", *EMBEDDED, *words, "--time-limit", 1)
    found = sent(done.stdout)
    assert [job[:2] for job in found] == [[str(value), "1"] for value in range(5)]
    assert dead(shop) == [("hangs", LATE)]
    assert done.stderr.count("half of the workers of the queue 'mails' hang") == 2
    assert "starts another one in" not in done.stderr  # without a pause


def test_a_process_that_nobody_replaces_says_so(run: Run, shop: Path) -> None:
    with tidelog.queue(shop, "mails") as mails:
        mails.purge()
        mails.put("hangs", time_limit=0.1)  # which the command does not know
    words = ("--workers", 2, "--max-deliveries", 1)
    done = run("worker", shop, "mails", "limited:send", *EMBEDDED, *words)
    assert done.code == exits.AGAIN == processes.AGAIN
    assert "this process ends, to be started again" in done.err


def test_a_process_ends_after_so_many_jobs(
    shop: Path,
) -> None:
    words = (*EMBEDDED, "--max-jobs", 3, "--workers", 1, "--batch", 4)
    done = worker(shop, "limited:said", *words)
    found = sent(done.stdout)
    assert [job[:2] for job in found] == [
        *([str(value), "1"] for value in range(5)),
        ["hangs", "1"],
    ]
    pids = [pid for *_, pid in found]
    assert len(set(pids)) == 2 and all(pids.count(pid) == 3 for pid in pids)


def test_options_that_do_not_fit(run: Run, shop: Path) -> None:
    done = run("worker", shop, "mails", "limited:asend", *EMBEDDED, "--isolate", "process")
    assert done.code == exits.USAGE and "an async one is cancelled" in done.err
    for words, said in (
        (("--processes", "all"), "'all' is neither auto nor a number from 1 to 256"),
        (("--processes", 0), "'0' is neither auto"),
        (("--max-memory", "much"), "'much' is no size such as 500mb"),
        (("--max-memory", 0), "'0' is no size"),
        (("--max-jobs", 0), "max-jobs"),
    ):
        done = run("worker", shop, "mails", "limited:said", *words)
        assert done.code == exits.USAGE and said in done.err


def test_auto_is_a_process_for_each_processor() -> None:
    assert count_of(None, None, "auto") == len(os.sched_getaffinity(0))
