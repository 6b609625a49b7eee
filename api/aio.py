"""AsyncStore: the face for the tasks of an event loop.

A command is decided at once in the loop's thread; that takes microseconds. A task awaits only the disk and other
callers' writes. An fsync never blocks the loop: the log calls back (`Log.subscribe`).

It imports asyncio, so it is loaded when `AsyncStore` or `aopen` is first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import Log
from tidelog.api import shapes
from tidelog.api.aclosing import AsyncClosing
from tidelog.api.acompound import AsyncCompound
from tidelog.api.encode import encode, encode_all, encode_row
from tidelog.api.face import Face, nothing
from tidelog.api.idrange import IdRange
from tidelog.api.missing import answers_missing
from tidelog.api.pipeline import AsyncPipeline, call_words
from tidelog.api.receipts import Receipt
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT, TextT
from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.store import tokens
from tidelog.store.acks import Acks, Awaited, Replicated
from tidelog.store.commit.arrivals import Arrival
from tidelog.store.commit.attached import Draining
from tidelog.store.commit.core import Answer, Core
from tidelog.store.commit.durability import RELIEF_S, Promise, unfulfilled
from tidelog.store.commit.tasks import TaskCaller, this_task
from tidelog.store.durations import Duration, patience, seconds
from tidelog.store.errors import from_command
from tidelog.store.lifetime import DRAIN_SECONDS, end
from tidelog.store.role import Role

if TYPE_CHECKING:
    from tidelog.api.queue.aio import AsyncQueue
    from tidelog.api.queue.aschedules import AsyncSchedules
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.scheduling import Schedule
    from tidelog.jobs.typed import QueueOptions, Typed
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.scrub import Finding

T = TypeVar("T")


@answers_missing
class AsyncStore(Face, AsyncCompound[AsyncPipeline, TextT], AsyncClosing):
    """An open store for asyncio. `tidelog.aopen` makes it; tasks of several event loops may share it.

    It has the methods of `Store`, awaited. An fsync never blocks the event loop. A cancelled call has done either
    nothing or everything. Any method may raise the errors that `Store` lists.
    """

    # --- commands

    async def _call(self, shape: Shape[T], words: list[Any]) -> T:
        return shape(await self._run(encode_all(words)), self._decode)

    async def _run(self, args: list[bytes]) -> Reply:
        reply, promise = self._core.command(self._db, args, TaskCaller)
        if reply.__class__ is Waiter:
            reply, promise = await self._wait(reply)
        await self._fulfil(promise)
        if reply.__class__ is CommandError:
            raise from_command(reply)
        return reply

    async def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> TextT:
        core = self._core
        try:
            effect, log, lsn = core.add(self._db, encode(name), encode_row(fields))
        except CommandError as error:
            # the error tells of the state, so it waits too
            await self._fulfil(core.look(nothing)[1])
            raise from_command(error) from None
        await self._fulfil((log, lsn, True))
        text = b"%d-%d" % (effect[3], effect[4])
        return text.decode() if self._decode else text  # type: ignore[return-value]

    async def _fulfil(self, promise: Promise) -> None:
        core, level, asked = self._core, self._level, self._replicated
        log, lsn, wrote = promise
        if not core.durability.fulfilled(promise, level):
            error = await _reached(log, lsn, level or core.durability.level())
            if error is not None:
                raise unfulfilled(error, wrote) from error
            # As in Durability.fulfil, but without blocking the loop.
            while wrote and core.durability.relief is not None:
                await asyncio.sleep(RELIEF_S)
        if self._keeps_receipts:
            self._receive(promise)
        if asked is not None:
            await _confirmed(core.acks, promise, asked)
            if self._keeps_receipts:
                self._receive(promise, True)

    async def _wait(self, waiter: Waiter, news: Callable[[], None] | None = None) -> Answer:
        """Wait for a parked read. Cancelled before it is served, it gets nothing; after, its entries stay pending.

        `news` is called before each sleep, without the lock: a decision that waits on may have changed something.
        """
        core, caller = self._core, waiter.owner
        try:
            while not caller.done:
                if news is not None:
                    news()
                await caller.sleep(core.waits.patience(waiter))
                core.wake(waiter)
        except BaseException:
            core.leave(waiter)
            raise
        if caller.error is not None:
            raise caller.error
        answer: Answer = caller.answer
        return answer

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run any command, given as words. As `Store.execute_command`."""
        words = call_words(args)
        return await self._call(shapes.shape_of(encode(args[0]), options), words)

    async def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange[TextT]:
        """Append many entries to a stream as one unit and one record. As `Store.xadd_many`."""
        try:
            reply, promise = self._many(key, rows)
        except CommandError as error:
            await self._fulfil(self._core.look(nothing)[1])
            raise from_command(error) from None
        await self._fulfil(promise)
        return self._ids(reply)

    async def ping(self) -> bool:
        """True while the store is open (spec 16.1)."""
        return await self._call(shapes.pong, [b"PING"])

    # --- pipelines and transactions

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> AsyncPipeline:
        """A pipeline; it queues commands, and `execute` is awaited. As `Store.pipeline`."""
        return AsyncPipeline(self, transaction)

    # --- queues

    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["bytes"],
        **options: Unpack[QueueOptions],
    ) -> AsyncQueue[bytes]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["str"],
        **options: Unpack[QueueOptions],
    ) -> AsyncQueue[str]: ...
    @overload
    def queue(
        self, name: str, group: str = "workers", *, codec: Typed[T], **options: Unpack[QueueOptions]
    ) -> AsyncQueue[T]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: str | Codec = "json",
        **options: Unpack[QueueOptions],
    ) -> AsyncQueue[Any]: ...
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Any = "json",
        **options: Unpack[QueueOptions],
    ) -> AsyncQueue[Any]:
        """A durable queue in this store; its methods are awaited. As `Store.queue`."""
        # here: a program without queues does not load them
        from tidelog.api.queue.aio import AsyncQueue
        from tidelog.jobs.options import make_options

        made = make_options(name, group, codec=codec, **options)
        return AsyncQueue(self, made)

    async def schedule(
        self,
        name: str,
        cron: str | None = None,
        *,
        queue: str,
        every: Duration | None = None,
        value: Any = None,
        tz: str | None = None,
        catch_up: str = "one",
        codec: Any = "json",
        priority: int = 0,
    ) -> Schedule:
        """Put a job into a queue again and again. As `Store.schedule`."""
        return await self.schedules._make(
            *(name, cron, every, queue, value, tz, catch_up, codec, priority)
        )

    @property
    def schedules(self) -> AsyncSchedules:
        """The schedules of this database. As `Store.schedules`, awaited."""
        # here: a program without queues does not load them
        from tidelog.api.queue.aembedded import AsyncDatabase
        from tidelog.api.queue.aschedules import AsyncSchedules

        return AsyncSchedules(AsyncDatabase(self._inside()))

    # --- the store itself

    async def barrier(
        self,
        level: str = "fsynced",
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> Receipt:
        """Wait until everything written so far, by any caller, has reached a level. As `Store.barrier`."""
        view = self.at(level, replicas=replicas, fsynced=fsynced, timeout=timeout)
        promise, life = self._everything()
        await view._fulfil(promise)
        return Receipt(self._core.acks, promise, view._replicated is not None, life)

    async def wait_for(self, token: str | bytes, timeout: Duration | None = None) -> None:
        """Wait until this store has applied a write that was made elsewhere. As `Store.wait_for`."""
        limit = tokens.TIMEOUT_S if timeout is None else seconds("timeout", timeout, zero=True)
        core, wanted = self._core, tokens.parse(token)
        try:
            async with asyncio.timeout(limit):
                while not await _arrived(core, wanted):
                    pass
        except TimeoutError:
            raise tokens.late(core, wanted) from None

    async def digest(self) -> str:
        """A digest of the whole state, in hexadecimal. Equal states have equal digests, whatever led to them."""
        reply, promise = self._digest()
        await self._fulfil(promise)
        return str(reply)

    async def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """The store's status now. As `Store.info`."""
        return self._info()

    async def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """The settings that match a glob pattern. As `Store.config_get`."""
        return self._config_get((pattern, *args))

    async def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change settings until the store is closed. As `Store.config_set`."""
        return self._config_set(name, value, args)

    async def checkpoint(self) -> int:
        """Fold the log into the checkpoint now. As `Store.checkpoint`."""
        return await asyncio.to_thread(self._checkpoints().fold)

    async def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store's current state. As `Store.snapshot`."""
        return await asyncio.to_thread(self._checkpoints().snapshot)

    async def role(self) -> Role:
        """Whether the store leads, or follows another store's log, and why. As `Store.role`."""
        return self._roles().role

    async def promote(self) -> None:
        """Make a follower a leader, which takes writes. As `Store.promote`."""
        await asyncio.to_thread(self._roles().promote)

    async def verify(self) -> list[Finding]:
        """Read and check everything that is stored. As `Store.verify`."""
        return await asyncio.to_thread(self._checkpoints().verify)

    async def refresh(self) -> int:
        """Let a read-only store catch up with what its writer has logged. As `Store.refresh`."""
        return await asyncio.to_thread(self._core.refresh)

    async def aclose(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Close the store. As `Store.close`, for the jobs of other tasks and threads. `close` is another name."""
        limit = patience("drain", drain)
        left = 0
        try:
            if self._core.queues is not None:
                caller = TaskCaller()
                waits = self._core.queues.drain(limit, caller, this_task())
                if waits is not None:
                    left = await _drain(waits, caller)
        finally:  # a cancellation ends the wait, not the closing
            await asyncio.to_thread(end, self._core)
        return left

    close = aclose


async def _reached(log: Log, lsn: int, level: int) -> LogPoisoned | None:
    """Wait until `lsn` has reached `level`. Returns the error if it never will."""
    loop = asyncio.get_running_loop()
    reached: asyncio.Future[LogPoisoned | None] = loop.create_future()

    def settle(error: LogPoisoned | None) -> None:
        if not reached.done():
            reached.set_result(error)

    def callback(error: LogPoisoned | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:
            pass  # the loop is closed: no task waits any more

    log.subscribe(lsn, level, callback)
    return await reached


def _event() -> tuple[asyncio.Event, Callable[[], None]]:
    """An event of the running loop, and a function with which any thread sets it."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def told() -> None:
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            pass  # the loop is closed: no task waits any more

    return event, told


async def _confirmed(acks: Acks, promise: Promise, asked: Replicated) -> None:
    """Wait until enough followers have what a call promises. As `Acks.wait`."""
    log, lsn, _ = promise
    if acks.count(log, lsn, asked.fsynced) >= asked.replicas:
        return
    over, told = _event()
    awaited = Awaited(log, lsn, asked.replicas, asked.fsynced, told)
    try:
        if not acks.begin(awaited):
            async with asyncio.timeout(asked.seconds):
                await over.wait()
    except TimeoutError:
        pass  # the check below says so
    finally:
        acks.forget(awaited)
    acks.check(promise, asked)


async def _arrived(core: Core, token: tokens.Token) -> bool:
    """Whether what a token names is applied; else wait for the next change first. Raises as `tokens.look`."""
    changed, told = _event()
    arrival = Arrival(token.lsn, told)
    core.arrivals.add(arrival)
    try:
        if tokens.look(core, token) is tokens.Verdict.HERE:
            return True
        await changed.wait()
        return False
    finally:
        core.arrivals.remove(arrival)


async def _drain(drain: Draining, caller: TaskCaller) -> int:
    """Wait for the jobs that other threads and tasks hold. Returns how many were left."""
    try:
        drain.begin()
        while (pause := drain.look()) is not None:
            await caller.sleep(pause)
    finally:
        left = drain.end()
    return left
