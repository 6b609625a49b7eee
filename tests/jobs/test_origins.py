"""Notes of jobs whose ID has changed: what they cost, what they survive, and when they go."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.jobs.test_results import OPTIONS, clock, db, queue, take

import tidelog
from tidelog import testing
from tidelog.jobs.work.origins import Origins
from tidelog.jobs.work.results import Results

__all__ = ["clock", "db", "queue"]

JOBS = 20_000


def results(queue: Any) -> Results:
    found: Results = queue._engine.known.results
    return found


def notes(queue: Any) -> Origins:
    return results(queue).origins


def due(queue: Any, clock: testing.Clock) -> tidelog.Handle:
    """A delayed job that was put into the queue's stream, where it waits."""
    handle: tidelog.Handle = queue.put("job", delay=5)
    clock.advance(6)
    assert take(queue).release()
    return handle


def late(handle: tidelog.Handle) -> bool:
    """Whether the job is still to be done."""
    try:
        handle.result(0)
    except tidelog.ResultLate:
        return True
    except tidelog.NoResult:
        return False
    raise AssertionError("it has a result")


def test_what_a_note_takes(db: Any, queue: Any, clock: testing.Clock) -> None:
    """Prints it; `pytest -s` shows the line."""
    ended = queue.put("ended")
    assert take(queue).ack()

    def asked() -> tuple[float, float]:
        """(bytes that a question leaves in memory, µs of processor time) for each of JOBS."""
        tracemalloc.start()
        assert not late(ended)  # fills the cache of decoded nodes
        notes(queue)._forget()
        before = tracemalloc.get_traced_memory()[0]
        assert not late(ended)
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        notes(queue)._forget()
        began = time.process_time()
        assert not late(ended)
        return kept / JOBS, (time.process_time() - began) * 1e6 / JOBS

    queue.put_many(range(JOBS))
    plain = asked()
    assert len(notes(queue)) == 0
    queue.put_many(range(JOBS), delay=5)
    clock.advance(6)
    while db.xlen("q:later"):
        assert take(queue).release()  # each fetch moves MOVE_JOBS
        clock.advance(1)
    moved = asked()
    assert len(notes(queue)) == JOBS
    print(
        f"\njobs put at once: {plain[0]:.1f} bytes, {plain[1]:.2f} us; jobs that were delayed: {moved[0]:.0f} bytes, "
        f"{moved[1] - plain[1]:.1f} us"
    )
    assert plain[0] < 1 and moved[0] < 130


def test_a_unit_that_fails_keeps_the_note(db: Any, queue: Any, clock: testing.Clock) -> None:
    other, handle = due(queue, clock), due(queue, clock)
    assert late(handle) and len(notes(queue)) == 2
    with inside.lock(db):
        results(queue).ended(inside.core(db), handle.encode())  # and nothing lands
    job = take(queue)
    assert job.origin == other and job.ack()
    assert late(handle) and not late(other) and len(notes(queue)) == 1
    assert take(queue).ack()
    assert not late(handle) and len(notes(queue)) == 0


def test_memory_that_was_rebuilt_is_read_again(db: Any, queue: Any, clock: testing.Clock) -> None:
    handle = due(queue, clock)
    assert late(handle)
    with inside.lock(db):
        inside.core(db).doubt()
    assert late(handle) and len(notes(queue)) == 1


def test_another_client_deletes_jobs(db: Any, queue: Any, clock: testing.Clock) -> None:
    handles = [due(queue, clock) for _ in range(3)]
    assert late(handles[0]) and len(notes(queue)) == 3
    db.xdel("q", *(entry for entry, _ in db.xrange("q")[:2]))
    assert [late(handle) for handle in handles] == [False, False, True]
    assert len(notes(queue)) == 1
    db.delete("q")
    assert not any(map(late, handles)) and len(notes(queue)) == 0
    again = due(queue, clock)
    assert late(again) and len(notes(queue)) == 1


def test_entries_of_other_clients(db: Any, queue: Any) -> None:
    db.xgroup_create("q", "workers", "0", mkstream=True)
    db.xadd("q", {"value": '"origin"', "a": "origin", "b": "1-1"})
    db.xadd("q", {"value": '"a"', "origin": "no ID"})
    db.xadd("q", {"value": '"b"', "origin": "7-7", "more": "x"})
    db.execute_command("XADD", "q", "*", "origin", "8-8", "value", "1", "origin", "9-9")
    found = [late(tidelog.Handle.of(queue, f"{n}-{n}")) for n in (1, 7, 8, 9)]
    assert found == [False, True, True, False]


def test_a_store_for_reading_only(tmp_path: Path, clock: testing.Clock) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        queue = db.queue("q", **OPTIONS)
        one = due(queue, clock)
        with tidelog.open(tmp_path / "s", read_only=True, clock=clock) as reader:
            seen = reader.queue("q", **OPTIONS)
            two = due(queue, clock)
            assert late(tidelog.Handle.of(seen, one))
            assert not late(tidelog.Handle.of(seen, two))
            reader.refresh()
            assert late(tidelog.Handle.of(seen, two))
            assert take(queue).ack() and take(queue).ack()
            reader.refresh()
            assert not late(tidelog.Handle.of(seen, one))
            assert not late(tidelog.Handle.of(seen, two))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_jobs_that_left_memory(tmp_path: Path, clock: testing.Clock, checkpoint: bool) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        queue = db.queue("q", **OPTIONS)
        queue.put_many(range(500))
        handles = queue.put_many(range(500), delay=5)
        assert handles == 500
        last = due(queue, clock)
        if checkpoint:
            db.checkpoint()
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        queue = db.queue("q", **OPTIONS)
        assert late(tidelog.Handle.of(queue, last)) and len(notes(queue)) == 501
