"""Python stacks that use streams for work, a small app of each: workers die and are started anew, nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from faststream.redis import RedisBroker
from tests.rounds import rest_slow
from tests.server.conftest import Start
from walrus import Database  # type: ignore[import-untyped]

HERE = Path(__file__).parent
JOBS = 60
WAIT_SECONDS = 100.0
both = pytest.mark.parametrize("port", rest_slow(["tidelog", "redis-server"], 1), indirect=True)


@contextmanager
def worker(script: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(HERE / script), *words])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def killed(script: str, *words: str) -> None:
    """Run a worker that dies in the middle of a job."""
    with worker(script, *words) as process:
        assert process.wait(WAIT_SECONDS) == -9


def wait_until(what: str, client: Any, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while len(done(client)) < count or client.xpending("jobs", "workers")["pending"]:
        assert time.monotonic() < deadline, (what, sorted(done(client)))
        time.sleep(0.02)


def done(client: Any) -> set[int]:
    return {int(fields[b"n"]) for _, fields in client.xrange("done")}


def check(client: Any) -> None:
    """Every job was done."""
    (group,) = client.xinfo_groups("jobs")
    assert group["pending"] == 0 and group["lag"] == 0
    assert done(client) == set(range(JOBS))
    workers = [fields[b"by"] for _, fields in client.xrange("done")]
    assert len(set(workers)) > 1


@both
def test_faststream(port: int) -> None:
    faststream_app(port, "autoclaim")


def test_faststream_with_claim(start: Start) -> None:
    """The way of 8.4: one XREADGROUP for what is new and what was left."""
    faststream_app(start().port, "claim")


def faststream_app(port: int, way: str) -> None:
    url = f"redis://127.0.0.1:{port}"

    async def produce(numbers: range) -> None:
        async with RedisBroker(url) as broker:
            for number in numbers:
                await broker.publish(number, stream="jobs")

    with redis.Redis(port=port, protocol=2) as client:
        client.xgroup_create("jobs", "workers", id="0", mkstream=True)
        asyncio.run(produce(range(JOBS // 2)))
        killed("faststream_worker.py", url, "one", "15", way)
        assert client.xpending("jobs", "workers")["pending"] > 0
        with worker("faststream_worker.py", url, "two", "0", way) as process:
            asyncio.run(produce(range(JOBS // 2, JOBS)))
            wait_until("the second worker does the rest", client, JOBS)
            process.terminate()
            assert process.wait(60) == 0
        # On a slow machine a job is idle, and is claimed again, while it is worked at: some may be done twice.
        check(client)


@both
def test_walrus(port: int) -> None:
    database: Any = Database(port=port, protocol=2, script_dir=False)
    jobs = database.Stream("jobs")
    for number in range(JOBS // 2):
        jobs.add({"n": number})
    killed("walrus_worker.py", str(port), "one", "5")
    killed("walrus_worker.py", str(port), "two", "5")
    assert database.xpending("jobs", "workers")["pending"] > 0
    with worker("walrus_worker.py", str(port), "one", "0"):
        for number in range(JOBS // 2, JOBS):
            jobs.add({"n": number})
        wait_until("the first worker, started anew, does the rest", database, JOBS)
    check(database)
    assert database.xlen("done") == JOBS, "some were done twice"
    assert [int(fields[b"n"]) for _, fields in jobs] == list(range(JOBS))
    database.close()
