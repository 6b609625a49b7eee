"""Middleware of a run: what it can do around a handler, through each face."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import KINDS, opened
from tests.jobs.worked import work

import tidelog

HOUR = tidelog.RetryPolicy(base=3600, jitter=False)


@pytest.fixture(params=KINDS)
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A queue without jobs, through each face."""
    with opened(request.param, tmp_path / "store") as db:
        yield db.queue("jobs", retry=HOUR)


async def passing(job: Any, next: Any) -> Any:
    """A middleware that does nothing."""
    return await next(job)


def test_the_first_one_is_outermost_and_each_may_change_the_result(jobs: Any) -> None:
    handle = jobs.put(1)
    seen: list[str] = []

    async def named(name: str, job: Any, next: Any) -> Any:
        seen.append(f"{name} begins")
        result = await next(job)
        seen.append(f"{name} has {result}")
        return f"{name}({result})"

    async def handler(job: Any) -> str:
        seen.append("handler")
        return str(job.value)

    work(jobs, handler, results=True, middleware=[partial(named, "a"), partial(named, "b")])
    assert seen == ["a begins", "b begins", "handler", "b has 1", "a has b(1)"]
    assert jobs.result(str(handle), 0) == "a(b(1))" and len(jobs) == 0


def test_it_may_leave_the_handler_out(jobs: Any) -> None:
    handle, seen = jobs.put("seen before"), list[Any]()

    async def once(job: Any, next: Any) -> Any:
        return "nothing to do"

    async def handler(job: Any) -> None:
        seen.append(job.value)

    work(jobs, handler, results=True, middleware=[once])
    assert seen == [] and jobs.result(str(handle), 0) == "nothing to do" and len(jobs) == 0


@pytest.mark.parametrize("catches", [False, True])
@pytest.mark.parametrize("place", [0, 1])
def test_a_second_call_of_next_is_an_error_and_calls_nothing(
    place: int, catches: bool, jobs: Any
) -> None:
    jobs.put("x")
    seen: list[Any] = []

    async def twice(job: Any, next: Any) -> Any:
        await next(job)
        try:
            await next(job)
        except tidelog.CalledTwice:
            if not catches:
                raise

    async def handler(job: Any) -> None:
        seen.append(job.value)

    around = [passing, passing]
    around[place] = twice
    work(jobs, handler, middleware=around)
    assert seen == ["x"] and len(jobs) == (not catches)
    said = [failure.error for failure in jobs.failures()]
    assert len(said) == (not catches)
    assert all("twice called next a second time" in text for text in said)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("error", "left"),
    [
        (tidelog.RetryJob("later"), {"paused": 1, "dead": 0}),
        (tidelog.GiveUp("not for us"), {"paused": 0, "dead": 1}),
        (LookupError("no such address"), {"paused": 1, "dead": 0}),
    ],
    ids=repr,
)
def test_what_it_raises_counts_as_what_a_handler_raises(
    error: Exception, left: dict[str, int], before: bool, jobs: Any
) -> None:
    jobs.put("x")
    seen: list[Any] = []

    async def around(job: Any, next: Any) -> Any:
        if not before:
            await next(job)
        raise error

    async def handler(job: Any) -> None:
        seen.append(job.value)

    work(jobs, handler, middleware=[passing, around])
    stats = jobs.stats()
    assert {name: getattr(stats, name) for name in left} == left
    assert seen == ["x"] * (not before)


def test_it_may_catch_what_the_handler_raises(jobs: Any) -> None:
    handle = jobs.put("x")

    async def catching(job: Any, next: Any) -> Any:
        try:
            return await next(job)
        except LookupError as error:
            return f"caught {error}"

    async def handler(job: Any) -> None:
        raise LookupError("no such address")

    work(jobs, handler, results=True, middleware=[catching])
    assert jobs.result(str(handle), 0) == "caught no such address"


def test_a_context_variable_is_set_for_one_job(jobs: Any) -> None:
    tenant = ContextVar("tenant", default="nobody")
    jobs.put_many(["ann", "ben"])
    seen: list[tuple[str, str]] = []

    async def of_tenant(job: Any, next: Any) -> Any:
        before = tenant.get()
        tenant.set(job.value)
        seen.append((before, await next(job)))

    async def handler(job: Any) -> str:
        return tenant.get()

    work(jobs, handler, middleware=[of_tenant])
    assert seen == [("nobody", "ann"), ("nobody", "ben")]


def test_the_log_tells_how_long_each_job_took(jobs: Any, caplog: pytest.LogCaptureFixture) -> None:
    jobs.put_many([1, 2])

    async def handler(job: Any) -> None:
        if job.value == 2:
            raise LookupError("no such address")

    for level in (logging.INFO, logging.DEBUG):
        caplog.clear()
        with caplog.at_level(level, "tidelog.worker"):
            work(jobs, handler, worker="anna")
        lines = [record for record in caplog.records if " took " in record.getMessage()]
        assert all(line.levelno == logging.DEBUG for line in lines)
        facts = [(each.queue, each.worker, each.seconds < 60) for each in lines]  # type: ignore[attr-defined]
        assert facts == [("jobs", "anna", True)] * (0 if level == logging.INFO else 2)
        jobs.put_many([1, 2])


def test_an_object_and_a_tuple_will_do(tmp_path: Path) -> None:
    class Counting:
        count = 0

        def __call__(self, job: Any, next: tidelog.Next) -> Any:
            self.count += 1
            return next(job)

    counting = Counting()
    with tidelog.queue(tmp_path / "store", "jobs", fsync="no") as jobs:
        jobs.put_many(range(3))
        jobs.run(lambda job: None, workers=1, block=0, middleware=(counting,))
        assert counting.count == 3 and len(jobs) == 0


def plain(job: Any, next: Any) -> Any: ...


@pytest.mark.parametrize(
    ("middleware", "says"),
    [
        (None, "middleware must be a list of functions, not None"),
        (plain, "middleware must be a list of functions"),
        ([3], "a middleware must be a function that takes a job and `next`, not 3"),
        ([print, lambda job: None], "a function that takes a job and `next`"),
        ([plain, passing], "a middleware must be a plain function, as the handler is"),
    ],
)
def test_what_is_no_middleware_is_refused(middleware: Any, says: str, tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "store", "jobs", fsync="no") as jobs:
        with pytest.raises(tidelog.DataError, match=says):
            jobs.run(print, middleware=middleware)


def test_tasks_refuse_a_plain_one(tmp_path: Path) -> None:
    async def handler(job: Any) -> None: ...

    with opened("embedded asyncio", tmp_path / "store") as db:
        with pytest.raises(tidelog.DataError, match="must be an async function, as the handler is"):
            db.queue("jobs").arun(handler, middleware=[plain])
