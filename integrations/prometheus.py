"""Prometheus: the figures of queues, for the registry of the program that uses them.

    import prometheus_client
    from tidelog.integrations.prometheus import QueueCollector, metered

    prometheus_client.REGISTRY.register(QueueCollector(mails, bills))
    mails.run(metered(send))

A scrape asks each queue for its `stats`. The names begin with `tidelog_queue_`, as those of a server's /metrics, which
have the database as a label, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import update_wrapper
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tidelog.api.queue.running.plan import is_coroutine
from tidelog.integrations.jobs import queue_of
from tidelog.jobs.stats import Stats

H = TypeVar("H", bound=Callable[[Any], Any])
LABELS: Final = ("queue", "group")
BUCKETS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
# fmt: off
# Name of the gauge after `tidelog_queue_`, the field of `Stats`, help.
GAUGES: Final = (
    ("depth", "depth", "Jobs that are due or were delivered, and are not done."),
    ("waiting", "waiting", "Jobs that are due."),
    ("scheduled", "scheduled", "Jobs that were put with a delay and are not due."),
    ("paused", "paused", "Failed jobs that wait for their retry."),
    ("dead", "dead", "Jobs that were given up, by any group."),
    ("failures", "failures", "Recorded failures that are kept."),
    ("kept", "kept", "Jobs that are done and still stored."),
    ("oldest_seconds", "oldest_seconds", "Age of the oldest job that is not done."),
)
# fmt: on


class QueueCollector:
    """A collector for a registry of prometheus_client.

    Its counters are the store's, so they go on after a restart of the program.
    """

    def __init__(self, *queues: Any) -> None:
        """A collector of these queues: `Queue` or `SharedQueue` objects. They must stay open."""
        self._queues = queues

    def describe(self) -> list[Metric]:
        """Nothing: a registry then asks for no figures when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics of all queues."""
        found = [(queue.stats(), _added(queue)) for queue in self._queues]
        for name, field, text in GAUGES:
            gauge = GaugeMetricFamily(f"tidelog_queue_{name}", text, labels=LABELS)
            for stats, _ in found:
                value = getattr(stats, field)
                if value is not None:
                    gauge.add_metric(_labels(stats), value)
            yield gauge
        held = GaugeMetricFamily(
            "tidelog_queue_in_flight", "Jobs that a worker holds.", labels=(*LABELS, "worker")
        )
        put = CounterMetricFamily(
            "tidelog_queue_put",
            "Jobs ever put; a delayed one counts from its time on.",
            labels=LABELS,
        )
        left = CounterMetricFamily(
            "tidelog_queue_left", "Jobs that left the queue: done or dead.", labels=LABELS
        )
        for stats, added in found:
            for worker, count in stats.in_flight.items():
                held.add_metric((*_labels(stats), worker), count)
            put.add_metric(_labels(stats), added)
            left.add_metric(_labels(stats), max(0, added - stats.depth))
        yield from (held, put, left)


def _labels(stats: Stats) -> tuple[str, str]:
    return stats.name, stats.group


def _added(queue: Any) -> int:
    """The number of jobs ever put."""
    store = queue.store
    return int(store.xinfo_stream(queue.name)["entries-added"]) if store.exists(queue.name) else 0


_histograms: WeakKeyDictionary[CollectorRegistry, Histogram] = WeakKeyDictionary()


def metered(handler: H, registry: CollectorRegistry = REGISTRY) -> H:
    """A handler of jobs whose calls are measured: `tidelog_queue_job_seconds`, with `outcome` ok or error.

    Args:
        handler: A function or an async function that takes a job.
        registry: The registry of the histogram.
    """
    histogram = _histograms.get(registry)
    if histogram is None:
        histogram = _histograms[registry] = Histogram(
            "tidelog_queue_job_seconds",
            "Seconds that the handler of a job took.",
            (*LABELS, "outcome"),
            buckets=BUCKETS_S,
            registry=registry,
        )

    def note(job: Any, began: float, outcome: str) -> None:
        queue = queue_of(job)
        histogram.labels(queue.name, queue.group, outcome).observe(time.monotonic() - began)

    if is_coroutine(handler):

        async def handle_in_task(job: Any) -> Any:
            began, outcome = time.monotonic(), "error"
            try:
                found = await handler(job)
                outcome = "ok"
                return found
            finally:
                note(job, began, outcome)

        wrapped: Any = handle_in_task
    else:

        def handle(job: Any) -> Any:
            began, outcome = time.monotonic(), "error"
            try:
                found = handler(job)
                outcome = "ok"
                return found
            finally:
                note(job, began, outcome)

        wrapped = handle
    update_wrapper(wrapped, handler)
    measured: H = wrapped
    return measured
