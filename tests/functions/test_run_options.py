"""The options of a run of tasks: those of a queue's run, for one queue and several, and to the last process."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.client.owners import ended_owner
from tests.functions.conftest import Make
from tests.rounds import rest_slow
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.functions.running import LEFT_OUT, LoopArguments, RunArguments, RunOptions
from tidelog.tools.worker.command import command, words_of
from tidelog.tools.worker.tasks import NAMES, OF_COMMAND, OF_TASKS, run_options

FIELDS = {field.name: field.default for field in dataclasses.fields(RunOptions)}
FACES = ["threads", "asyncio"]
# For each option a value that a run refuses with the name of the option.
WRONG: dict[str, Any] = {
    **dict.fromkeys(("workers", "processes", "max_jobs", "max_memory"), 0),
    **dict.fromkeys(("drain", "block", "time_limit"), -1),
    **dict.fromkeys(("on_dead", "on_retry", "on_done", "middleware"), 7),
    **{"worker": "", "isolate": "thread"},
}
# For each option words of the command line, and what they give.
GIVEN: dict[str, tuple[list[str], Any]] = {
    "workers": (["--workers", "7"], 7),
    "drain": (["--drain", "2m"], 120.0),
    "worker": (["--name", "w"], "w"),
    "block": (["--until-idle", "3"], 3.0),
    "time_limit": (["--time-limit", "4"], 4.0),
    "on_dead": (["--on-dead", "m:dead"], "m:dead"),
    "on_retry": (["--on-retry", "m:retry"], "m:retry"),
    "on_done": (["--on-done", "m:done"], "m:done"),
    "middleware": (["--middleware", "m:one", "--middleware", "m:two"], ("m:one", "m:two")),
    "isolate": (["--isolate", "process"], "process"),
    "max_jobs": (["--max-jobs", "9"], 9),
    "max_memory": (["--max-memory", "500mb"], 500 * 1024**2),
}


def test_a_run_has_the_options_of_a_queue() -> None:
    theirs = inspect.signature(tidelog.Queue.run).parameters
    known = {name: one.default for name, one in theirs.items() if one.kind is one.KEYWORD_ONLY}
    assert FIELDS == {name: value for name, value in known.items() if name not in LEFT_OUT}
    assert LEFT_OUT.keys() <= known.keys() and RunArguments.__annotations__.keys() == FIELDS.keys()
    loop = inspect.signature(tidelog.AsyncQueue.arun).parameters.keys() - LEFT_OUT.keys()
    assert LoopArguments.__annotations__.keys() == loop - {"self", "handler"}


@pytest.mark.parametrize("queues", ["a", "ab"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", FIELDS)
def test_each_option_reaches_the_queues(tmp_path: Path, name: str, face: str, queues: str) -> None:
    tasks: Any = tidelog.tasks(tmp_path / "s", shared=False, fsync="no")
    for queue in queues:
        tasks.task(queue=queue, name=queue)(_wait if face == "asyncio" else _nothing)
    with tasks, pytest.raises(tidelog.DataError, match=name):
        tasks.run(**{"block": 0, name: WRONG[name]})


async def _wait() -> None: ...


def _nothing() -> None: ...


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_option_that_is_left_out_says_why(tmp_path: Path, name: str) -> None:
    tasks: Any = tidelog.tasks(tmp_path / "s")
    with pytest.raises(tidelog.DataError, match=f"{name} is no option of a run of tasks: "):
        tasks.run(**{name: 2})


def test_each_option_reaches_the_worker_and_its_children() -> None:
    assert GIVEN.keys() | OF_COMMAND.keys() == FIELDS.keys() and OF_COMMAND.keys() == {"processes"}
    words = [word for given, _ in GIVEN.values() for word in given]
    parsed = command.make_context("worker", ["shop", *words]).params
    expected = RunOptions(**{name: value for name, (_, value) in GIVEN.items()})
    assert run_options(parsed) == expected
    assert all(getattr(expected, name) != FIELDS[name] for name in GIVEN)
    used = {name: value for name, value in parsed.items() if name in OF_TASKS and name != "path"}
    child = command.make_context("worker", words_of("shop", None, None, used)).params
    assert run_options(child) == expected and child["child"]
    assert set(NAMES) <= set(FIELDS)


# --- what they do


@contextmanager
def running(tasks: tidelog.Tasks, queues: Any = None, **options: Any) -> Iterator[None]:
    """Run until the end of the block, in a thread."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            tasks.run(queues, **options)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        tasks.close(drain=5)
        thread.join(PATIENCE_S)
    assert not thread.is_alive() and not errors


def declared(tasks: tidelog.Tasks, face: str, queue: str) -> Any:
    """A task that does not fail, or fails as often as it is told."""

    def plain(number: int, failures: int = 0) -> int:
        if tasks.job.deliveries <= failures:
            raise LookupError(f"no {number}")
        return number

    async def coroutine(number: int, failures: int = 0) -> int:
        return plain(number, failures)

    function: Any = plain if face == "threads" else coroutine
    policy = tidelog.RetryPolicy(max=2, backoff="constant", base=0.001, jitter=False)
    return tasks.task(queue=queue, name=queue, retry=policy)(function)


@pytest.mark.parametrize("queues", rest_slow(["ab", "a"], 1))
@pytest.mark.parametrize("face", FACES)
def test_hooks_and_middleware(make: Make, face: str, queues: str) -> None:
    tasks, said, lock = make(), set[tuple[Any, ...]](), threading.Lock()

    def say(*what: Any) -> None:
        with lock:
            said.add(what)

    def around(job: Any, next: Any) -> Any:
        say("around", job.value["task"], job.value["args"]["number"])
        return next(job)

    async def waits(job: Any, next: Any) -> Any:
        say("around", job.value["task"], job.value["args"]["number"])
        return await next(job)

    found = {queue: declared(tasks, face, queue) for queue in queues}
    handles = [task.put(number) for task in found.values() for number in (1, 2)]
    expected = set[tuple[Any, ...]]()
    for queue in queues:
        expected |= {("done", queue, number) for number in (1, 2, 3)}
        expected |= {("around", queue, number) for number in (1, 2, 3, 4)}
        expected |= {("retry", queue, "no 3", 0.001), ("retry", queue, "no 4", 0.001)}
        expected.add(("dead", queue, 4))
    with running(
        tasks,
        on_done=lambda job, result: say("done", job.value["task"], result),
        on_retry=lambda job, error, pause: say("retry", job.value["task"], str(error), pause),
        on_dead=lambda job: say("dead", job.queue, job.value["args"]["number"]),
        middleware=[waits if face == "asyncio" else around],
    ):
        for task in found.values():
            task.put(3, failures=1), task.put(4, failures=2)
        until(lambda: said >= expected, "not all was told")
        assert [handle.result(0) for handle in handles] == [1, 2] * len(queues)
    assert said == expected


@pytest.mark.parametrize("face", FACES)
def test_a_middleware_decides_what_is_kept(make: Make, face: str) -> None:
    """Its result is that of the job, and what it raises behind the function fails the job."""
    tasks = make(max_deliveries=1)
    task = declared(tasks, face, "a")

    def changes(job: Any, result: int) -> int:
        if result == 2:
            raise LookupError("not this one")
        return 10 * result

    def plain(job: Any, next: Any) -> int:
        return changes(job, next(job))

    async def coroutine(job: Any, next: Any) -> int:
        return changes(job, await next(job))

    handles = [task.using(retry=None).put(number) for number in (1, 2)]
    tasks.run(block=0, middleware=[plain if face == "threads" else coroutine])
    assert handles[0].result(0) == 10
    with pytest.raises(tidelog.JobFailed, match="not this one"):
        handles[1].result(0)


def test_a_queue_whose_deaths_cannot_be_read_silences_no_other(make: Make) -> None:
    tasks, dead = make(), list[str]()
    declared(tasks, "threads", "a")
    task = declared(tasks, "threads", "b")
    tasks.store.set("a:dead", "no stream")
    with running(tasks, on_dead=lambda job: dead.append(job.queue)):
        task.put(1, failures=2)
        until(lambda: dead == ["b"], "nobody tells of the death")


def test_a_plain_function_that_hangs_among_async_ones_is_counted(tmp_path: Path) -> None:
    tasks, go = tidelog.tasks(tmp_path / "s", shared=False, fsync="no"), threading.Event()

    @tasks.task(queue="a", time_limit=0.05)
    def hangs() -> None:
        go.wait(PATIENCE_S)

    @tasks.task(queue="a")
    async def other() -> None: ...

    with tasks:
        hangs.put()
        try:
            with pytest.raises(tidelog.WorkersHang):
                tasks.run(workers=2, drain=0)
        finally:
            go.set()


# --- in other processes

SHOP = """
import os, sys, time
import tidelog

tasks = tidelog.tasks("s", fsync="no", max_deliveries=1)

@tasks.task(queue="a")
def pid(extra: int = 0) -> int:
    other.put(1)
    return os.getpid()

@tasks.task(queue="b")
def other(number: int) -> bytes:
    assert tasks.job.done_and(last.new(number))

@tasks.task(queue="b", time_limit=0.3)
def hangs() -> None:
    time.sleep(600)

@tasks.task(queue="c", results=True)
def last(number: int) -> bytes:
    return bytes([number])

def around(job, next):
    print("around", job.value["task"], flush=True)
    return next(job)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module `shop` of the working directory, with tasks of the store `s`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    with ended_owner(tmp_path / "s"):
        found: Any = import_module("shop")
        yield found
        found.tasks.close()
    sys.modules.pop("shop", None)


@pytest.mark.parametrize("shared", rest_slow([False, True], 1))
def test_functions_work_in_processes_of_their_own(
    shop: Any, shared: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    shop.tasks.shared = shared
    done: dict[str, Any] = {}
    handle, hanging = shop.pid.put(), shop.hangs.put()
    with running(
        shop.tasks,
        workers=2,
        isolate="process",
        middleware=[shop.around],
        on_done=lambda job, result: done.update({job.value["task"]: result}),
    ):
        assert handle.result(PATIENCE_S) != os.getpid()
        until(lambda: len(done) == 3, "not all is done")
        with pytest.raises(tidelog.JobFailed, match="TimeLimitExceeded"):
            hanging.result(PATIENCE_S)
        assert done == {"pid": handle.result(0), "other": None, "last": b"\x01"}
    assert sorted(capfd.readouterr().out.split()[1::2]) == ["hangs", "last", "other", "pid"]


@pytest.mark.slow
def test_several_processes_work_on_several_queues(shop: Any) -> None:
    handles = [shop.pid.put(number) for number in range(20)]
    with running(shop.tasks, {"a": 3, "b": 1, "c": 1}, processes=2, workers=1, max_jobs=9):
        pids = {handle.result(PATIENCE_S) for handle in handles}
        assert os.getpid() not in pids and len(pids) >= 2
        until(lambda: all(len(shop.tasks.queue(name)) == 0 for name in "abc"), "a job is left")


def test_what_processes_refuse(shop: Any, tmp_path: Path) -> None:
    tasks: Any = tidelog.tasks(tmp_path / "s", shared=False)
    tasks.task(name="local")(lambda: None)
    with tasks:
        with pytest.raises(tidelog.DataError, match="several processes need shared tasks"):
            tasks.run(processes=2)
        with pytest.raises(tidelog.DataError, match="another process cannot import the handler"):
            tasks.run(isolate="process", block=0)
        tasks.task(name="waits")(_wait)
        with pytest.raises(tidelog.DataError, match="plain functions, and waits is async"):
            tasks.run(isolate="process", block=0)
    with pytest.raises(tidelog.DataError, match="cannot import the on_done"):
        shop.tasks.run(processes=2, on_done=lambda job, result: None)
