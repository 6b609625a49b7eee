"""Results of jobs: stored with the acknowledgement, waited for by the caller who put the job."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import rest_slow
from tests.until import PATIENCE_S, parked

import tidelog
from tidelog import testing

OPTIONS: dict[str, Any] = {"retry_after": 8.0, "max_deliveries": 2}


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def db(tmp_path: Path, clock: testing.Clock) -> Any:
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        yield db


@pytest.fixture
def queue(db: Any) -> Any:
    return db.queue("q", **OPTIONS)


def take(queue: Any) -> Any:
    job = queue.get("anna", block=0)
    assert job is not None
    return job


class Asking:
    """A thread that waits for a result."""

    def __init__(
        self, db: Any, handle: tidelog.Handle, timeout: float | None = None, parks: int = 1
    ) -> None:
        self.found: Any = None

        def ask() -> None:
            try:
                self.found = handle.result(timeout)
            except tidelog.TidelogError as error:
                self.found = error

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()
        parked(db, parks)

    def end(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it waits on"
        return self.found


def test_a_handle_is_the_id(queue: Any) -> None:
    handle = queue.put(1)
    assert isinstance(handle, tidelog.Handle) and handle == handle.id == queue.peek()[0].id
    assert type(handle.id) is str and type(pickle.loads(pickle.dumps(handle))) is str
    assert json.loads(json.dumps({"id": handle})) == {"id": handle.id}
    assert {handle.id: 1}[handle] == 1


@pytest.mark.parametrize("value", rest_slow([{"pages": 12}, None, [], "text"], 2))
def test_a_result_comes_with_the_acknowledgement(db: Any, queue: Any, value: object) -> None:
    handle = queue.put("job")
    with pytest.raises(tidelog.ResultLate, match="still may"):
        handle.result(0)
    asking = Asking(db, handle)
    assert take(queue).ack(result=value)
    assert asking.end() == value
    assert handle.result() == queue.result(handle.id, 0) == value
    assert len(queue) == 0


def test_each_caller_is_woken_for_its_own_job(db: Any, queue: Any) -> None:
    handles = [queue.put(n) for n in range(3)]
    callers = [Asking(db, handles[n], parks=at) for at, n in enumerate((0, 0, 2), 1)]
    for _ in range(3):
        job = take(queue)
        job.ack(result=job.value * 10)
    assert [caller.end() for caller in callers] == [0, 0, 20]


def test_a_job_that_ends_without_a_result(db: Any, queue: Any) -> None:
    asking = Asking(db, queue.put("plain"))
    assert take(queue).ack()
    assert isinstance(asking.end(), tidelog.NoResult)
    batch = queue.put("in a batch")
    asking = Asking(db, batch)
    with queue.consume("anna", batch=10, block=0) as jobs:
        for job in jobs:
            with job:
                pass
    assert isinstance(asking.end(), tidelog.NoResult)
    asking = Asking(db, queue.put("purged"))
    assert queue.purge() == 1
    assert isinstance(asking.end(), tidelog.NoResult)
    moved = queue.put("done_and")
    asking = Asking(db, moved)
    assert take(queue).done_and(queue.new("next"))
    assert isinstance(asking.end(), tidelog.NoResult)
    with pytest.raises(tidelog.NoResult, match=batch):
        batch.result(0)


def test_a_kept_job_that_is_done_has_no_result(db: Any) -> None:
    queue = db.queue("q", keep=9, **OPTIONS)
    handle = queue.put("kept")
    assert take(queue).ack() and db.xlen("q") == 1
    with pytest.raises(tidelog.NoResult):
        handle.result(0)


def test_a_job_that_dies(db: Any, queue: Any, clock: testing.Clock) -> None:
    handle = queue.put("bad")
    asking = Asking(db, handle)
    assert take(queue).nack("first", delay=0)
    assert take(queue).nack(ValueError("second"))
    failed = asking.end()
    assert isinstance(failed, tidelog.JobFailed) and failed.job_id == handle
    assert "given up after 2 deliveries; the last one failed: ValueError: second" in str(failed)
    assert queue.dead.get(failed.dead_id).original_id == handle
    with pytest.raises(tidelog.JobFailed, match="second"):
        handle.result()
    late = queue.put("late", delay=1, ttl=1)
    clock.advance(3)
    asking = Asking(db, late)
    assert queue.get("anna", block=0) is None
    assert isinstance(asking.end(), tidelog.JobFailed)


def test_a_redriven_job_leaves_its_result_under_the_first_id(queue: Any) -> None:
    handle = queue.put("twice")
    assert take(queue).fail("no")
    assert queue.dead.redrive() == 1
    job = take(queue)
    assert job.id != handle and job.origin == handle
    assert job.ack(result="done")
    assert handle.result(0) == "done"


def test_a_delayed_job(db: Any, queue: Any, clock: testing.Clock) -> None:
    handle, other = queue.put("later", delay=5), queue.put("bad", delay=5)
    asking, failing = Asking(db, handle), Asking(db, other, parks=2)
    with pytest.raises(tidelog.ResultLate):
        handle.result(0)
    clock.advance(6)
    assert take(queue).ack(result=7) and take(queue).fail("no")
    assert asking.end() == 7
    assert isinstance(failing.end(), tidelog.JobFailed)


def test_a_wait_ends_in_time(db: Any, queue: Any, clock: testing.Clock) -> None:
    asking = Asking(db, queue.put("slow"), timeout=3)
    clock.advance(2)
    parked(db)
    clock.advance(2)
    assert isinstance(asking.end(), tidelog.ResultLate)
    assert isinstance(asking.end(), TimeoutError)


def test_another_client_deletes_the_job(db: Any, queue: Any, clock: testing.Clock) -> None:
    handle = queue.put("gone")
    asking = Asking(db, handle)
    assert db.xdel("q", handle) == 1
    clock.advance(2)
    assert isinstance(asking.end(), tidelog.NoResult)


def test_a_result_expires(db: Any, queue: Any, clock: testing.Clock) -> None:
    one, two = queue.put(1), queue.put(2)
    assert take(queue).ack(result="hour")
    assert take(queue).ack(result="minute", ttl=timedelta(minutes=1))
    assert 3590 < db.ttl(f"q:result:{one}") <= 3600
    clock.advance(61)
    assert one.result(0) == "hour"
    with pytest.raises(tidelog.NoResult, match="expired"):
        two.result(0)
    clock.advance(3600)
    assert not db.exists(f"q:result:{one}")


def test_a_result_survives_a_restart(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "q") as queue:
        handle = queue.put("job")
        assert take(queue).ack(result=[1, 2])
    with tidelog.queue(tmp_path / "s", "q") as queue:
        assert queue.result(handle) == [1, 2]
    with tidelog.open(tmp_path / "s", read_only=True) as db:
        assert db.queue("q").result(handle, 0) == [1, 2]


def test_a_worker_that_lost_its_lease_leaves_no_result(queue: Any, clock: testing.Clock) -> None:
    handle = queue.put("job")
    (job,) = list(queue.consume("anna", block=0, time_limit=1))
    clock.advance(20)
    other = queue.get("ben", block=0)
    assert not job.ack(result="late")
    assert other.ack(result="right") and handle.result(0) == "right"
    assert not other.ack(result="again") or handle.result(0) == "right"


def test_bad_arguments(queue: Any) -> None:
    queue.put("job")
    job = take(queue)
    with pytest.raises(tidelog.EncodeError, match="set"):
        job.ack(result={1, 2})
    with pytest.raises(tidelog.DataError, match="ttl"):
        job.ack(result=1, ttl=0)
    assert job.state == "open" and job.ack(result=1)
    with pytest.raises(tidelog.DataError, match="looks like"):
        queue.result("seven")
    with pytest.raises(tidelog.DataError, match="timeout"):
        queue.result(job.id, -1)


def test_a_result_that_cannot_be_decoded(db: Any, queue: Any) -> None:
    handle = queue.put("job")
    assert take(queue).ack(result=1)
    db.set(f"q:result:{handle}", b"\xff")
    with pytest.raises(tidelog.DecodeError, match="decode the result"):
        handle.result(0)
    db.delete(f"q:result:{handle}")
    db.xadd(f"q:result:{handle}", {"a": 1})
    with pytest.raises(tidelog.ResponseError, match="needs a string"):
        handle.result(0)


def test_a_store_that_is_closed_ends_the_wait(tmp_path: Path) -> None:
    db = tidelog.open(tmp_path / "s", fsync="no")
    asking = Asking(db, db.queue("q").put("job"))
    db.close()
    assert isinstance(asking.end(), tidelog.StoreClosed)


def test_a_run_keeps_what_its_handler_returns(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "q", fsync="no") as queue:
        handles = [queue.put(n) for n in range(20)]

        def handler(job: Any) -> Any:
            if job.value == 3:
                job.ack(result="own")
            return job.value**2

        assert queue.run(handler, workers=3, block=0, results=True) == 0
        found = [handle.result(0) for handle in handles]
        assert found == ["own" if n == 3 else n**2 for n in range(20)]


def test_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with await tidelog.aqueue(tmp_path / "s", "q", fsync="no") as queue:
            handle = await queue.put(4)
            assert isinstance(handle, tidelog.AsyncHandle) and handle.id == handle
            with pytest.raises(tidelog.ResultLate):
                await handle.result(0)
            waiting = asyncio.create_task(handle.result())
            cancelled = asyncio.create_task(handle.result())
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled

            async def handler(job: Any) -> Any:
                return [job.value]

            assert await queue.arun(handler, workers=2, block=0, results=True) == 0
            assert await waiting == [4]
            bad = await queue.put("bad")
            job = await queue.get(block=0)
            assert job is not None and await job.fail("no")
            with pytest.raises(tidelog.JobFailed, match="no"):
                await queue.result(bad)

    asyncio.run(main())
