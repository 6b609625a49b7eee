"""`on_done` and `on_retry` of a run, and `on_retry` of a consumer: when they are called, and with which facts."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import KINDS, opened
from tests.client.faces.awaited import Awaited
from tests.client.owners import ended_owner, kill
from tests.jobs.worked import plain, work

import tidelog
from tidelog.disk.simulated import SimulatedDisk

CHILD = Path(__file__).with_name("hooks_worker.py")
FIXED = tidelog.RetryPolicy(max=3, base=0.001, backoff="constant", jitter=False)
ROOT = Path("/store")


@pytest.fixture(params=KINDS)
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A queue without jobs, through each face."""
    with opened(request.param, tmp_path / "store") as db:
        yield db.queue("jobs", retry=FIXED)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[tidelog.Queue]:
    with tidelog.queue(tmp_path / "store", "jobs", fsync="no", retry=FIXED) as found:
        yield found


class Told:
    """The calls of both hooks."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.again: list[tuple[Any, str, float]] = []
        self.states: set[tuple[str, str]] = set()

    async def on_done(self, job: Any, result: Any) -> None:
        self.states.add(("done", job.state))
        self.done.append((job.value, result))

    async def on_retry(self, job: Any, error: BaseException, delay: float) -> None:
        self.states.add(("again", job.state))
        self.again.append((job.deliveries, f"{type(error).__name__}: {error}", delay))


@pytest.fixture
def told() -> Iterator[Told]:
    found = Told()
    yield found
    assert found.states <= {("done", "acked"), ("again", "given")}


# --- on_done


@pytest.mark.parametrize("results", [False, True])
def test_each_job_that_is_done_is_told_with_what_its_handler_returned(
    results: bool, jobs: Any, told: Told
) -> None:
    jobs.put_many([1, 2])

    async def double(job: Any) -> int:
        return int(job.value) * 2

    work(jobs, double, on_done=told.on_done, on_retry=told.on_retry, results=results)
    assert told.done == [(1, 2), (2, 4)] and told.again == []


@pytest.mark.parametrize("how", ["ack", "ack, then raises", "release", "fail", "nack"])
def test_only_jobs_that_are_done_are_told(how: str, jobs: Any, told: Told) -> None:
    jobs.put("a", retry="max=2 base=600")
    verb, _, more = how.partition(", ")

    async def handle(job: Any) -> str:
        if verb != "release" or job.state == "open" and not released:
            released.append(job.id)
            ended = getattr(job, verb)()
            if not isinstance(ended, bool):
                await ended
        if more:
            raise LookupError("too late")
        return "result"

    released: list[str] = []
    work(jobs, handle, on_done=told.on_done)
    expected = {"ack": [("a", "result")], "ack, then raises": [("a", None)]}
    expected["release"] = [("a", "result")]  # it came again
    assert told.done == expected.get(how, [])


def test_it_is_called_when_the_disk_has_the_end() -> None:
    disk = SimulatedDisk(1)
    left: list[tuple[int, int]] = []

    def look(*told: Any) -> None:
        with tidelog.open(ROOT, disk=disk.synced()) as db:
            queue = db.queue("jobs")
            left.append((len(queue), len(queue.failures())))

    def handle(job: Any) -> None:
        if job.value == "fails":
            raise LookupError("no such address")

    with tidelog.open(ROOT, disk=disk, fsync="always") as db:
        queue = db.queue("jobs", max_deliveries=2, retry_after=60)
        queue.put("done")
        queue.run(handle, workers=1, block=0, on_done=look)
        queue.put("fails")
        queue.run(handle, workers=1, block=0, on_retry=look)
    assert left == [(0, 0), (1, 1)]


# --- on_retry


def test_each_retry_is_told_with_its_error_and_pause_and_a_death_is_not(
    jobs: Any, told: Told
) -> None:
    jobs.put("a")

    async def fail(job: Any) -> None:
        raise LookupError("no such address")

    for _ in range(3):
        work(jobs, fail, on_retry=told.on_retry, on_done=told.on_done, block=0.1)
    error = "LookupError: no such address"
    assert told.again == [(1, error, 0.001), (2, error, 0.001)] and told.done == []
    assert [dead.deliveries for dead in jobs.dead.list()] == [3]


@pytest.mark.parametrize(
    ("error", "given", "expected"),
    [
        (tidelog.RetryJob("later", delay=600), {}, [(1, "RetryJob: later", 600.0)]),
        (tidelog.RetryJob("later"), {"retry": "base=700 jitter=no"}, [(1, "RetryJob: later", 700)]),
        (tidelog.RetryJob("later", delay=600), {"retry": "max=1"}, []),
        (tidelog.GiveUp("no such customer"), {}, []),
        (ValueError("bad"), {"retry": "never=ValueError"}, []),
    ],
)
def test_the_policy_of_the_job_and_what_it_raises_decide(
    error: Exception, given: dict[str, Any], expected: Any, jobs: Any, told: Told
) -> None:
    jobs.put("a", **given)

    async def fail(job: Any) -> None:
        raise error

    work(jobs, fail, on_retry=told.on_retry)
    assert told.again == expected
    assert jobs.dead.count() == (not expected)


def test_the_pause_with_jitter_is_the_one_that_was_stored(jobs: Any, told: Told) -> None:
    jobs.put("a", retry="base=600")

    async def fail(job: Any) -> None:
        raise LookupError("no such address")

    work(jobs, fail, on_retry=told.on_retry)
    ((at, row),) = jobs.store.xrange("jobs:holds")
    stored = int(row[b"until"]) - int(at.split(b"-")[0])
    assert 450 <= told.again[0][2] <= 750
    assert abs(told.again[0][2] * 1000 - stored) < 50  # the entry's ID has the time of the unit


@pytest.mark.parametrize("reason", ["the quota is used up", LookupError("no such address")])
def test_a_handler_that_nacks_is_told_of_too(reason: Any, jobs: Any, told: Told) -> None:
    jobs.put("a")

    async def handle(job: Any) -> None:
        ended = job.nack(reason, delay=600)
        if not isinstance(ended, bool):
            await ended

    work(jobs, handle, on_retry=told.on_retry)
    kind = "RetryJob" if isinstance(reason, str) else "LookupError"
    assert told.again == [(1, f"{kind}: {reason}", 600.0)]


def test_a_consumer_tells_it(jobs: Any, told: Told) -> None:
    jobs.put("a", retry="base=600 jitter=no")
    on_retry: Any = told.on_retry if isinstance(jobs, Awaited) else plain(told.on_retry)
    for job in jobs.consume(block=0, on_retry=on_retry):
        with job:
            raise LookupError("no such address")
    assert told.again == [(1, "LookupError: no such address", 600.0)]


# --- hooks that raise, and those that are none


@pytest.mark.parametrize("error", [ValueError("the pager is down"), SystemExit(3)], ids=repr)
def test_a_hook_that_raises_is_logged_and_ends_nothing(
    error: BaseException, jobs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put_many(["good", "bad", "good"])

    async def handle(job: Any) -> None:
        if job.value == "bad":
            raise tidelog.RetryJob("later", delay=600)

    async def hook(*told: Any) -> None:
        raise error

    with caplog.at_level(logging.ERROR, "tidelog.queue"):
        work(jobs, handle, on_done=hook, on_retry=hook)
    said = [record for record in caplog.records if " raised " in record.getMessage()]
    names = [record.getMessage().split()[2] for record in said]
    assert names == ["on_done", "on_retry", "on_done"]
    assert all(type(error).__name__ in record.getMessage() and record.exc_info for record in said)
    assert len(jobs) == 1 and jobs.dead.count() == 0


def test_plain_functions_are_hooks_of_tasks(tmp_path: Path) -> None:
    told: list[Any] = []

    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "store", "jobs", fsync="no") as jobs:
            await jobs.put_many([1, 2])

            async def handle(job: tidelog.AsyncJob) -> None:
                if job.value == 2:
                    raise tidelog.RetryJob(delay=600)

            hooks: Any = {
                "on_done": lambda job, result: told.append("done"),
                "on_retry": lambda job, error, delay: told.append(delay),
            }
            await jobs.arun(handle, workers=1, block=0, **hooks)

    asyncio.run(main())
    assert told == ["done", 600.0]


async def _note(*told: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"on_done": 3}, "on_done must be a function that takes a job and its result, not 3"),
        ({"on_done": lambda job: None}, "a function that takes a job and its result"),
        ({"on_retry": lambda job, error: None}, "takes a job, an error and a delay"),
        ({"on_done": _note}, "must be a plain function"),
        ({"on_retry": _note}, "must be a plain function"),
        ({"on_done": lambda job, result: None, "batch": 2}, "on_done needs batch=1"),
    ],
)
def test_what_is_no_hook_is_refused(given: Any, says: str, queue: tidelog.Queue) -> None:
    with pytest.raises(tidelog.DataError, match=says):
        queue.run(print, **given)
    if "on_retry" in given:
        with pytest.raises(tidelog.DataError, match=says):
            queue.consume(**given)


# --- a worker that is killed


@pytest.mark.parametrize("backend", ["embedded", "shared"])
@pytest.mark.parametrize("place", ["on_done", "on_retry"])
def test_a_call_that_kill_9_cuts_off_is_not_made_again(
    place: str, backend: str, tmp_path: Path
) -> None:
    root, told = tmp_path / "store", Told()
    options: Any = {"retry": FIXED, "shared": backend == "shared"}
    with ended_owner(root):
        with tidelog.queue(root, "jobs", **options) as jobs:
            jobs.put("x")
        words = [sys.executable, str(CHILD), str(root), place, backend]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None and child.stdout.readline().split() == [place, "x"]
            child.kill()
        if backend == "shared":
            kill(root)
        with tidelog.queue(root, "jobs", **options) as jobs:
            hooks: Any = {"on_done": plain(told.on_done), "on_retry": plain(told.on_retry)}
            jobs.run(lambda job: job.deliveries, workers=1, block=0.1, **hooks)
            assert len(jobs) == 0
    assert told.done == ([("x", 2)] if place == "on_retry" else []) and told.again == []
