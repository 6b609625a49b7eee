"""Task: a function that is a job, as `tasks.task` makes it. It is called as before, and it puts itself into a queue."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import update_wrapper
from typing import Any, Final, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, cast

from tidelog.api.queue.ahandle import AsyncHandle
from tidelog.api.queue.handle import Handle
from tidelog.functions.calls import Calls, dedup_id
from tidelog.functions.errors import Unfit
from tidelog.jobs.job_options import PutManyOptions, PutOptions
from tidelog.jobs.putting import NewJob
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError, DecodeError

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")
_MANY: Final = PutManyOptions.__annotations__.keys() | {"timeout"}


class TaskOptions(PutOptions, total=False):
    """The options of a put, and how long it waits while a bounded queue is full (`timeout`, as of `Queue.put`)."""

    timeout: Duration | None


class Owner(Protocol):
    """The tasks of one store. See `Tasks`.

    binary    whether the codec has bytes
    at_once   None, or tells a test that a task was put
    """

    binary: bool
    at_once: Any

    def queue(self, name: str) -> Any:
        """A queue for threads. Opens the store."""

    def raw_queue(self, name: str) -> Any:
        """The same, whose values are bytes: calls that are encoded already."""

    async def aqueue(self, name: str) -> Any:
        """A queue for asyncio. Opens the store."""


class TaskHandle(Handle, Generic[R]):
    """The ID of a job that a task put; `result` waits for what the function returns."""

    __slots__ = ()  # so that a Handle can become one

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for what the function returns. As `Queue.result`.

        Args:
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: The function returned None, or the job was cancelled, or its result has expired.
            ResultLate: It did not end in time.
            DecodeError: The result does not fit the annotation of the function.
            DataError: `timeout` is invalid.
        """
        found: R = super().result(timeout)
        return found


class AsyncTaskHandle(AsyncHandle, Generic[R]):
    """The same, for asyncio."""

    __slots__ = ()

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait for what the function returns. As `TaskHandle.result`."""
        found: R = await super().result(timeout)
        return found


class _Asked:
    """The queue of a task, as a handle asks it."""

    __slots__ = ("queue", "_restored")

    def __init__(self, queue: Any, restored: Callable[[Any], Any]) -> None:
        self.queue, self._restored = queue, restored

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """See `Asked`."""
        return self._restored(self.queue.result(job_id, timeout))

    def job(self, job_id: str) -> Any:
        """See `Asked`. For asyncio it is awaited."""
        return self.queue.job(job_id)


class _AsyncAsked(_Asked):
    """The same, for asyncio."""

    __slots__ = ()

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """See `AsyncAsked`."""
        return self._restored(await self.queue.result(job_id, timeout))


class Call(NamedTuple):
    """The arguments of a call, for `Task.put_many`; `Task.call` makes it."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Task(Generic[P, C, R]):
    """A function that is a job. P: its arguments, C: what a call returns, R: the result of a job.

        send(to="ann")                              # calls the function here
        send.put(to="ann")                          # a worker calls it
        send.at(tomorrow, to="ann")                 # at a time
        send.delay(60, to="ann")                    # after a minute
        send.using(key="ann", priority=3).put(to="ann")
        await send.aput(to="ann")                   # each of them for asyncio: with `a` in front

    Attributes:
        name: Its name in jobs.
        queue: Name of its queue.
        options: The options with which it is put.
        results: Whether what the function returns is kept: False = never, True = None too, None = unless it is None.
        function: The function itself.
        is_async: Whether it is an async function.
    """

    def __init__(
        self,
        owner: Owner,
        function: Callable[P, C],
        name: str,
        queue: str,
        results: bool | None,
        options: TaskOptions,
    ) -> None:
        update_wrapper(self, function)
        self.owner, self.function, self.name, self.queue = owner, function, name, queue
        self.results, self.options = results, options
        # one, once it is asked for, which copies with other options share
        self._calls: list[Calls] = []
        self._asks, self._aasks = _Asked(None, self.restored), _AsyncAsked(None, self.restored)
        self.is_async = inspect.iscoroutinefunction(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} of the queue {self.queue!r}>"

    def __reduce__(self) -> str:
        return self.function.__qualname__  # the object that its module has

    @property
    def calls(self) -> Calls:
        """The form of its arguments. Made at the first put: annotations may name what comes later in a module."""
        if not self._calls:
            self._calls.append(Calls(self.name, self.function, self.owner.binary))
        return self._calls[0]

    def using(self, **options: Unpack[TaskOptions]) -> Task[P, C, R]:
        """The same task, put with other options.

        Args:
            options: Those of `Queue.put`, `timeout` too. An option that is not given stays as it is.
        """
        made: Task[P, C, R] = object.__new__(Task)
        made.__dict__.update(self.__dict__)  # what was read of the annotations, too
        made.options = cast(TaskOptions, {**self.options, **options})
        return made

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """The arguments of one job, for `put_many`. A checker knows them."""
        return Call(args, kwargs)

    # --- for threads

    def put(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Put a job that calls the function with these arguments. As `Queue.put`.

        Returns:
            The job's ID; its method `result` waits for what the function returns.

        Raises:
            TypeError: The function does not take these arguments.
            EncodeError: An argument does not fit its annotation, or cannot be stored; nothing was put.
            QueueFull: The queue stayed full until the timeout; nothing was put.
            DataError: An option is invalid.
        """
        owner, asks = self.owner, self._asks
        queue = owner.queue(self.queue)
        encoded = None if self.options else self.calls.encoded(args, kwargs)
        if encoded is not None:
            handle = owner.raw_queue(self.queue).put(encoded)
        else:
            value = self.value_of(args, kwargs)
            handle = queue.put(value, **self._identified(value))
        if owner.at_once is not None:
            owner.at_once.came()
        if asks.queue is not queue:
            asks = self._asks = _Asked(queue, self.restored)
        # In place: a second object would cost a fifth of the put.
        handle.__class__, handle.asked = TaskHandle, asks
        made: TaskHandle[R] = handle
        return made

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A job for `Job.done_and` to put, as `Queue.new` makes it.

        tasks.job.done_and(bill.new(order=7), send.new(to="ann"))
        """
        value = self.value_of(args, kwargs)
        return self.new_of(value, self._identified(value))

    def at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Put a job that is due at a time.

        Args:
            when: A datetime with a time zone.
            args: As of `put`, and so are the others.
        """
        return self.using(at=when, delay=None).put(*args, **kwargs)

    def delay(self, seconds: Duration, /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Put a job that is due after a while.

        Args:
            seconds: Seconds or a timedelta.
            args: As of `put`, and so are the others.
        """
        return self.using(delay=seconds, at=None).put(*args, **kwargs)

    def put_many(self, calls: Iterable[Call | Mapping[str, Any]]) -> int:
        """Put many jobs, up to 1,000 in one unit. As `Queue.put_many`.

            send.put_many({"to": name} for name in names)
            send.put_many(send.call(to=name) for name in names)     # a checker knows the arguments

        With an option that only `Queue.put` takes, such as `dedup`, each job is put by itself.

        Args:
            calls: For each job what `call` returns, or the arguments by name.

        Returns:
            How many were put.

        Raises:
            EncodeError: An argument of a job cannot be stored. Those before it were put; `stored` is their number.
            TypeError: The function does not take the arguments of a job. Those before it were put.
            QueueFull: The queue stayed full until the timeout; `stored` jobs were put, the first ones.
        """
        queue, count = self.owner.queue(self.queue), 0
        for method, what, options in self._puts(calls):
            count += _number(getattr(queue, method)(what, **options))
        if self.owner.at_once is not None:
            self.owner.at_once.came()
        return count

    # --- for asyncio

    async def aput(self, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskHandle[R]:
        """Put a job, for asyncio. As `put`; `result` of what it returns is awaited."""
        queue = await self.owner.aqueue(self.queue)
        value = self.value_of(args, kwargs)
        handle = await queue.put(value, **self._identified(value))
        if self.owner.at_once is not None:
            await self.owner.at_once.acame()
        if self._aasks.queue is not queue:
            self._aasks = _AsyncAsked(queue, self.restored)
        handle.__class__, handle.asked = AsyncTaskHandle, self._aasks
        made: AsyncTaskHandle[R] = handle
        return made

    async def aat(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskHandle[R]:
        """Put a job that is due at a time, for asyncio. As `at`."""
        return await self.using(at=when, delay=None).aput(*args, **kwargs)

    async def adelay(
        self, seconds: Duration, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncTaskHandle[R]:
        """Put a job that is due after a while, for asyncio. As `delay`."""
        return await self.using(delay=seconds, at=None).aput(*args, **kwargs)

    async def aput_many(self, calls: Iterable[Call | Mapping[str, Any]]) -> int:
        """Put many jobs, for asyncio. As `put_many`."""
        queue, count = await self.owner.aqueue(self.queue), 0
        for method, what, options in self._puts(calls):
            count += _number(await getattr(queue, method)(what, **options))
        if self.owner.at_once is not None:
            await self.owner.at_once.acame()
        return count

    # --- values

    def value_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The value of a job.

        Raises:
            TypeError: The function does not take these arguments.
            EncodeError: An argument does not fit its annotation.
        """
        return {"task": self.name, "args": self.calls.pack(args, kwargs)}

    def ticked(self, value: Mapping[str, Any]) -> NewJob:
        """The job of a tick of a schedule, with the options of the task."""
        stored = {"task": self.name, "args": value.get("args")}
        return self.new_of(stored, self._identified(stored))

    def new_of(self, value: dict[str, Any], options: Mapping[str, Any]) -> NewJob:
        """A job for `done_and`."""
        given = {key: option for key, option in options.items() if key != "timeout"}
        made: NewJob = self.owner.queue(self.queue).new(value, **given)
        return made

    def restored(self, raw: Any) -> R:
        """A result, of what is stored.

        Raises:
            DecodeError: It does not fit the annotation of the function.
        """
        try:
            found: R = self.calls.result.unpack(raw)
        except Unfit as error:
            raise DecodeError(f"the result of task {self.name} {error}") from error.__cause__
        return found

    def _identified(self, value: dict[str, Any]) -> Mapping[str, Any]:
        """The options of a put, with a dedup ID if they ask for one."""
        options = self.options
        if "dedup" in options and options.get("dedup_id") is None:
            return {**options, "dedup_id": dedup_id(self.name, value["args"])}
        return options

    def _puts(
        self, calls: Iterable[Call | Mapping[str, Any]]
    ) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
        """The calls of a queue that put these jobs: a method, its argument and its options."""
        values = map(self._value_of_call, calls)
        if self.options.keys() <= _MANY:
            yield "put_many", values, self.options
        else:
            for value in values:
                yield "put", value, self._identified(value)

    def _value_of_call(self, call: Call | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(call, Call):
            return self.value_of(*call)
        if isinstance(call, Mapping):
            return self.value_of((), call)
        raise DataError(f"put_many needs the arguments of a job by name, not {call!r}")


def _number(put: Any) -> int:
    """How many jobs a call has put, by what it returned: that number, or the ID of one."""
    return int(put) if put.__class__ is int else 1
