"""The broker and the result backend for taskiq, driven by taskiq's own receiver and command."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from taskiq import AsyncBroker
from taskiq.exceptions import ResultGetError
from taskiq.receiver import Receiver
from tests.client.owners import ended_owner
from tests.rounds import rest_slow
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment
from tidelog.integrations.taskiq import TidelogBroker, TidelogResultBackend


@asynccontextmanager
async def working(broker: AsyncBroker, prefetch: int = 0) -> AsyncIterator[None]:
    """A receiver of taskiq that works on the tasks of a broker, and fetches some before it begins them."""
    with ThreadPoolExecutor(2) as pool:
        finish = asyncio.Event()
        receiver = Receiver(
            broker, executor=pool, run_startup=False, max_async_tasks=4, max_prefetch=prefetch
        )
        task = asyncio.create_task(receiver.listen(finish))
        yield
        finish.set()
        await asyncio.wait_for(task, PATIENCE_S)


def test_tasks_and_their_results(tmp_path: Path) -> None:
    async def main() -> None:
        broker = TidelogBroker(tmp_path / "s", shared=False).with_result_backend(
            TidelogResultBackend(tmp_path / "results", shared=False, fsync="no")
        )

        @broker.task(task_name="add")
        async def add(a: int, b: int) -> int:
            return a + b

        @broker.task(task_name="fail")
        def fail() -> None:
            raise LookupError("no such address")

        await broker.startup()
        async with working(broker):
            sent = [await add.kiq(n, 1) for n in range(20)]
            results = [await task.wait_result(0.01, timeout=PATIENCE_S) for task in sent]
            assert [result.return_value for result in results] == list(range(1, 21))
            failed = await (await fail.kiq()).wait_result(0.01, timeout=PATIENCE_S)
            assert failed.is_err and "no such address" in str(failed.error)
            with pytest.raises(ResultGetError):
                await broker.result_backend.get_result("nothing")
        stats = await broker.queue.stats()
        await broker.shutdown()
        assert (stats.depth, stats.dead, stats.failures) == (0, 0, 0)

    asyncio.run(main())


def test_labels(tmp_path: Path) -> None:
    async def main() -> None:
        broker = TidelogBroker(tmp_path / "s", shared=False, fsync="no")

        @broker.task(task_name="nothing")
        async def nothing() -> None: ...

        await broker.startup()
        for _ in range(2):
            await nothing.kicker().with_labels(dedup_id="once").kiq()
        await nothing.kicker().with_labels(delay=3600).kiq()
        stats = await broker.queue.stats()
        assert (stats.waiting, stats.scheduled) == (1, 1)
        labels: dict[str, Any] = {"timeout": 30, "priority": "3", "key": "ann", "ttl": "60"}
        await nothing.kicker().with_labels(**labels).kiq()
        (found,) = (await broker.queue.find(key="ann")).jobs
        assert (found.time_limit, found.priority, found.key) == (30, 3, "ann")
        await broker.shutdown()

    asyncio.run(main())


@pytest.mark.parametrize("shared", rest_slow([False, True], 1))
def test_limits_of_time_and_cancelled_tasks(shared: bool, tmp_path: Path) -> None:
    begun = list[str]()

    async def main() -> None:
        broker = TidelogBroker(tmp_path / "s", shared=shared, fsync="no").with_result_backend(
            TidelogResultBackend(tmp_path / "results", shared=False, fsync="no")
        )

        @broker.task(task_name="hangs")
        async def hangs(name: str) -> None:
            begun.append(name)
            await asyncio.sleep(600)

        async def outcome(task: Any) -> Any:
            return (await task.wait_result(0.01, timeout=PATIENCE_S)).error

        await broker.startup()
        waiting = await hangs.kicker().with_labels(delay=3600).kiq("never")
        assert await broker.cancel(waiting.task_id) and not await broker.cancel(waiting.task_id)
        assert not await broker.cancel("nothing")
        async with working(broker, prefetch=2):
            running = [await hangs.kiq(str(number)) for number in range(4)]
            fetched = await hangs.kiq("fetched")
            last = await hangs.kicker().with_labels(timeout=0.05).kiq("late")
            while len(begun) < 4 or len(broker._held) < 5:
                await asyncio.sleep(0.001)
            assert await broker.cancel(fetched.task_id)
            for task in running:
                assert await broker.cancel(task.task_id)
                assert isinstance(await outcome(task), asyncio.CancelledError)
            assert isinstance(await outcome(last), TimeoutError)
        assert sorted(begun) == ["0", "1", "2", "3", "late"]
        assert not broker._held and not broker._revoked
        assert (await broker.queue.stats()).depth == 0
        await broker.shutdown()

    with ended_owner(tmp_path / "s"):
        asyncio.run(main())


@pytest.mark.parametrize("shared", rest_slow([False, True], 1))
def test_tasks_that_were_fetched_and_not_run_go_back(shared: bool, tmp_path: Path) -> None:
    async def main() -> None:
        broker = TidelogBroker(tmp_path / "s", shared=shared, fsync="no")
        await broker.startup()
        for n in range(3):
            await broker.queue.put(b"%d" % n)
        listener = broker.listen()
        _, second = await anext(listener), await anext(listener)
        done = second.ack()
        assert done is not None
        await done
        await listener.aclose()
        await broker.shutdown()
        options: Any = {"shared": shared, "codec": "bytes"}
        async with tidelog.aqueue(tmp_path / "s", "taskiq", **options) as queue:
            found = [(job.value, job.deliveries) async for job in queue.consume(block=0)]
            assert sorted(found) == [(b"0", 1), (b"2", 1)]

    with ended_owner(tmp_path / "s"):
        asyncio.run(main())


def test_a_broker_that_has_not_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="startup"):
        assert TidelogBroker(tmp_path / "s").queue


APP = """
import os
from tidelog.integrations.taskiq import TidelogBroker, TidelogResultBackend
broker = TidelogBroker("s", retry_after=0.5).with_result_backend(TidelogResultBackend("s"))

@broker.task(task_name="square")
async def square(n: int) -> int:
    with open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return n * n
"""


@pytest.mark.slow
def test_the_taskiq_command_with_two_processes_of_which_one_is_killed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    root = tmp_path / "s"

    async def ask() -> list[int]:
        broker = TidelogBroker(root).with_result_backend(TidelogResultBackend(root))

        @broker.task(task_name="square")
        async def square(n: int) -> int:
            raise AssertionError("the workers do it")

        await broker.startup()
        tasks = [await square.kiq(n) for n in range(40)]
        found = []
        for n, task in enumerate(tasks):
            found.append((await task.wait_result(0.05, timeout=PATIENCE_S)).return_value)
            if n == 5:
                pid = int((tmp_path / "pids").read_text().split()[0])
                os.kill(pid, signal.SIGKILL)
        await broker.shutdown()
        return found

    with ended_owner(root):
        command = [sys.executable, "-m", "taskiq", "worker", "--workers", "2", "app:broker"]
        with (tmp_path / "log").open("wb") as log:
            worker = subprocess.Popen(
                command, cwd=tmp_path, env=environment(), stderr=log, stdout=log
            )
        try:
            assert asyncio.run(ask()) == [n * n for n in range(40)]
        finally:
            worker.terminate()
            worker.wait(PATIENCE_S)
        until(lambda: worker.returncode is not None)


NOTES = """
import os
from tidelog.integrations.taskiq import TidelogBroker
broker = TidelogBroker("s", retry_after=600)

@broker.task(task_name="note")
async def note(n: int) -> None:
    file = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{n}\\n".encode())
    os.close(file)
"""


@pytest.mark.slow
def test_restarts_of_the_taskiq_command_neither_lose_nor_repeat_a_task(tmp_path: Path) -> None:
    """Those that were fetched and not begun go back at once: a lease takes longer than this test may."""
    (tmp_path / "app.py").write_text(NOTES)
    notes = tmp_path / "notes"
    notes.touch()

    async def put() -> None:
        broker = TidelogBroker(tmp_path / "s")

        @broker.task(task_name="note")
        async def note(n: int) -> None:
            raise AssertionError("the workers do it")

        await broker.startup()
        for n in range(300):
            await note.kiq(n)
        await broker.shutdown()

    def done() -> list[str]:
        return notes.read_text().split()

    with ended_owner(tmp_path / "s"):
        asyncio.run(put())
        command = [sys.executable, "-m", "taskiq", "worker", "--workers", "1", "app:broker"]
        for ends in (60, 150, 300):
            with (tmp_path / "log").open("ab") as log:
                worker = subprocess.Popen(
                    command, cwd=tmp_path, env=environment(), stderr=log, stdout=log
                )
            try:
                until(lambda: len(done()) >= ends)  # noqa: B023
            finally:
                worker.terminate()
                worker.wait(PATIENCE_S)
        with tidelog.queue(tmp_path / "s", "taskiq", shared=True) as queue:
            stats = queue.stats()
            assert (stats.depth, stats.in_flight, stats.failures) == (0, {}, 0)
    assert sorted(map(int, done())) == list(range(300))
