"""Tasks in processes of their own that are killed anywhere, and several at once: no row is lost or doubled.

On tidelog's server and on redis-server.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from multiprocessing.process import BaseProcess

import pytest
from tests.rounds import rest_slow
from tests.spark.source.writing.conftest import Target, batches

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing.sink import Task

ROWS = range(3000)
SUPERSEDED = 7  # exit code

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.spark.source.writing.conftest"])


def write(task: Task, attempt: int) -> None:
    try:
        task.write(batches(ROWS, 100), job="job", partition=0, attempt=attempt)
    except TidelogSparkError as error:
        assert error.code == "TIDELOG_WRITE_SUPERSEDED", error
        os._exit(SUPERSEDED)


def started(task: Task, attempt: int) -> BaseProcess:
    process = _processes.Process(target=write, args=(task, attempt))
    process.start()
    return process


def end(process: BaseProcess) -> None:
    # Not by its own method, which would take the exit code from the thread that waits for it.
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", rest_slow(range(10), 2))
def test_killed_within_a_chunk(target: Target, seed: int) -> None:
    """Each attempt is killed while one of its chunks is on its way, the last one is not."""
    print("seed", seed)
    rng = random.Random(seed)
    task = target.task(chunkRows="100", retrySeconds="20")
    running: list[BaseProcess] = []
    begun = threading.Lock()
    kills = [rng.randrange(1, 12) for _ in range(5)]  # transactions until the next one
    left = kills[0]

    def kill(number: int) -> None:
        nonlocal left
        left -= 1
        if kills and not left:
            del kills[0]
            left = kills[0] if kills else 0
            with begun:
                end(running[-1])

    target.proxy.on_exec = kill
    codes: list[int] = []
    while not codes or codes[-1] < 0:
        with begun:
            running.append(started(task, len(running)))
        running[-1].join()
        codes.append(running[-1].exitcode or 0)
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert target.numbers() == [*ROWS]


@pytest.mark.parametrize("seed", rest_slow(range(10), 2))
def test_attempts_in_processes_at_once(target: Target, seed: int) -> None:
    """Some are killed. One of the others gets through, or one that begins later."""
    print("seed", seed)
    rng = random.Random(seed)
    task = target.task(chunkRows="100", retrySeconds="20")
    running: list[BaseProcess] = []
    begun = threading.Lock()
    kills = {rng.randrange(5, 40) for _ in range(2)}

    def kill(number: int) -> None:
        if number in kills:
            with begun:
                end(rng.choice(running))

    target.proxy.on_exec = kill
    with begun:
        running += [started(task, attempt) for attempt in range(3)]
    for process in running:
        process.join()
    codes = {process.exitcode for process in running}
    assert codes <= {0, SUPERSEDED, -signal.SIGKILL}
    if 0 not in codes:
        kills.clear()
        last = started(task, 3)
        last.join()
        assert last.exitcode == 0
    assert target.numbers() == [*ROWS]
