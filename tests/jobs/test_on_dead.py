"""Somebody is told when a job dies: `on_dead` of a run, at least once whatever is killed, and the iterator `deaths`."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import aopened
from tests.client.owners import ended_owner, kill
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.jobs.rows import DeadJob

CHILD = Path(__file__).with_name("on_dead_worker.py")
BACKENDS = pytest.mark.parametrize("backend", ["embedded", "shared"])
DIES: dict[str, Any] = {"max_deliveries": 1, "retry_after": 0.1}


@contextmanager
def opened(backend: str, root: Path) -> Iterator[Any]:
    """A store of either backend."""
    with tidelog.open(root, fsync="no") as db:
        if backend == "embedded":
            yield db
            return
        with tidelog.serve(db, port=0), tidelog.connect(root) as client:
            yield client


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[tidelog.Queue]:
    with tidelog.queue(tmp_path / "store", "jobs", fsync="no", **DIES) as queue:
        yield queue


def broken(job: Any) -> None:
    raise LookupError("no such address")


def run(queue: Any, on_dead: Callable[[DeadJob], object], **options: Any) -> bool:
    """A run that ends when no job is due. Always true."""
    queue.run(broken, workers=1, on_dead=on_dead, **{"block": 0, **options})
    return True


def bury(queue: Any, *values: Any) -> None:
    """Jobs that die while nobody listens."""
    queue.put_many(values)
    queue.run(broken, workers=1, block=0)


# --- on_dead


@BACKENDS
def test_a_run_tells_each_death_once_with_its_facts(backend: str, tmp_path: Path) -> None:
    with opened(backend, tmp_path / "store") as db:
        jobs = db.queue("jobs", **DIES)
        first = jobs.put({"to": "ann"})
        jobs.put({"to": "ben"})
        told: list[DeadJob] = []
        run(jobs, told.append)
        assert [(job.queue, job.value["to"], job.deliveries) for job in told] == [
            ("jobs", "ann", 1),
            ("jobs", "ben", 1),
        ]
        assert told[0].original_id == first and "no such address" in told[0].reason
        assert jobs.dead.get(told[0].id) is not None
        run(jobs, told.append)
        assert len(told) == 2


@BACKENDS
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_tasks_tell_it_too(backend: str, kind: str, tmp_path: Path) -> None:
    told: list[Any] = []

    async def note(job: DeadJob) -> None:
        await asyncio.sleep(0)
        told.append(job.value)

    async def fail(job: Any) -> None:
        raise LookupError("no such address")

    async def main() -> None:
        async with aopened(backend, tmp_path / "store") as db:
            jobs = db.queue("jobs", **DIES)
            await jobs.put(1)
            on_dead: Any = note if kind == "async" else lambda job: told.append(job.value)
            await jobs.arun(fail, workers=1, block=0, on_dead=on_dead)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert told == [1]


def test_a_run_under_way_tells_what_another_worker_gave_up(jobs: tidelog.Queue) -> None:
    taken, go, told = threading.Event(), threading.Event(), list[Any]()

    def handle(job: Any) -> None:
        taken.set()
        go.wait(PATIENCE_S)

    def give_up(value: int) -> None:
        jobs.put(value)
        other = jobs.get("other", block=0)
        assert other is not None and other.fail("nobody wants it")
        until(lambda: [job.value for job in told][-1:] == [value])

    words = {"workers": 1, "block": 0, "on_dead": told.append}
    running = threading.Thread(target=jobs.run, args=(handle,), kwargs=words)
    jobs.put(1)
    running.start()
    assert taken.wait(PATIENCE_S)
    give_up(2)
    jobs.store.delete("jobs:dead")  # the position is lost with it
    give_up(3)
    go.set()
    running.join(PATIENCE_S)
    assert not running.is_alive() and len(told) == 2


def test_a_group_is_told_of_its_own_deaths_only(jobs: tidelog.Queue) -> None:
    db = jobs.store
    others = db.queue("jobs", "others", **DIES)
    others.subscribe()
    jobs.put(1)
    told: dict[str, list[Any]] = {"workers": [], "others": []}
    run(jobs, lambda job: told["workers"].append((job.value, job.group)))
    run(others, lambda job: told["others"].append((job.value, job.group)))
    run(jobs, lambda job: told["workers"].append((job.value, job.group)))
    assert told == {"workers": [(1, "workers")], "others": [(1, "others")]}


def test_deaths_before_the_first_run_with_on_dead_are_not_told_and_later_ones_are(
    tmp_path: Path,
) -> None:
    root, told = tmp_path / "store", list[Any]()
    with tidelog.queue(root, "jobs", fsync="no", **DIES) as jobs:
        bury(jobs, "old")
        run(jobs, told.append)
        bury(jobs, "while nobody listens")
    with tidelog.queue(root, "jobs", fsync="no", **DIES) as jobs:
        run(jobs, told.append)
        assert [job.value for job in told] == ["while nobody listens"]


@pytest.mark.parametrize("error", [ValueError("the pager is down"), SystemExit(3)])
def test_a_callback_that_raises_is_called_again_and_ends_nothing(
    error: BaseException, jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put("x")
    calls: list[str] = []
    stop = threading.Event()
    done: list[Any] = []

    def pager(job: DeadJob) -> None:
        calls.append(job.value)
        if len(calls) < 3:
            raise error
        stop.set()

    def handle(job: Any) -> None:
        if job.value == "x":
            raise LookupError("no such address")
        done.append(job.value)

    running = threading.Thread(
        target=jobs.run, args=(handle,), kwargs={"on_dead": pager, "workers": 1}
    )
    with caplog.at_level(logging.ERROR, "tidelog.worker"):
        running.start()
        assert stop.wait(PATIENCE_S)
    jobs.put("y")
    until(lambda: done == ["y"])
    until(lambda: not jobs.store.xpending("jobs:dead", "workers")["pending"])
    assert calls == ["x", "x", "x"]
    said = [r for r in caplog.records if "on_dead raised" in r.getMessage()]
    assert len(said) == 2 and type(error).__name__ in said[0].getMessage()
    jobs.store.close()
    running.join(PATIENCE_S)
    assert not running.is_alive()


def test_a_job_whose_call_raises_each_time_holds_up_no_other(jobs: tidelog.Queue) -> None:
    told: list[Any] = []

    def pager(job: DeadJob) -> None:
        if job.value == "poison":
            raise ValueError("what is this?")
        told.append(job.value)

    jobs.put_many(["poison", 1, 2])
    run(jobs, pager)
    assert told == [1, 2]
    assert jobs.store.xpending("jobs:dead", "workers")["pending"] == 1


def test_deaths_that_cannot_be_read_do_not_end_the_run(
    jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.store.set("jobs:dead", "no stream")
    jobs.put("x")
    done: list[Any] = []
    with caplog.at_level(logging.WARNING, "tidelog.worker"):
        jobs.run(lambda job: done.append(job.value), workers=1, block=0, on_dead=print)
    assert done == ["x"]
    said = [r for r in caplog.records if "cannot tell on_dead" in r.getMessage()]
    assert len(said) == 1 and "wrong kind of value" in said[0].getMessage()


def test_a_callback_that_hangs_holds_up_the_end_for_the_drain_only(jobs: tidelog.Queue) -> None:
    jobs.put("x")
    go, told = threading.Event(), []

    def hang(job: DeadJob) -> None:
        told.append(job.value)
        go.wait(PATIENCE_S)

    run(jobs, hang, drain=0.2)
    assert told == ["x"]
    again: list[Any] = []
    until(lambda: run(jobs, again.append) and again)  # the call that hung has not ended
    go.set()


def test_two_processes_of_a_group_share_the_position(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with tidelog.open(root, fsync="no") as db, tidelog.serve(db, port=0):
        with tidelog.connect(root) as one, tidelog.connect(root) as two:
            jobs = one.queue("jobs", retry_after=60, max_deliveries=1)
            jobs.put_many(range(50))
            told: list[int] = []
            threads = [
                threading.Thread(target=run, args=(queue, lambda job: told.append(job.value)))
                for queue in (jobs, two.queue("jobs", retry_after=60, max_deliveries=1))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            run(jobs, lambda job: told.append(job.value))
    assert sorted(told) == list(range(50))


@pytest.mark.parametrize(
    ("on_dead", "says"),
    [
        (3, "a function that takes a dead job"),
        (lambda: None, "a function that takes a dead job"),
        ("async", "must be a plain function"),
    ],
)
def test_what_is_no_callback_is_refused(on_dead: Any, says: str, jobs: tidelog.Queue) -> None:
    async def note(job: DeadJob) -> None: ...

    with pytest.raises(tidelog.DataError, match=says):
        jobs.run(print, on_dead=note if on_dead == "async" else on_dead)


# --- whatever is killed


def killed(root: Path, place: str, backend: str) -> str:
    """Start a worker process and kill it at a place. Returns the line that it wrote there."""
    words = [sys.executable, str(CHILD), str(root), place, backend]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline().strip()
        child.kill()
    return line


@BACKENDS
@pytest.mark.parametrize("place", ["handler", "on_dead"])
def test_the_next_process_tells_it_after_kill_9(place: str, backend: str, tmp_path: Path) -> None:
    root, told = tmp_path / "store", list[Any]()
    options = {**DIES, "shared": backend == "shared"}
    with ended_owner(root):
        with tidelog.queue(root, "jobs", **options) as jobs:
            jobs.put("x")
        assert killed(root, place, backend) == f"{place} x"
        if backend == "shared":
            kill(root)  # the owner too: the position is on the disk
        with tidelog.queue(root, "jobs", **options) as jobs:
            until(lambda: run(jobs, told.append) and told)
            (job,) = jobs.dead
            # after a kill of the owner a job may have one delivery more, whose handler raises
            reason = "given up after" if place == "handler" else "no such address"
            assert [each.id for each in told] == [job.id] and reason in told[0].reason


def test_several_processes_of_one_run_tell_each_death_once(tmp_path: Path) -> None:
    root, notes = tmp_path / "store", tmp_path / "notes"
    program = tmp_path / "program.py"
    program.write_text(f"""
import os
import tidelog

def fail(job):
    raise LookupError("no such address")

def note(job):
    fd = os.open({str(notes)!r}, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"%d " % job.value)
    os.close(fd)

if __name__ == "__main__":
    with tidelog.queue({str(root)!r}, "jobs", shared=True, max_deliveries=1) as jobs:
        jobs.put_many(range(20))
        jobs.run(fail, workers=1, processes=2, block=0.5, on_dead=note)
""")
    with ended_owner(root):
        subprocess.run([sys.executable, str(program)], check=True, timeout=PATIENCE_S)
        assert sorted(map(int, notes.read_text().split())) == list(range(20))


# --- deaths


@BACKENDS
def test_a_program_waits_for_deaths(backend: str, tmp_path: Path) -> None:
    with opened(backend, tmp_path / "store") as db:
        jobs = db.queue("jobs", **DIES)
        assert list(jobs.deaths("0-0", block=0)) == []
        bury(jobs, 1, 2)
        assert list(jobs.deaths(block=0)) == []
        one, two = jobs.deaths("0-0", block=0)
        assert (one.value, two.value, one.queue) == (1, 2, "jobs")
        assert [job.value for job in jobs.deaths(one.id, block=0.01)] == [2]
        waiting = jobs.deaths(two.id)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(next(waiting)))
        thread.start()
        bury(jobs, 3)
        thread.join(PATIENCE_S)
        assert [job.value for job in found] == [3]
        with pytest.raises(tidelog.DataError, match="the ID of a dead job looks like"):
            jobs.deaths("yesterday")


@BACKENDS
def test_a_task_waits_for_deaths(backend: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with aopened(backend, tmp_path / "store") as db:
            jobs = db.queue("jobs", **DIES)
            waiting = aiter(jobs.deaths("0-0"))
            first = asyncio.ensure_future(anext(waiting))
            await asyncio.sleep(0)
            await jobs.put("x")
            job = await jobs.get(block=None)
            assert await job.fail("nobody wants it")
            assert (await first).reason == "nobody wants it"
            assert [dead.value async for dead in jobs.deaths("0-0", block=0)] == ["x"]

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
