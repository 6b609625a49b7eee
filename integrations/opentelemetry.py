"""OpenTelemetry: spans of puts and jobs. The context travels in the headers of a job, from the put to its worker.

    from tidelog.integrations.opentelemetry import instrument, traced

    mails = instrument(tidelog.queue("mail-data", "mails"))
    mails.put({"to": "ann"})          # a span `send mails`; the job has its context

    @traced                           # a span `process mails` for each job, a child of the put's span
    def send(job): ...

    mails.run(send)                   # an instrumented queue traces its handlers by itself

Nothing is traced without these calls. Names of spans and attributes follow the conventions for messaging systems. The
SDK and its exporters are the program's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import update_wrapper, wraps
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

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
    _Instrumented(queue, _tracer(tracer_provider)).begin()
    return queue


def traced(handler: H, tracer_provider: TracerProvider | None = None) -> H:
    """A handler of jobs with a span around each call, a child of the span that put the job.

    Args:
        handler: A function or an async function that takes a job.
        tracer_provider: Default: the global one.
    """
    found: H = _wrapped(handler, _tracer(tracer_provider))
    return found


@contextmanager
def job_span(job: Any, tracer_provider: TracerProvider | None = None) -> Iterator[Span]:
    """The span of a job in a loop of one's own: `with job, job_span(job): ...`.

    Args:
        job: The job.
        tracer_provider: Default: the global one.
    """
    with _processing(_tracer(tracer_provider), job) as span:
        yield span


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

    def __init__(self, queue: Any, tracer: trace.Tracer) -> None:
        self._queue, self._tracer = queue, tracer
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
        tracer = self._tracer

        @wraps(run)
        def running(handler: Any, **options: Any) -> Any:
            return run(_wrapped(handler, tracer), **options)

        return running


def _wrapped(handler: Any, tracer: trace.Tracer) -> Any:
    """The handler with a span around each call. A handler that has one already stays as it is."""
    if not callable(handler) or getattr(handler, _MARK, False):
        return handler
    if is_coroutine(handler):

        async def handle_in_task(job: Any) -> Any:
            with _processing(tracer, job):
                return await handler(job)

        found: Any = handle_in_task
    else:

        def handle(job: Any) -> Any:
            with _processing(tracer, job):
                return handler(job)

        found = handle
    update_wrapper(found, handler)
    setattr(found, _MARK, True)
    return found


def _with_context(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers with the current context, if there is one."""
    carrier = dict(headers or {})
    propagate.inject(carrier)
    return carrier or None
