"""`tidelog worker MODULE`: it works on the queues of the tasks of a module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.client.owners import ended_owner
from tests.tools.conftest import Run
from tests.tools.test_worker import place
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment
from tidelog.tools import exits

__all__ = ["place"]

SHOP = """
import tidelog

tasks = tidelog.tasks("s", fsync="no")

@tasks.task(queue="mails")
def send(to: str) -> str:
    print(f"sent {to}\\n", end="", flush=True)
    return to

@tasks.task(queue="reports")
def report(day: int) -> None:
    print(f"report {day}\\n", end="", flush=True)
"""
LATER = """
@tasks.task(queue="thumbs")
async def thumb(name: str) -> None:
    print(f"thumb {name}\\n", end="", flush=True)
"""
EMBEDDED = ("--embedded", "--until-idle", 0)


@pytest.fixture
def shop(place: Path) -> Iterator[Any]:
    """The module `shop` of the working directory, with tasks of the store `s`."""
    (place / "shop.py").write_text(SHOP)
    sys.path.insert(0, str(place))
    yield import_module("shop")
    sys.modules.pop("shop", None)


def filled(shop: Any, place: Path) -> None:
    """Put jobs, as a process of its own that opens the store."""
    with tidelog.open(place / "s", fsync="no") as db:
        shop.tasks.replace_store(db)
        for day in range(3):
            shop.report.put(day)
        shop.send.put_many({"to": name} for name in ("ann", "ben", "cy"))
    shop.tasks.replace_store(None)


def test_all_queues_of_a_module(run: Run, place: Path, shop: Any) -> None:
    filled(shop, place)
    done = run("worker", "shop", *EMBEDDED, "--workers", 1)
    assert done.code == exits.OK, done.err
    assert done.out.split("\n")[:2] == ["sent ann", "report 0"]  # by even turns
    assert len(done.out.split()) == 12
    assert "queue mails, reports: " in done.err and "takes jobs with 1 thread" in done.err


def test_some_of_them_in_strict_order(run: Run, place: Path, shop: Any) -> None:
    filled(shop, place)
    done = run("worker", "shop:tasks", *EMBEDDED, "--workers", 1, "--queues", "reports,mails")
    assert [line.split()[0] for line in done.out.splitlines()] == ["report"] * 3 + ["sent"] * 3


def test_some_of_them_by_turns(run: Run, place: Path, shop: Any) -> None:
    filled(shop, place)
    done = run("worker", "shop", *EMBEDDED, "--workers", 1, "--queues", "reports, mails=2")
    words = [line.split()[0] for line in done.out.splitlines()]
    assert words[:3].count("sent") == 2 and len(words) == 6
    done = run("worker", "shop", *EMBEDDED, "--queues", "mails")
    assert (done.code, done.out) == (exits.OK, "") and "queue mails: " in done.err


def test_an_async_function_runs_in_tasks(run: Run, place: Path, shop: Any) -> None:
    filled(shop, place)
    sys.modules.pop("shop")
    (place / "shop.py").write_text(SHOP + LATER)
    done = run("worker", "shop", *EMBEDDED)
    assert "takes jobs with 4 tasks" in done.err and len(done.out.splitlines()) == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop", "--queues", "mails,nothing"], "no task is of the queue 'nothing'"),
        (["shop", "--queues", "mails=x"], "--queues must be names, a,b, or have weights, a=3,b=1"),
        (["shop", "--queues", "mails=0"], "a weight must be an integer from 1 to 1,000, not 0"),
        (["shop", "--queues", ""], "no task is of the queue ''"),
        (["shop", "--rate", "3/m"], "--rate is for one queue and its function"),
        (["shop", "--create"], "--create is for one queue and its function"),
        (["shop:send"], "'shop:send' is not what tidelog.tasks returns, but 'Task'"),
        (["shop:"], "'shop:' must be a module of tasks, such as shop.tasks"),
        (["data/mails"], "'data/mails' must be a module of tasks"),
        (["nothing"], "there is no module 'nothing'"),
        (["work"], "module 'work' has no tasks: nothing in it is what tidelog.tasks returns"),
        (["two"], "module 'two' has tasks of several stores; name one: two:a, two:b"),
        (["s", "mails"], "Missing argument 'MODULE:FUNCTION'"),
        (["s", "mails", "work:send", "--queues", "a"], "--queues is for a module of tasks"),
        (["shop", "--embedded", "--processes", 2], "--embedded needs a directory and one process"),
    ],
)
def test_what_is_refused(run: Run, place: Path, shop: Any, words: list[str], said: str) -> None:
    (place / "two.py").write_text("import tidelog\na, b = tidelog.tasks('a'), tidelog.tasks('b')\n")
    done = run("worker", *words)
    assert done.code == exits.USAGE and said in " ".join(done.err.split())
    assert not (place / "s").exists()


def test_processes_share_a_store_with_the_program(place: Path, shop: Any) -> None:
    """Their module has another name here and there, and its tasks do not."""
    with ended_owner(place / "s"):
        with shop.tasks:
            handles = [shop.send.put(str(number)) for number in range(20)]
            words = ["worker", "shop", "--processes", "2", "--workers", "2", "--queues", "mails=3"]
            worker = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *words], cwd=place, env=environment(),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            try:
                found = [handle.result(PATIENCE_S) for handle in handles]
                assert found == [str(number) for number in range(20)]
                until(lambda: len(shop.tasks.queue("mails")) == 0, "a job is left")
            finally:
                os.kill(worker.pid, signal.SIGTERM)
                out, err = worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == exits.OK, err
        assert sorted(out.split()[1::2], key=int) == [str(number) for number in range(20)]


HOOKS = """
import shop, time

@shop.tasks.task(queue="reports", results=True)
def slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds

tasks = shop.tasks

def done(job, result):
    print(f"done {job.value['task']} {result!r}\\n", end="", flush=True)

def around(job, next):
    print(f"around {job.value['task']}\\n", end="", flush=True)
    return next(job)

async def waits(job, next):
    return await next(job)
"""


def test_hooks_and_middleware_of_the_command_line(run: Run, place: Path, shop: Any) -> None:
    (place / "hooks.py").write_text(HOOKS)
    filled(shop, place)
    words = ("--on-done", "hooks:done", "--middleware", "hooks:around", "--queues", "mails")
    done = run("worker", "hooks", *EMBEDDED, *words)
    assert done.code == exits.OK, done.err
    said = sorted(done.out.splitlines())
    names = ("ann", "ben", "cy")
    assert said == sorted(
        [f"sent {name}" for name in names] + [f"done send {name!r}" for name in names]
        + ["around send"] * 3
    )  # fmt: skip
    done = run("worker", "hooks", *EMBEDDED, "--middleware", "hooks:waits")
    assert done.code == exits.USAGE and "a middleware must be a plain function" in done.err


@pytest.mark.slow
def test_a_task_that_hangs_is_stopped_in_its_process(place: Path, shop: Any) -> None:
    (place / "hooks.py").write_text(HOOKS)
    with ended_owner(place / "s"):
        filled(shop, place)
        with tidelog.open(place / "s", fsync="no") as db:
            shop.tasks.replace_store(db)
            value = {"task": "slow", "args": {"seconds": 600.0}}
            shop.tasks.queue("reports").put(value, retry=tidelog.RetryPolicy(max=1))
        shop.tasks.replace_store(None)
        words = ["hooks", "--until-idle", "3", "--time-limit", "1", "--on-done", "hooks:done"]
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", "worker", *words, "--max-jobs", "4", "--workers", "2"],
            cwd=place, env=environment(), capture_output=True, text=True, timeout=3 * PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == exits.OK, done.stderr
        assert sorted(line.split()[-1] for line in done.stdout.splitlines() if "done" in line) == [
            "'ann'", "'ben'", "'cy'", "None", "None", "None",
        ]  # fmt: skip
        assert done.stdout.count("sent") == 3 and done.stdout.count("report") == 6
        with shop.tasks:
            (dead,) = shop.tasks.queue("reports").dead
            assert "TimeLimitExceeded" in dead.errors[-1].error


def test_a_limit_that_cannot_stop_its_task_is_named(run: Run, place: Path, shop: Any) -> None:
    filled(shop, place)
    sys.modules.pop("shop")
    text = SHOP.replace('queue="reports"', 'queue="reports", time_limit=60') + LATER
    (place / "shop.py").write_text(text)
    done = run("worker", "shop", *EMBEDDED)
    assert "the limit of time of report cannot stop it" in done.err and "thumb is async" in done.err
    assert len(done.out.splitlines()) == 6
    done = run("worker", "shop", *EMBEDDED, "--isolate", "process")
    assert done.code == exits.USAGE and "an async one is cancelled" in done.err
