"""`testing.inline` and `testing.stepwise`, and schedules of tasks, whose clock they turn."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.conftest import nothing_stays_behind, quiet

import tidelog
from tidelog import testing

__all__ = ["nothing_stays_behind", "quiet"]


@pytest.fixture
def tasks(tmp_path: Path) -> tidelog.Tasks:
    """Tasks of a store that no test here opens."""
    return tidelog.tasks(tmp_path / "production", retry_after=10)


def test_a_put_runs_at_once(tasks: tidelog.Tasks) -> None:
    called: list[Any] = []

    @tasks.task(queue="a")
    def first(number: int) -> int:
        called.append(("first", number, tasks.job.deliveries))
        if number < 3:
            first.put(number + 1)
        return number * 2

    @tasks.task(queue="b")
    async def second(wait: timedelta) -> str:
        await asyncio.sleep(0)
        called.append(("second", wait))
        tasks.job.done_and(first.new(7)) if wait else None
        return "done"

    with testing.inline(tasks):
        assert first.put(1).result(timeout=0) == 2
        assert called == [("first", number, 1) for number in (1, 2, 3)]
        assert second.put(timedelta(0)).result(timeout=0) == "done"
        second.put(wait=timedelta(seconds=1))
        assert called[3:] == [
            ("second", timedelta(0)),
            ("second", timedelta(0, 1)),
            ("first", 7, 1),
        ]
        assert first.put_many([{"number": 8}, {"number": 9}]) == 2
        assert [row[1] for row in called[6:]] == [8, 9]
    assert tasks.at_once is None and not Path(tasks.where).exists()


def test_a_put_runs_at_once_for_asyncio(tasks: tidelog.Tasks) -> None:
    called: list[Any] = []

    @tasks.task
    async def double(number: int) -> int:
        called.append(number)
        return number * 2

    @tasks.task
    def plain(number: int) -> int:
        return number * 3

    async def main() -> None:
        handle = await double.aput(3)
        assert called == [3] and await handle.result(timeout=0) == 6
        assert await (await plain.aput(3)).result(timeout=0) == 9
        assert await double.aput_many([{"number": 4}]) == 1 and called == [3, 4]
        assert double.put(5).result(0) == 10  # from a coroutine, too

    with testing.inline(tasks):
        asyncio.run(main())


def test_what_a_function_raises_leaves_the_put(tasks: tidelog.Tasks) -> None:
    tries: list[int] = []

    @tasks.task
    def fragile() -> int:
        tries.append(tasks.job.deliveries)
        if len(tries) < 2:
            raise ConnectionError("no route")
        return 7

    with testing.inline(tasks) as steps:
        with pytest.raises(ConnectionError, match="no route"):
            fragile.put()
        assert steps.run_all() == []
        steps.clock.advance(20)
        assert steps.run_all() == ["fragile"] and tries == [1, 2]


def test_a_value_that_no_job_can_hold_is_found(tasks: tidelog.Tasks) -> None:
    @tasks.task
    def send(to: Any) -> None: ...

    with (
        testing.inline(tasks),
        pytest.raises(tidelog.EncodeError, match="argument 'to' is of type object"),
    ):
        send.put(object())


def test_step_by_step(tasks: tidelog.Tasks) -> None:
    called: list[str] = []

    @tasks.task(queue="a")
    def send(to: str) -> str:
        called.append(to)
        if to == "bad":
            raise ConnectionError(to)
        return to.upper()

    @tasks.task(queue="b")
    async def other() -> None: ...

    clock = testing.Clock()
    with testing.stepwise(tasks, clock=clock) as steps:
        assert steps.clock is clock and steps.run_one() is None
        ann = send.put("ann")
        send.put("ben"), other.put(), send.delay(60, "later")
        assert called == []
        assert [steps.run_one() for _ in range(3)] == ["send", "other", "send"]  # by even turns
        assert ann.result(0) == "ANN" and steps.run_one() is None
        clock.advance(60)
        assert steps.run_all() == ["send"] and called == ["ann", "ben", "later"]
        send.put("bad")
        assert steps.run_one() == "send"  # recorded, for a retry
        (failure,) = tasks.queue("a").failures()
        assert failure.error == "ConnectionError: bad"

        async def main() -> None:
            await send.aput("cy")
            assert await steps.arun_all() == ["send"] and called[-1] == "cy"

        asyncio.run(main())


def test_the_store_of_before_comes_back(tmp_path: Path) -> None:
    tasks = tidelog.tasks(tmp_path / "s", shared=False, fsync="no")

    @tasks.task
    def send() -> None: ...

    with tasks:
        send.put()
        with testing.stepwise(tasks) as steps:
            assert steps.run_all() == []
        assert len(tasks.queue("default")) == 1


# --- schedules


def test_a_schedule_puts_a_task(tasks: tidelog.Tasks) -> None:
    called: list[Any] = []

    @tasks.cron("0 3 * * *", tz="Europe/Berlin", args={"of": "all"})
    @tasks.task(queue="reports", priority=4)
    def nightly(of: str) -> None:
        called.append((of, tasks.job.priority, steps.clock.now().hour))

    @tasks.cron(every=timedelta(hours=1), name="hourly")
    async def tick() -> None:
        called.append("tick")

    with testing.stepwise(tasks) as steps:
        names = [(each.name, each.queue) for each in tasks.store.schedules.list()]
        assert names == [("hourly", "default"), ("nightly", "reports")]
        assert steps.run_all() == []
        steps.clock.advance(3 * 3600)
        assert sorted(steps.run_all()) == ["nightly", "tick"]
        assert called[-1] == ("all", 4, 3) or called[0] == ("all", 4, 3)


def test_the_job_of_a_schedule_has_all_options_of_its_task(tasks: tidelog.Tasks) -> None:
    """A schedule stores none of them: its job is a tick, and the real one takes its place."""
    called: list[Any] = []

    @tasks.cron(every=60, catch_up="all")
    @tasks.task(queue="reports", key="k", retry="backoff=constant max=2", dedup="until-done")
    def report() -> None:
        called.append((tasks.job.key, str(tasks.job.retry), tasks.job.dedup_id))

    with testing.stepwise(tasks) as steps:
        steps.clock.advance(120)
        assert [steps.run_one(), steps.run_one()] == ["report", "report"] and called == []  # ticks
        assert steps.run_all() == ["report"]  # of both ticks one, since the first was not done
        ((key, retry, dedup_id),) = called
        assert (key, retry) == ("k", "backoff=constant max=2") and dedup_id.startswith("report:")


def test_schedules_that_are_wrong(tasks: tidelog.Tasks) -> None:
    @tasks.cron("0 3 * * *")
    @tasks.task
    def send(to: str) -> None: ...

    with pytest.raises(tidelog.DataError, match="two schedules have the name 'send'"):
        tasks.cron(every=60, name="send")(lambda: None)
    with pytest.raises(TypeError, match="send: missing a required argument: 'to'"):
        with testing.stepwise(tasks):
            pass
