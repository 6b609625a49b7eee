"""OpenTelemetry: spans of puts and jobs. The context travels in the headers of a job, from the put to its worker.

    from tidelog.integrations.opentelemetry import instrument, traced

    mails = instrument(tidelog.queue("mail-data", "mails"))
    mails.put({"to": "ann"})          # a span `send mails`; the job has its context

    @traced                           # a span `process mails` for each job, a child of the put's span
    def send(job): ...

    mails.run(send)                   # an instrumented queue traces its handlers by itself
    other.run(deliver, middleware=[trace_job])    # any other queue; for `arun`: atrace_job

Nothing is traced without these calls. Names of spans and attributes follow the conventions for messaging systems. The
SDK and its exporters are the program's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial, update_wrapper, wraps
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from tidelog.api.queue.running.middleware import AsyncNext, Next
from tidelog.api.queue.running.plan import is_coroutine
from tidelog.integrations.jobs import queue_of
from tidelog.store.version import __version__

Q = TypeVar("Q")
H = TypeVar("H", bound=Callable[[Any], Any])
SYSTEM: Final = "tidelog"
_MARK: Final = "_tidelog_traced"


def instrument(queue: Q, tracer_provider: TracerProvider | None = None) -> Q:
    """Trace the puts of a queue object of any face, and the handlers of its `run` or `arun`. Returns the queue.

    Args:
        queue: The queue. Other objects for the same queue are not traced.
        tracer_provider: Default: the global one.
    """
    _Instrumented(queue, tracer_provider).begin()
    return queue


def traced(handler: H, tracer_provider: TracerProvider | None = None) -> H:
    """A handler of jobs with a span around each call, a child of the span that put the job.

    Args:
        handler: A function or an async function that takes a job.
        tracer_provider: Default: the global one.
    """
    if not callable(handler) or getattr(handler, _MARK, False):
        return handler
    if is_coroutine(handler):

        async def handle_in_task(job: Any) -> Any:
            return await atrace_job(job, handler, tracer_provider=tracer_provider)

        wrapped: Any = handle_in_task
    else:

        def handle(job: Any) -> Any:
            return trace_job(job, handler, tracer_provider=tracer_provider)

        wrapped = handle
    update_wrapper(wrapped, handler)
    setattr(wrapped, _MARK, True)
    found: H = wrapped
    return found


def trace_job(job: Any, next: Next, /, *, tracer_provider: TracerProvider | None = None) -> Any:
    """A middleware with the span of `traced`.

    Args:
        job: The job.
        next: The rest of its way.
        tracer_provider: Default: the global one. `functools.partial` gives another one.
    """
    with _processing(_tracer(tracer_provider), job):
        return next(job)


async def atrace_job(
    job: Any, next: AsyncNext, /, *, tracer_provider: TracerProvider | None = None
) -> Any:
    """The same for asyncio.

    Args:
        job: The job.
        next: The rest of its way.
        tracer_provider: Default: the global one. `functools.partial` gives another one.
    """
    with _processing(_tracer(tracer_provider), job):
        return await next(job)


@contextmanager
def job_span(job: Any, tracer_provider: TracerProvider | None = None) -> Iterator[Span]:
    """The span of a job in a loop of one's own: `with job, job_span(job): ...`.

    Args:
        job: The job.
        tracer_provider: Default: the global one.
    """
    with _processing(_tracer(tracer_provider), job) as span:
        yield span


@lru_cache(maxsize=8)
def _tracer(provider: TracerProvider | None) -> trace.Tracer:
    return trace.get_tracer("tidelog", __version__, provider)


@contextmanager
def _processing(tracer: trace.Tracer, job: Any) -> Iterator[Span]:
    queue = queue_of(job)
    attributes = {
        **_place(queue, "process"),
        "messaging.consumer.group.name": queue.group,
        "messaging.client.id": job.worker,
        "messaging.message.id": job.id,
        "messaging.message.delivery_attempt": job.deliveries,
    }
    with tracer.start_as_current_span(
        f"process {queue.name}",
        propagate.extract(job.headers),
        SpanKind.CONSUMER,
        attributes,
    ) as span:
        try:
            yield span
        except SystemExit as error:
            # the SDK records exceptions, and this counts as a failed delivery too
            span.set_status(Status(StatusCode.ERROR, f"SystemExit: {error.code!r}"))
            raise


def _place(queue: Any, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": queue.name,
    }


class _Instrumented:
    """The methods of a queue object that its instrumentation replaces. They lie on the object, before its class's."""

    def __init__(self, queue: Any, provider: TracerProvider | None) -> None:
        self._queue, self._provider, self._tracer = queue, provider, _tracer(provider)
        self._put, self._put_many, self._new = queue.put, queue.put_many, queue.new

    def begin(self) -> None:
        """Replace them."""
        queue = self._queue
        queue.new = self.new
        if iscoroutinefunction(self._put):
            queue.put, queue.put_many = self.aput, self.aput_many
        else:
            queue.put, queue.put_many = self.put, self.put_many
        for name in ("run", "arun"):
            run = getattr(queue, name, None)
            if run is not None:
                setattr(queue, name, self._running(run))

    def _span(self, **attributes: Any) -> Any:
        return self._tracer.start_as_current_span(
            f"send {self._queue.name}",
            kind=SpanKind.PRODUCER,
            attributes={**_place(self._queue, "send"), **attributes},
        )

    def put(self, value: Any, *, headers: Mapping[str, str] | None = None, **options: Any) -> Any:
        with self._span() as span:
            id = self._put(value, headers=_with_context(headers), **options)
            span.set_attribute("messaging.message.id", str(id))
            return id

    async def aput(
        self, value: Any, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Any:
        with self._span() as span:
            id = await self._put(value, headers=_with_context(headers), **options)
            span.set_attribute("messaging.message.id", str(id))
            return id

    def put_many(self, values: Iterable[Any], **options: Any) -> int:
        with self._span() as span:
            count: int = self._put_many(values, **options)
            span.set_attribute("messaging.batch.message_count", count)
            return count

    async def aput_many(self, values: Iterable[Any], **options: Any) -> int:
        with self._span() as span:
            count: int = await self._put_many(values, **options)
            span.set_attribute("messaging.batch.message_count", count)
            return count

    def new(self, value: Any, *, headers: Mapping[str, str] | None = None, **options: Any) -> Any:
        return self._new(value, headers=_with_context(headers), **options)

    def _running(self, run: Any) -> Any:
        @wraps(run)
        def running(handler: Any, *, middleware: Any = (), **options: Any) -> Any:
            if isinstance(middleware, list | tuple) and not getattr(handler, _MARK, False):
                tracing = atrace_job if is_coroutine(handler) else trace_job
                middleware = [partial(tracing, tracer_provider=self._provider), *middleware]
            return run(handler, middleware=middleware, **options)

        return running


def _with_context(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers with the current context, if there is one."""
    carrier = dict(headers or {})
    propagate.inject(carrier)
    return carrier or None
