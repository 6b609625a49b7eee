"""A value or a result that is too large: one error, at once, on all faces, and nothing is changed by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.client.conftest import Bench, aopened

import tidelog
from tidelog.aof.frame import BODY_BYTES_MAX
from tidelog.jobs.units import PAYLOAD_BYTES_MAX

BACKENDS = ["embedded", "shared"]
TEXT = (
    f"queue 'q': a value of {PAYLOAD_BYTES_MAX + 1} bytes is too large, a job takes at most {PAYLOAD_BYTES_MAX}; "
    "store it elsewhere, and put its place into the queue"
)


@pytest.fixture(scope="module")
def large() -> bytes:
    """A value that is one byte too large."""
    return bytes(PAYLOAD_BYTES_MAX + 1)


@contextmanager
def opened(backend: str, bench: Bench) -> Iterator[Any]:
    yield bench.db if backend == "embedded" else bench.connect()


@contextmanager
def too_large() -> Iterator[Any]:
    with pytest.raises(tidelog.PayloadTooLarge) as caught:
        yield caught
    assert str(caught.value) == TEXT
    assert isinstance(caught.value, (tidelog.UnitTooLarge, tidelog.EncodeError))


PUTS: dict[str, Callable[[Any, bytes], Any]] = {
    "put": lambda queue, value: queue.put(value),
    "a put with headers": lambda queue, value: queue.put(value, headers={"a": "b"}),
    "a delayed put": lambda queue, value: queue.put(value, delay=5),
    "a put with a priority": lambda queue, value: queue.put(value, priority=5),
    "a put with a dedup ID": lambda queue, value: queue.put(value, dedup_id="d"),
    "new": lambda queue, value: queue.new(value),
}


@pytest.mark.parametrize("codec", ["bytes", (bytes, bytes)], ids=["raw", "encoded"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value(backend: str, codec: Any, bench: Bench, large: bytes) -> None:
    with opened(backend, bench) as db:
        queue = db.queue("q", codec=codec)
        before = bench.db.digest()
        for put in PUTS.values():
            with too_large():
                put(queue, large)
        with too_large():
            db.schedule("tick", every=60, queue="q", value=large, codec=codec)
        assert bench.db.digest() == before
        with too_large() as caught:
            queue.put_many([b"1", b"2", large, b"3"])
        assert caught.value.stored == len(queue) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_result(backend: str, bench: Bench, large: bytes) -> None:
    """The job stays open: its worker may leave another result."""
    with opened(backend, bench) as db:
        queue = db.queue("q", codec="bytes")
        put = queue.put(b"1")
        job = queue.get("w")
        with too_large():
            job.ack(result=large)
        assert job.ack(result=b"small") and put.result(timeout=5) == b"small"


@pytest.mark.parametrize("backend", BACKENDS)
def test_for_asyncio(backend: str, tmp_path: Path, large: bytes) -> None:
    async def main() -> None:
        async with aopened(backend, tmp_path / "s") as db:
            queue = db.queue("q", codec="bytes")
            with too_large():
                await queue.put(large)
            with too_large() as caught:
                await queue.put_many([b"1", large])
            assert caught.value.stored == 1
            job = await queue.get("w")
            with too_large():
                await job.ack(result=large)
            assert await job.ack()

    asyncio.run(main())


@pytest.mark.slow
def test_a_job_of_the_largest_value_can_die(bench: Bench, large: bytes) -> None:
    """With all that a delivery may tell, so that no job is delivered for ever."""
    queue = bench.db.queue("q", codec="bytes", max_deliveries=2)
    queue.put(large[1:], headers={"a": "b" * 1_000}, key="k")
    for _ in range(2):
        job = queue.get("w")
        assert job is not None and job.nack("e" * 10_000, delay=0)
    assert (queue.dead.count(), len(queue)) == (1, 0)


def test_words(bench: Bench, large: bytes) -> None:
    with redis.Redis(port=bench.serving.port, protocol=2) as client:
        before = bench.db.digest()
        for words in (("PUT", "q", large), ("PUT", "q", large, "PRIORITY", 3)):
            with pytest.raises(redis.ResponseError, match="^not stored: " + TEXT):
                client.execute_command("QUEUE", *words)
        assert bench.db.digest() == before
        assert client.execute_command("QUEUE", "PUTMANY", "q", 2, b"1", large) == 1


def test_an_argument_that_no_log_can_hold(bench: Bench, large: bytes) -> None:
    """A client says so before it sends anything: the server might end the connection in the middle."""
    huge = bytes(BODY_BYTES_MAX + 1)
    with bench.connect() as db:
        number = db.execute_command("CLIENT", "ID")
        for call in (
            lambda: db.set("k", huge),
            lambda: db.xadd("s", {"f": huge}),
            lambda: db.execute_command("SET", "k", huge),
            lambda: db.pipeline().set("a", b"1").set("k", huge).execute(),
        ):
            with pytest.raises(
                tidelog.UnitTooLarge, match=f"at most {BODY_BYTES_MAX} are possible"
            ):
                call()
        assert db.execute_command("CLIENT", "ID") == number and db.dbsize() == 0
        assert db.set("k", b"1") and db.xadd("s", {"f": b"1"})


def test_a_server_that_takes_less(bench: Bench) -> None:
    """It ends the connection, and its last words are the error. The call is not repeated until its time is over."""
    with bench.connect(timeout=600) as db:
        db.execute_command("CONFIG", "SET", "proto-max-bulk-len", "1mb")
        began = time.monotonic()
        with pytest.raises(tidelog.ResponseError, match="Protocol error: invalid bulk length"):
            db.set("k", bytes(20 << 20))
        assert time.monotonic() - began < 300
        assert db.set("k", b"1")
