"""Prometheus metrics of queues: gauges, counters that survive a restart, and how long handlers take."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from tests.client.conftest import Bench, bench  # noqa: F401  # a fixture

import tidelog
from tidelog.integrations.prometheus import QueueCollector, metered

HERE = {"queue": "mails", "group": "workers"}


def test_gauges_and_counters(tmp_path: Path) -> None:
    for again in (False, True):
        with tidelog.queue(tmp_path / "s", "mails", fsync="no", max_deliveries=1) as mails:
            registry = CollectorRegistry()
            registry.register(QueueCollector(mails))
            if not again:
                assert registry.get_sample_value("tidelog_queue_put_total", HERE) == 0
                mails.put_many(range(5))
                mails.put(5, delay=3600)
                job = mails.get("anna", block=0)
                other = mails.get("anna", block=0)
                third = mails.get("anna", block=0)
                assert job and other and third
                other.ack()
                third.fail("no")
                assert (
                    registry.get_sample_value("tidelog_queue_in_flight", {**HERE, "worker": "anna"})
                    == 1
                )
                assert (registry.get_sample_value("tidelog_queue_oldest_seconds", HERE) or 0) >= 0
                job.release()
            for name, value in (
                ("depth", 3),
                ("waiting", 3),
                ("scheduled", 1),
                ("paused", 0),
                ("dead", 1),
                ("put_total", 5),
                ("left_total", 2),
            ):
                assert registry.get_sample_value(f"tidelog_queue_{name}", HERE) == value, name
            assert b"# TYPE tidelog_queue_put_total counter" in generate_latest(registry)


def test_a_shared_queue(bench: Bench) -> None:  # noqa: F811
    mails = bench.connect().queue("mails")
    mails.put(1)
    registry = CollectorRegistry()
    registry.register(QueueCollector(mails, bench.db.queue("bills")))
    assert registry.get_sample_value("tidelog_queue_waiting", HERE) == 1
    assert registry.get_sample_value("tidelog_queue_depth", {**HERE, "queue": "bills"}) == 0


def test_durations_of_handlers(tmp_path: Path) -> None:
    registry = CollectorRegistry()

    def count(outcome: str) -> float | None:
        labels = {**HERE, "outcome": outcome}
        return registry.get_sample_value("tidelog_queue_job_seconds_count", labels)

    def handle(job: tidelog.Job) -> None:
        if job.value == 0:
            raise LookupError("no such address")

    async def ahandle(job: tidelog.AsyncJob) -> None: ...

    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            await mails.put(1)
            await mails.arun(metered(ahandle, registry), block=0)

    with tidelog.queue(tmp_path / "s", "mails", fsync="no", max_deliveries=1) as mails:
        mails.put_many(range(3))
        mails.run(metered(handle, registry), workers=1, block=0)
    assert (count("ok"), count("error")) == (2, 1)
    asyncio.run(main())
    assert count("ok") == 3
