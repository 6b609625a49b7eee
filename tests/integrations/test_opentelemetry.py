"""Spans of puts and jobs: their parents, names and attributes, for threads, tasks and shared queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.client.conftest import Bench, bench  # noqa: F401  # a fixture

import tidelog
from tidelog.client.aqueue import AsyncSharedJob
from tidelog.integrations.opentelemetry import (
    atrace_job,
    instrument,
    job_span,
    trace_job,
    traced,
)


class Tracing:
    """A provider whose spans are kept."""

    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.kept.get_finished_spans()}


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    found = Tracing()
    yield found
    found.provider.shutdown()


@pytest.fixture
def mails(tmp_path: Path) -> Iterator[tidelog.Queue]:
    with tidelog.queue(tmp_path / "s", "mails", fsync="no", max_deliveries=1) as found:
        yield found


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert child.context is not None and parent.context is not None
    return child.parent is not None and (child.parent.span_id, child.parent.trace_id) == (
        parent.context.span_id,
        parent.context.trace_id,
    )


def check(spans: dict[str, ReadableSpan], id: str) -> None:
    put, job = spans["send mails"], spans["process mails"]
    assert (put.kind, job.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert is_child(job, put)
    for span, operation in ((put, "send"), (job, "process")):
        attributes = dict(span.attributes or {})
        assert attributes["messaging.system"] == "tidelog"
        assert attributes["messaging.operation.type"] == operation
        assert attributes["messaging.destination.name"] == "mails"
        assert attributes["messaging.message.id"] == id
    assert job.attributes is not None
    assert job.attributes["messaging.consumer.group.name"] == "workers"
    assert job.attributes["messaging.message.delivery_attempt"] == 1


def test_a_put_and_its_job(mails: tidelog.Queue, tracing: Tracing) -> None:
    assert instrument(mails, tracing.provider) is mails
    id = mails.put({"to": "ann"}, headers={"mine": "1"})
    seen: list[Any] = []
    mails.run(lambda job: seen.append((job.value, job.headers["mine"])), workers=1, block=0)
    assert seen == [({"to": "ann"}, "1")]
    check(tracing.spans(), str(id))


def test_a_handler_that_fails(mails: tidelog.Queue, tracing: Tracing) -> None:
    instrument(mails, tracing.provider)
    mails.put(1)

    def fail(job: tidelog.Job) -> None:
        raise LookupError("no such address")

    mails.run(fail, workers=1, block=0)
    span = tracing.spans()["process mails"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.events[0].attributes is not None
    assert span.events[0].attributes["exception.message"] == "no such address"
    assert mails.dead.count() == 1


def test_a_handler_is_traced_once(mails: tidelog.Queue, tracing: Tracing) -> None:
    instrument(mails, tracing.provider)
    mails.put(1)
    handler = traced(lambda job: None, tracing.provider)
    assert traced(handler, tracing.provider) is handler
    mails.run(handler, workers=1, block=0)
    assert len(tracing.kept.get_finished_spans()) == 2


def test_a_middleware_is_the_same(mails: tidelog.Queue, tracing: Tracing) -> None:
    id = instrument(mails, tracing.provider).put(1)
    other = mails.store.queue("mails")  # another object, which is not instrumented
    around = [partial(trace_job, tracer_provider=tracing.provider)]
    other.run(lambda job: None, workers=1, block=0, middleware=around)
    check(tracing.spans(), str(id))


def test_the_span_is_around_the_programs_middleware(mails: tidelog.Queue, tracing: Tracing) -> None:
    instrument(mails, tracing.provider).put(1)

    def named(job: Any, next: tidelog.Next) -> Any:
        trace.get_current_span().set_attribute("tenant", "ann")
        return next(job)

    mails.run(lambda job: None, workers=1, block=0, middleware=[named])
    assert (tracing.spans()["process mails"].attributes or {})["tenant"] == "ann"
    wrong: Any = None
    with pytest.raises(tidelog.DataError, match="middleware must be a list"):
        mails.run(print, middleware=wrong)


def test_a_loop_of_its_own_and_jobs_that_jobs_put(mails: tidelog.Queue, tracing: Tracing) -> None:
    instrument(mails, tracing.provider)
    mails.put(1)
    for job in mails.consume(block=0):
        with job, job_span(job, tracing.provider):
            if job.value == 1:
                job.done_and(mails.new(2))
    first, second = [
        span for span in tracing.kept.get_finished_spans() if span.name == "process mails"
    ]
    assert is_child(second, first)


def test_many_and_none(mails: tidelog.Queue, tracing: Tracing) -> None:
    mails.put("before")  # not instrumented: its job has a span without a parent
    instrument(mails, tracing.provider)
    assert mails.put_many([1, 2]) == 2
    mails.run(lambda job: None, workers=1, block=0)
    attributes = tracing.spans()["send mails"].attributes
    assert attributes is not None and attributes["messaging.batch.message_count"] == 2
    jobs = [s for s in tracing.kept.get_finished_spans() if s.name == "process mails"]
    assert [span.parent for span in jobs] == [None] * 3


def test_asyncio(tmp_path: Path, tracing: Tracing) -> None:
    async def main() -> str:
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            instrument(mails, tracing.provider)
            id = await mails.put(1)

            async def handle(job: tidelog.AsyncJob) -> None:
                await asyncio.sleep(0)

            await mails.arun(handle, workers=1, block=0)
            await mails.put("other")
            plain = mails.store.queue("mails")
            around = [partial(atrace_job, tracer_provider=tracing.provider)]
            await plain.arun(handle, workers=1, block=0, middleware=around)
        return str(id)

    id = asyncio.run(main())
    first, second = tracing.kept.get_finished_spans()[:2], tracing.kept.get_finished_spans()[2:]
    check({span.name: span for span in first}, id)
    assert is_child(second[1], second[0])


def test_asyncio_and_a_shared_queue(bench: Bench, tracing: Tracing) -> None:  # noqa: F811
    queue = tidelog.AsyncSharedStore(bench.connect()).queue("mails")

    async def handle(job: AsyncSharedJob) -> None: ...

    async def main() -> str:
        mails = instrument(queue, tracing.provider)
        id = await mails.put(1)
        await mails.arun(handle, workers=1, block=0)
        return str(id)

    id = asyncio.run(main())
    check(tracing.spans(), id)


def test_a_shared_queue(bench: Bench, tracing: Tracing) -> None:  # noqa: F811
    mails = instrument(bench.connect().queue("mails"), tracing.provider)
    id = mails.put(1)
    mails.run(lambda job: None, workers=1, block=0)
    check(tracing.spans(), str(id))
