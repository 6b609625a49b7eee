"""Tasks: the functions that are jobs of one store. `tidelog.tasks` makes it, and opens nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, cast, overload

from tidelog.api.aopening import beside
from tidelog.api.closing import Closing
from tidelog.api.opening import open_store
from tidelog.api.queue.running.plan import check_functions, check_hook, count_processes
from tidelog.api.sync import Store
from tidelog.client.aio import AsyncSharedStore
from tidelog.client.opening import connect
from tidelog.client.store import SharedStore
from tidelog.functions.aseveral import AsyncSeveral
from tidelog.functions.cron import Cron
from tidelog.functions.declared import Maker, Scheduler, TaskArguments
from tidelog.functions.order import Order, order_of
from tidelog.functions.running import LoopArguments, RunArguments, RunOptions
from tidelog.functions.several import Several
from tidelog.functions.task import C, P, R, Task, TaskOptions
from tidelog.functions.work import Work, working
from tidelog.jobs.codecs import NAMED
from tidelog.jobs.job_options import job_options
from tidelog.jobs.scheduling import Schedule
from tidelog.jobs.typed import QueueOptions
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import DataError
from tidelog.store.lifetime import DRAIN_SECONDS
from tidelog.store.opening import AnyPath, is_url
from tidelog.store.threads import in_thread

CODECS = ("json", "msgpack")
QUEUE = "default"


class Tasks(Closing):
    """The functions that are jobs of one store, and its queues. `tidelog.tasks` makes it.

    The store is opened by the first put or run, and stays open until `close`.

    Attributes:
        binary: Whether the codec has bytes.
        at_once: For tests: told of each put.
    """

    def __init__(
        self,
        where: AnyPath,
        *,
        codec: str,
        shared: bool,
        group: str,
        fsync: str | None,
        queues: Mapping[str, QueueOptions],
        options: QueueOptions,
    ) -> None:
        if codec not in CODECS:
            raise DataError(f"the codec of tasks must be one of {', '.join(CODECS)}, not {codec!r}")
        self.where, self.codec, self.group = where, codec, group
        self.shared = shared or is_url(where)
        self.binary = codec == "msgpack"
        self.at_once: Any = None
        self._fsync, self._given, self._options = fsync, queues, options
        self._tasks: dict[str, Task[Any, Any, Any]] = {}
        self._lock = threading.Lock()  # of opening
        self._store: Store | SharedStore | None = None
        self._queues: dict[str, Any] = {}
        self._raw_queues: dict[str, Any] = {}
        self._aqueues: dict[str, Any] = {}
        self._crons: dict[str, Cron] = {}
        self.work = Work(self, self._tasks, NAMED[codec])

    def __repr__(self) -> str:
        return f"<tasks of {os.fspath(self.where)}: {', '.join(self._tasks) or 'none'}>"

    # --- declaring

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskArguments]) -> Maker: ...
    def task(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskArguments]
    ) -> Any:
        """Make a function a task. It is called as before, and has the methods of `Task`, such as `put`.

            @tasks.task(queue="mails", retry=tidelog.RetryPolicy(max=8))
            def send(to: str) -> None: ...

            send.put(to="ann")

        Args:
            function: The function, which may be async.
            options: `queue`, `name`, `results`, and all options of `Queue.put`. With `dedup` and without a `dedup_id`,
                jobs with the same arguments are the same.

        Raises:
            DataError: An option is invalid, or another function has the name.
        """
        if function is None:
            return lambda made: self._declared(made, options)
        return self._declared(function, options)

    def _declared(self, function: Callable[P, C], given: Any) -> Task[P, C, Any]:
        options = dict(given)
        queue, results = options.pop("queue", QUEUE), options.pop("results", None)
        name = options.pop("name", None) or getattr(function, "__qualname__", None)
        if not callable(function) or not name:
            raise DataError(f"a task must be a function, not {function!r}")
        name = name.rpartition(".<locals>.")[2]
        known = self._tasks.get(name)
        if known is not None and place_of(known.function) != place_of(function):
            raise DataError(
                f"two functions are the task {name!r}, {place_of(known.function)} and {place_of(function)}: give one "
                "of them another `name`"
            )
        checked = {key: value for key, value in options.items() if key != "timeout"}
        if "dedup" in checked and checked.get("dedup_id") is None:
            checked["dedup_id"] = name  # it is made of the arguments
        job_options(cast(Any, checked))
        task: Task[P, C, Any] = Task(
            self, function, name, queue, results, cast(TaskOptions, options)
        )
        self._tasks[name] = task
        return task

    def cron(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        tz: str | None = None,
        catch_up: str = "one",
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
    ) -> Scheduler:
        """Let a schedule put a task again and again. `run` and `tidelog worker` make the schedule, in the store.

            @tasks.cron("0 3 * * *", tz="Europe/Berlin")
            @tasks.task(queue="reports", dedup="until-done")
            def nightly() -> None: ...

        A schedule whose decorator is gone stays until `tasks.store.schedules.remove(name)`.

        Args:
            cron: A cron expression, and so are the next three as of `Store.schedule`.
            every: Instead of `cron`: seconds or a timedelta.
            tz: Name of the time zone; None = UTC.
            catch_up: `one`, `all` or `none`.
            name: Name of the schedule; None = that of the task.
            args: The arguments of each call, by name.

        Raises:
            DataError: Another task has a schedule of this name.
        """

        def scheduled(function: Any) -> Any:
            task = function if isinstance(function, Task) else self.task(function)
            known = self._crons.get(name or task.name)
            if known is not None and known.task.name != task.name:
                raise DataError(f"two schedules have the name {name!r}")
            self._crons[name or task.name] = Cron(task, cron, every, tz, catch_up, args or {})
            return task

        return scheduled

    def schedule(self) -> list[Schedule]:
        """Make the schedules that `cron` asks for. `run` does it too.

        Raises:
            DataError: A schedule is invalid.
            TypeError: A function does not take the arguments of its schedule.
        """
        return [each.make(self.store, name, self.codec) for name, each in self._crons.items()]

    @property
    def names(self) -> list[str]:
        """The names of the tasks."""
        return list(self._tasks)

    @property
    def queues(self) -> list[str]:
        """The names of the queues that have a task, in the order of their first ones."""
        return list(dict.fromkeys(task.queue for task in self._tasks.values()))

    @property
    def job(self) -> Any:
        """The job that the running function works on: a `Job`, or its kin of other faces. None: no worker calls it."""
        return working.get(None)

    # --- the store

    @property
    def store(self) -> Store | SharedStore:
        """The store, opened if it is not.

        Raises:
            DataError: An option is invalid.
            CannotOpen: As `tidelog.open`, with the same subclasses.
            Unreachable: No server of the shared store answered in time.
        """
        with self._lock:
            if self._store is None:
                if self.shared:
                    self._store = connect(self.where, fsync=self._fsync)
                else:
                    self._store = open_store(self.where, fsync=self._fsync or "always")
            return self._store

    def queue(self, name: str) -> Any:
        """A queue of the store, for threads: to look at it, to redrive dead jobs, and more. Opens the store.

        Its values are the stored forms of calls.
        """
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = self._made(self.work.through or self.store, name)
        return found

    def raw_queue(self, name: str) -> Any:
        """The same, whose values are bytes: the stored forms as the codec encodes them."""
        found = self._raw_queues.get(name)
        if found is None:
            made = self._made(self.work.through or self.store, name, "bytes")
            found = self._raw_queues[name] = made
        return found

    async def aqueue(self, name: str) -> Any:
        """A queue of the store, for asyncio. Opens the store, in a thread."""
        found = self._aqueues.get(name)
        if found is None:
            store: Any = self._store or await in_thread(lambda: self.store, "open", "tidelog-open")
            face = AsyncSharedStore(store) if isinstance(store, SharedStore) else beside(store)
            found = self._aqueues[name] = self._made(face, name)
        return found

    def replace_store(self, store: Any) -> Any:
        """Use this store from now on, which the caller closes; None = open one when it is needed. For tests.

        Returns:
            The store of before, open; None if none was.
        """
        with self._lock:
            before, self._store = self._store, store
            self._queues, self._raw_queues, self._aqueues = {}, {}, {}
        return before

    def _made(self, store: Any, name: str, codec: str = "") -> Any:
        options = self.options_of(name)
        return store.queue(name, self.group, codec=codec or self.codec, **options)

    def options_of(self, name: str) -> QueueOptions:
        """The options of a queue of these tasks: its own, and where it has none those of all."""
        return {**self._options, **self._given.get(name, {})}

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Close the store, if it is open. The next put opens it again.

        Args:
            drain: As in `Store.close`.

        Returns:
            How many jobs were left in the hands of other threads and tasks.
        """
        store = self.replace_store(None)
        return 0 if store is None else int(store.close(drain))

    # --- working

    def run(
        self,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        **options: Unpack[RunArguments],
    ) -> int:
        """Let workers call the functions, until SIGTERM or Ctrl-C comes. As `Queue.run`.

        The workers are threads. If one of the functions is async, they are tasks of an event loop, and each call of a
        function that is not gets a thread.

        Args:
            queues: Names: the workers take a job from the first of them that has one. A mapping of names to weights:
                they take turns. None = all queues that have a task, by even turns.
            options: Those of `Queue.run` without `batch` and `results`, for all queues together: `workers` jobs at
                once. Hooks and middleware get the job, whose value names the task and its arguments. If one of the
                functions is async, middleware must be, too. With `isolate` none may be async, other processes import
                the tasks by the names of their functions, and `on_done` gets a result that is kept, else None.

        Returns:
            How many jobs were given back because they did not end in time.

        Raises:
            DataError: An argument is invalid, nothing is a task of one of the queues, or another process cannot import
                a function.
            CannotOpen: As `Queue.run`.
            NotStored: As `Queue.run`.
            WorkersHang: As `Queue.run`.
        """
        run = RunOptions.of(options)
        order = order_of(queues, self.queues)
        if count_processes(run.processes) > 1:
            return self._run_processes(queues, order, run)
        if any_async := self.work.coroutines(order.names):
            if run.isolate is not None:
                raise DataError(
                    f"isolate is for plain functions, and {any_async[0]} is async: give it another queue"
                )
            return asyncio.run(self.arun(queues, **run.of_loop()))
        self.schedule()
        found = {name: self.queue(name) for name in order.names}
        runs = found[order.names[0]] if len(found) == 1 else Several(found, order)
        given = run.arguments()
        if run.isolate is not None and run.on_done is not None:
            check_hook("on_done", run.on_done, 2, "a job and its result", asynchronous=False)
            given["on_done"] = partial(self.work.told, run.on_done)
        handler = self.work.handle
        if run.middleware and isinstance(run.middleware, list | tuple):
            handler, given["middleware"] = self.work.call, [self.work.keep, *run.middleware]
        left: int = runs.run(handler, **given)
        return left

    async def arun(
        self,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        **options: Unpack[LoopArguments],
    ) -> int:
        """Let tasks of this event loop call the functions. As `run`, without `processes` and `isolate`."""
        given = RunOptions.of(options).of_loop()
        order = order_of(queues, self.queues)
        if self._crons:
            await in_thread(self.schedule, "make schedules", "tidelog-schedule")
        found = {name: await self.aqueue(name) for name in order.names}
        runs = found[order.names[0]] if len(found) == 1 else AsyncSeveral(found, order)
        handler = self.work.ahandle
        if given["middleware"] and isinstance(given["middleware"], list | tuple):
            handler = self.work.acall
            given["middleware"] = [self.work.akeep, *given["middleware"]]
        left: int = await runs.arun(handler, **given)
        return left

    def _run_processes(self, queues: Any, order: Order, run: RunOptions) -> int:
        hooks = {name: getattr(run, name) for name in ("on_dead", "on_retry", "on_done")}
        waits = bool(self.work.coroutines(order.names))
        check_functions(waits, **hooks, middleware=run.middleware)
        if not self.shared:
            raise DataError("several processes need shared tasks: tidelog.tasks(path)")
        # here: few programs start processes
        from tidelog.client.working import run_children

        store = self.store
        work = partial(_run_here, self.work, queues, replace(run, processes=1))
        parts = [("tasks", self.work), *hooks.items()]
        return run_children(
            work,
            [*parts, *(("middleware", each) for each in run.middleware)],
            run.processes,
            patience("drain", run.drain),
            once=run.block is not None,
            over=lambda: self._store is not store,
        )


def _run_here(work: Work, queues: Any, run: RunOptions) -> int:
    """One of several processes."""
    with work.owner as tasks:
        left: int = tasks.run(queues, **run.arguments())
    return left


def place_of(function: Any) -> str:
    """The module and the name of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def make_tasks(
    where: AnyPath,
    *,
    codec: str = "json",
    shared: bool = True,
    group: str = "workers",
    fsync: str | None = None,
    queues: Mapping[str, QueueOptions] | None = None,
    **options: Unpack[QueueOptions],
) -> Tasks:
    """Begin the functions that are jobs of one store. Opens nothing before the first put.

        tasks = tidelog.tasks("mail-data")

        @tasks.task(queue="mails")
        def send(to: str) -> None: ...

        send.put(to="ann")

    Args:
        where: The store's directory, which is created if missing, or the URL of a server, as in `tidelog.connect`.
        codec: `json` or `msgpack`: how the arguments are stored.
        shared: Several processes use the store, such as a web server and `tidelog worker`. False: this one alone opens
            it, which is faster.
        group: The group of the workers.
        fsync: As in `tidelog.connect`, or in `tidelog.open` if the store is not shared.
        queues: For names of queues, options of theirs.
        options: Options of all queues, such as `retry_after` and `rate`. `QueueOptions` describes them.

    Raises:
        DataError: `codec` is none of the two.
    """
    return Tasks(
        where,
        codec=codec,
        shared=shared,
        group=group,
        fsync=fsync,
        queues=queues or {},
        options=options,
    )
