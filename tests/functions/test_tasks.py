"""Functions that are jobs, on every face: put, called by workers, their results, and what cannot be called."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.functions.conftest import Make

import tidelog
from tidelog import EncodeError
from tidelog.functions.tasks import CODECS

EACH_CODEC = pytest.mark.parametrize("codec", CODECS)
LATER = datetime(2026, 1, 1, 3, tzinfo=UTC)


def work(tasks: tidelog.Tasks, *queues: str, **options: Any) -> None:
    """Work on all that is due."""
    tasks.run(queues or None, workers=2, block=0, **options)


def test_an_import_opens_nothing(tmp_path: Path) -> None:
    tasks = tidelog.tasks(tmp_path / "s", shared=False)

    @tasks.task
    def send(to: str) -> str:
        return f"sent to {to}"

    assert send("ann") == "sent to ann"
    assert not (tmp_path / "s").exists()
    assert (send.name, send.queue, tasks.queues) == ("send", "default", ["default"])
    assert send.__name__ == "send" and send.__wrapped__ is send.function  # type: ignore[attr-defined]


@EACH_CODEC
def test_a_put_is_a_call(make: Make, codec: str) -> None:
    tasks, called = make(codec=codec), []

    @tasks.task(queue="mails")
    def send(to: str, when: datetime = LATER, *copies: str, raw: bytes = b"") -> timedelta | None:
        called.append((to, when, copies, raw, tasks.job.deliveries))
        return None if to == "ben" else timedelta(seconds=90)

    handle = send.put("ann", LATER, "cy", "di", raw=b"\xff")
    ben = send.put(to="ben")
    assert isinstance(handle, tidelog.Handle)
    work(tasks)
    assert sorted(called) == [
        ("ann", LATER, ("cy", "di"), b"\xff", 1),
        ("ben", LATER, (), b"", 1),
    ]
    assert handle.result(timeout=10) == timedelta(seconds=90)
    with pytest.raises(tidelog.NoResult):
        ben.result(timeout=0)
    assert len(tasks.queue("mails")) == 0 and tasks.job is None


@EACH_CODEC
def test_the_same_for_asyncio(make: Make, codec: str) -> None:
    tasks, called = make(codec=codec), []

    @tasks.task(queue="mails", results=True)
    async def send(to: str, number: int = 1) -> None:
        await asyncio.sleep(0)
        called.append((to, number, tasks.job.deliveries, threading.current_thread().name))

    @tasks.task(queue="mails")
    def plain(number: int) -> int:
        called.append(("plain", number, tasks.job.deliveries, threading.current_thread().name))
        return number * 2

    async def main() -> None:
        handle: Any = await send.aput("ann")
        assert isinstance(handle, tidelog.AsyncHandle)
        assert await send.aput_many([{"to": "ben"}, send.call("cy", number=3)]) == 2
        double = await plain.aput(21)
        await send.adelay(0.001, to="di")
        await send.aat(datetime.now(UTC), to="eve")
        running = asyncio.create_task(tasks.arun(block=5, workers=2))
        assert await double.result(timeout=30) == 42
        assert await handle.result(timeout=30) is None  # `results=True` keeps it
        while len(called) < 6:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(main())
    assert {row[0] for row in called} == {"ann", "ben", "cy", "plain", "di", "eve"}
    assert {row[2] for row in called} == {1}
    assert {row[3] for row in called if row[0] == "plain"} == {"tidelog-task"}


def test_async_functions_are_run_by_threads_of_the_program_too(make: Make) -> None:
    """`run` begins an event loop if a function needs one."""
    tasks = make()

    @tasks.task
    async def double(number: int) -> int:
        return number * 2

    handle = double.put(4)
    work(tasks)
    assert handle.result(0) == 8


def test_every_option_of_a_put(make: Make) -> None:
    tasks = make()
    seen: dict[str, Any] = {}

    @tasks.task(queue="mails", priority=3, key="k", ttl=60, retry="backoff=constant max=2")
    def send(to: str) -> None:
        job = tasks.job
        seen[to] = job.priority, job.key, job.headers

    send.put("ann")
    send.using(priority=5, headers={"trace": "7"}).put("ben")
    assert [(job.priority, job.key) for job in tasks.queue("mails").peek()] == [(5, "k"), (3, "k")]
    assert send.put_many({"to": name} for name in ("cy", "di")) == 2
    send.using(delay=60).put("eve")
    send.at(datetime.now(UTC) + timedelta(hours=1), "fay")
    send.delay(timedelta(minutes=2), to="gus")
    assert len(tasks.queue("mails").peek(scheduled=True)) == 3
    work(tasks)
    assert seen == {
        "ann": (3, "k", {}),
        "ben": (5, "k", {"trace": "7"}),
        "cy": (3, "k", {}),
        "di": (3, "k", {}),
    }


def test_annotations_may_name_what_comes_later_in_a_module(make: Make) -> None:
    tasks = make()
    names: dict[str, Any] = {"tasks": tasks, "__name__": "module"}
    source = """
@tasks.task
def send(to: "Later") -> "Later": return to

urgent = send.using(priority=9)

class Later(__import__("enum").Enum):
    ONE = 1
"""
    exec(source, names)
    urgent: Any = names["urgent"]
    later: Any = names["Later"]
    handle = urgent.put(later.ONE)
    names["send"].put(later.ONE)
    work(tasks)
    assert handle.result(10) is later.ONE
    assert urgent.calls is names["send"].calls and urgent.queue == "default"


def test_the_same_call_is_one_job_until_it_is_done(make: Make) -> None:
    tasks = make()

    @tasks.task(dedup="until-done")
    def report(day: int, of: str = "all") -> None: ...

    first = report.put(3)
    assert report.put(day=3) == first != report.put(4) != report.put(3, "me")
    assert report.put_many([{"day": 3}, {"day": 5}]) == 2
    assert len(tasks.queue("default")) == 4
    work(tasks)
    assert report.put(3) != first


def test_a_job_is_done_and_puts_others(make: Make) -> None:
    tasks, called = make(), []

    @tasks.task(queue="a")
    def first(number: int) -> str:
        assert tasks.job.done_and(second.new(number + 1))
        return "the job is done already"

    @tasks.task(queue="b", priority=2)
    def second(number: int) -> None:
        called.append((number, tasks.job.priority))

    first.put(1)
    work(tasks, "a")
    work(tasks, "b")
    assert called == [(2, 2)]


def test_a_handle_tells_how_far_a_job_has_come(make: Make) -> None:
    tasks, told = make(), []

    @tasks.task
    def slow(number: int) -> None:
        tasks.job.progress(0.5, "half")
        told.append(handles[number].progress())

    handles = [slow.put(0)]

    async def main() -> Any:
        return await (await slow.aput(0)).progress()

    work(tasks)
    assert told[0] is not None and (told[0].fraction, told[0].text) == (0.5, "half")
    assert asyncio.run(main()) is None and handles[0].progress() is None


def test_what_a_function_raises_is_retried(make: Make) -> None:
    tasks, tries = make(), []

    @tasks.task(retry=tidelog.RetryPolicy(max=3, backoff="constant", base=0.001, jitter=False))
    def fragile() -> int:
        tries.append(tasks.job.deliveries)
        if len(tries) < 3:
            raise ConnectionError("no route")
        return len(tries)

    handle = fragile.put()
    tasks.run(workers=1, block=2, drain=5)
    assert handle.result(0) == 3 and tries == [1, 2, 3]


# --- what cannot be called


def broken_jobs(tasks: tidelog.Tasks) -> list[tuple[str, int]]:
    return [(job.reason, job.deliveries) for job in tasks.queue("mails").dead]


def test_an_unknown_function_is_dead_at_once_and_a_redrive_calls_it(make: Make) -> None:
    before, after, called = make(), make(), []

    @before.task(queue="mails", name="send")
    def old(to: str) -> None: ...

    @before.task(queue="mails", name="renamed")
    def other() -> None: ...

    @after.task(queue="mails", name="kept")
    def kept() -> None: ...

    old.put("ann")
    if after.shared:
        work(after, "mails")
    else:  # one process has one store open
        before.close()
        work(after, "mails")
    assert broken_jobs(after) == [("there is no task 'send' here; those that there are: kept", 1)]

    @after.task(queue="mails", name="send")
    def mended(to: str) -> None:
        called.append(to)

    assert after.queue("mails").dead.redrive() == 1
    work(after)
    assert called == ["ann"]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"to": "ann", "cc": "ben"}, "task send takes no argument 'cc', which the job has"),
        ({}, "task send needs 'to', which the job does not have"),
        ({"to": 7}, "task send: argument 'to' of the job must be str, not int"),
        (
            {"to": "ann", "when": "noon"},
            "task send: argument 'when' of the job is no datetime: "
            "ValueError: Invalid isoformat string: 'noon'",
        ),
        (["ann"], "the job has no arguments for task send"),
    ],
)
def test_a_changed_signature_is_dead_at_once(tmp_path: Path, args: Any, reason: str) -> None:
    tasks = tidelog.tasks(tmp_path / "s", shared=False, fsync="no")

    @tasks.task(queue="mails")
    def send(to: str, when: datetime | None = None) -> None: ...

    with tasks:
        tasks.queue("mails").put({"task": "send", "args": args})
        work(tasks)
        assert broken_jobs(tasks) == [(reason, 1)]


def test_a_job_that_no_task_put_is_dead_at_once(tmp_path: Path) -> None:
    tasks = tidelog.tasks(tmp_path / "s", shared=False, fsync="no")

    @tasks.task(queue="mails")
    def send(to: str) -> None: ...

    with tasks:
        tasks.queue("mails").put_many(["ann", {"to": "ann"}, {"task": ["send"]}])
        work(tasks)
        assert broken_jobs(tasks) == [("the job calls no task: it was not put by one", 1)] * 3


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (object(), "it is of type object, and has no annotation that restores it"),
        ((1, 2), "it is of type tuple, and has no annotation that restores it"),
        ([float("nan")], "Out of range float values are not JSON compliant"),
    ],
)
def test_a_result_that_cannot_be_kept_is_dead(tmp_path: Path, returned: Any, reason: str) -> None:
    """A retry would do the work once more."""
    tasks = tidelog.tasks(tmp_path / "s", shared=False, fsync="no")

    @tasks.task(queue="mails")
    def make(): return returned  # type: ignore[no-untyped-def]  # fmt: skip

    with tasks:
        handle = make.put()
        work(tasks)
        ((said, deliveries),) = broken_jobs(tasks)
        assert said.startswith(f"what task make returned cannot be kept: {reason}")
        assert deliveries == 1
        with pytest.raises(tidelog.JobFailed):
            handle.result(0)


def test_a_result_has_a_megabyte_at_most(make: Make) -> None:
    tasks = make()

    @tasks.task(queue="mails")
    def text(size: int) -> str:
        return "x" * size

    fits, too_long = text.put(999_998), text.put(999_999)
    work(tasks)
    assert len(fits.result(10)) == 999_998
    assert broken_jobs(tasks) == [
        (
            "what task text returned has 1,000,001 bytes, and a result may have 1,000,000: let the function store it "
            "elsewhere, and return its place",
            1,
        )
    ]
    with pytest.raises(tidelog.JobFailed, match="1,000,001 bytes"):
        too_long.result(0)


# --- what is refused


def test_arguments_that_the_function_does_not_take(make: Make) -> None:
    tasks = make()

    @tasks.task
    def send(to: str, number: int = 1) -> None: ...

    wrong: Any = send
    with pytest.raises(TypeError, match="send: missing a required argument: 'to'"):
        wrong.put()
    with pytest.raises(TypeError, match="send: got an unexpected keyword argument 'cc'"):
        wrong.put(to="ann", cc="ben")
    with pytest.raises(EncodeError, match="task send: argument 'number' must be int, not str"):
        wrong.put("ann", number="3")
    with pytest.raises(EncodeError, match="argument 'to' must be str, not datetime") as caught:
        wrong.put_many([{"to": "ann"}, {"to": LATER}])
    assert caught.value.stored == 1
    with pytest.raises(tidelog.DataError, match="arguments of a job by name, not 'ann'"):
        wrong.put_many(["ann"])
    assert len(tasks.queue("default")) == 1


def test_options_that_are_wrong_are_refused_where_they_stand(tmp_path: Path) -> None:
    tasks: Any = tidelog.tasks(tmp_path / "s")
    with pytest.raises(tidelog.DataError, match="priority must be"):
        tasks.task(priority=10)(len)
    with pytest.raises(TypeError, match="prio"):
        tasks.task(prio=1)(len)
    with pytest.raises(tidelog.DataError, match="'window', 'until-done'|dedup"):
        tasks.task(dedup="sometimes")(len)
    with pytest.raises(tidelog.DataError, match="codec of tasks must be one of json, msgpack"):
        tidelog.tasks(tmp_path / "s", codec="pickle")
    with pytest.raises(tidelog.DataError, match="a task must be a function, not 7"):
        tasks.task(7)
    with pytest.raises(tidelog.DataError, match="no function is a task"):
        tasks.run()

    def made() -> Any:
        def send() -> None: ...

        return send

    tasks.task(made())
    tasks.task(made())  # as a module that is loaded again
    with pytest.raises(tidelog.DataError, match="two functions are the task 'send'"):
        tasks.task(name="send")(len)
    assert not (tmp_path / "s").exists()


def names_of_queues(given: Any, tasks: tidelog.Tasks) -> None:
    tasks.run(given, block=0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a", "x"], "no task is of the queue 'x'; those that there are: a"),
        ([], "at least one"),
        (["a", "a"], "each once"),
        ("a", "queues must be names"),
        ({"a": 0}, "a weight must be an integer from 1 to 1,000, not 0"),
        ({"a": True}, "not True"),
    ],
)
def test_queues_that_are_wrong(tmp_path: Path, given: Sequence[str], said: str) -> None:
    tasks = tidelog.tasks(tmp_path / "s", shared=False)

    @tasks.task(queue="a")
    def task() -> None: ...

    with pytest.raises(tidelog.DataError, match=said):
        names_of_queues(given, tasks)
    assert not (tmp_path / "s").exists()


# --- the object


_module = tidelog.tasks("never-opened")


@_module.task
def of_a_module() -> None: ...


def test_a_task_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(of_a_module)) is of_a_module


def test_a_store_is_opened_again_after_a_close(make: Make) -> None:
    tasks = make()

    @tasks.task
    def number() -> int:
        return 7

    with tasks:
        first = number.put()
    with tasks:
        second = number.put()
        work(tasks)
        assert second.result(0) == 7 and first != second


def test_queues_have_options_of_their_own(make: Make) -> None:
    tasks = make(retry_after=7, queues={"slow": {"max_depth": 1}})

    @tasks.task(queue="slow", timeout=0)
    def slow() -> None: ...

    @tasks.task(queue="fast")
    def fast() -> None: ...

    slow.put()
    fast.put(), fast.put()
    with pytest.raises(tidelog.QueueFull):
        slow.put()


def test_a_run_ends_when_the_store_is_closed(make: Make) -> None:
    tasks, begun = make(), threading.Event()

    @tasks.task(queue="a")
    def task() -> None:
        begun.set()

    @tasks.task(queue="b")
    def other() -> None: ...

    for queues in (["a"], ["b", "a"]):
        begun.clear()
        task.put()
        running = threading.Thread(target=tasks.run, args=(queues,), kwargs={"workers": 3})
        running.start()
        assert begun.wait(30)
        tasks.close()
        running.join(30)
        assert not running.is_alive()
