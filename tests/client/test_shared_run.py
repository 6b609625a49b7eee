"""Running workers of a shared queue: they end in order at a signal, and outlive the server of the store."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest
from tests.client.conftest import Bench
from tests.client.owners import ended_owner, kill
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.client.aqueue import AsyncSharedJob
from tidelog.client.job import SharedJob


def test_every_job_is_done_once_by_threads(bench: Bench) -> None:
    mails = bench.connect().queue("mails")
    mails.put_many(range(50))
    done: list[int] = []
    assert mails.run(lambda job: done.append(job.value), workers=3, block=0) == 0
    assert sorted(done) == list(range(50))
    assert len(mails) == 0


def test_a_signal_ends_the_waits_and_lets_running_jobs_end(bench: Bench) -> None:
    mails = bench.connect().queue("mails")
    mails.put(0)
    done: list[int] = []

    def handle(job: SharedJob) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        done.append(job.value)

    assert mails.run(handle, workers=3) == 0  # two of them wait for jobs
    assert done == [0] and len(mails) == 0


def test_a_handler_that_does_not_return_loses_its_job_after_the_drain(bench: Bench) -> None:
    mails = bench.connect().queue("mails")
    mails.put(0)
    go = threading.Event()

    def handle(job: SharedJob) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        go.wait(PATIENCE_S)

    assert mails.run(handle, workers=2, drain=0.01) == 1
    job = mails.get("other", block=0)
    assert job is not None and job.deliveries == 1
    go.set()
    until(lambda: all("tidelog-worker" not in t.name for t in threading.enumerate()))
    assert job.ack()


def test_tasks(bench: Bench) -> None:
    store = tidelog.AsyncSharedStore(bench.connect())
    queue = store.queue("mails")
    bench.db.queue("mails").put_many(range(20))
    done: list[int] = []

    async def handle(job: AsyncSharedJob) -> None:
        done.append(job.value)
        if len(done) == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    assert asyncio.run(queue.arun(handle, workers=3)) == 0
    assert sorted(done) == list(range(20)) and len(bench.db.queue("mails")) == 0


def test_closing_with_a_drain_waits_for_the_jobs_in_hand(bench: Bench) -> None:
    db = bench.connect()
    mails = db.queue("mails")
    mails.put_many([0, 1])
    taken, go = threading.Event(), threading.Event()
    ended: list[str] = []

    def work() -> None:
        for job in mails.consume("anna"):
            with job:
                taken.set()
                go.wait(PATIENCE_S)
        ended.append("the loop")

    def close() -> None:
        ended.append(f"closed with {db.close(drain=PATIENCE_S)} jobs left")

    worker, closer = threading.Thread(target=work), threading.Thread(target=close)
    worker.start()
    assert taken.wait(PATIENCE_S)
    closer.start()

    def refuses() -> bool:
        try:
            mails.consume()
        except tidelog.StoreClosed:
            return True
        return False

    until(refuses, "consumers can still be made")
    assert ended == []
    go.set()
    worker.join(PATIENCE_S)
    closer.join(PATIENCE_S)
    assert sorted(ended) == ["closed with 0 jobs left", "the loop"]
    # the consumer may be closed a moment after new ones are refused, and have taken the other job
    assert len(bench.db.queue("mails")) <= 1


def test_a_drain_has_an_end(bench: Bench) -> None:
    db = bench.connect()
    db.queue("mails").put(0)
    job = db.queue("mails").get(block=0)
    assert job is not None
    with pytest.raises(tidelog.DataError):
        db.close(drain=-1)
    left: list[int] = []
    other = threading.Thread(target=lambda: left.append(db.close(drain=0.01)))
    other.start()
    other.join(PATIENCE_S)
    assert left == [1]
    assert db.close(drain=1) == 0


def test_closing_does_not_wait_for_the_callers_own_job(bench: Bench) -> None:
    db = bench.connect()
    db.queue("mails").put(0)
    with db.queue("mails").consume(block=0) as jobs:
        assert next(jobs).value == 0
        assert db.close(drain=None) == 0


def test_closing_does_not_wait_for_a_thread_that_has_ended(bench: Bench) -> None:
    db = bench.connect()
    db.queue("mails").put(0)
    jobs: list[SharedJob | None] = []
    thread = threading.Thread(target=lambda: jobs.append(db.queue("mails").get(block=0)))
    thread.start()
    thread.join(PATIENCE_S)
    assert jobs[0] is not None and db.close(drain=None) == 0


@pytest.mark.slow
def test_the_workers_outlive_the_owner(tmp_path: Path) -> None:
    root = tmp_path / "s"
    done: list[int] = []
    with ended_owner(root), tidelog.queue(root, "mails", shared=True) as mails:
        mails.put_many(range(20))

        def handle(job: SharedJob) -> None:
            if job.value in (5, 10):
                kill(root)
            done.append(job.value)
            if len(set(done)) == 20:
                os.kill(os.getpid(), signal.SIGTERM)

        assert mails.run(handle, workers=2) == 0
        assert set(done) == set(range(20)) and len(mails) == 0
