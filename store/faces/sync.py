"""Store: the face for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from threading import get_ident
from time import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelog.engine.errors import CommandError
from tidelog.engine.keys.waiting import Waiter
from tidelog.engine.reply import Reply
from tidelog.store.commit.core import Answer, Core
from tidelog.store.commit.promise import Promise
from tidelog.store.commit.waiters import ThreadCaller
from tidelog.store.durations import Duration
from tidelog.store.errors import WatchError, from_command
from tidelog.store.faces import shapes
from tidelog.store.faces.encode import encode, encode_all
from tidelog.store.faces.face import Face, nothing
from tidelog.store.faces.idrange import IdRange
from tidelog.store.faces.methods import Methods
from tidelog.store.faces.missing import answers_missing
from tidelog.store.faces.pipeline import Pipeline, call_words
from tidelog.store.faces.receipts import Receipt, level_number
from tidelog.store.faces.shapes import Shape
from tidelog.store.faces.types import KeyT, PatternT, Text
from tidelog.store.lifetime import DRAIN_SECONDS, close

if TYPE_CHECKING:
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.scrub import Finding
    from tidelog.store.queue.face import Queue

T = TypeVar("T")


@answers_missing
class Store(Face, Methods):
    """An open store. `tidelog.open` makes it; many threads may use it at once.

    Leaving `with tidelog.open(...)` closes the store. Leaving the context of a view (`db`, `at`, `receipts`) does not.
    """

    def __init__(self, core: Core, *, decode: bool, db: int = 0, level: int = 0) -> None:
        super().__init__(core, decode=decode, db=db, level=level)
        self._opened_here = False

    # --- commands

    def _call(self, shape: Shape[T], words: list[Any]) -> T:
        return shape(self._run(encode_all(words)), self._decode)

    def _run(self, args: list[bytes]) -> Reply:
        core = self._core
        try:
            reply, promise = core.command(self._db, args, ThreadCaller)
            if reply.__class__ is Waiter:
                reply, promise = self._wait(reply)
        except Exception:
            raise
        except BaseException:
            core.desert(get_ident())
            raise
        if not self._holds_already(promise):
            self._hold(promise)
        if reply.__class__ is CommandError:
            raise from_command(reply)
        return reply

    def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> Text:
        core = self._core
        key = (
            name
            if name.__class__ is bytes
            else name.encode()
            if name.__class__ is str
            else encode(name)
        )
        row: list[bytes] = []  # inlined encode_row, saves a call
        add = row.append
        for f, v in fields.items():
            add(f if f.__class__ is bytes else f.encode() if f.__class__ is str else encode(f))
            add(v if v.__class__ is bytes else v.encode() if v.__class__ is str else encode(v))
        try:
            effect, log, lsn = core.add(self._db, key, tuple(row))
        except CommandError as error:
            self._hold(core.look(nothing)[1])  # the error tells of the state, so it waits too
            raise from_command(error) from None
        if self._keeps_receipts or lsn > core.durability.through(log, self._level):
            self._hold((log, lsn, True))
        text = b"%d-%d" % (effect[3], effect[4])
        return text.decode() if self._decode else text

    def _hold(self, promise: Promise) -> None:
        self._core.durability.hold(promise, self._level)
        if self._keeps_receipts:
            self._receive(promise)

    def _wait(self, waiter: Waiter) -> Answer:
        """Wait until a parked read is served or its time is up. An interrupt withdraws a read not served yet."""
        core, caller = self._core, waiter.owner
        try:
            while not caller.done:
                caller.sleep(core.waits.patience(waiter))
                core.wake(waiter)
        except BaseException:
            core.leave(waiter)
            raise
        if caller.error is not None:
            raise caller.error
        answer: Answer = caller.answer
        return answer

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command given as words: `execute_command("XLEN", "orders")`. Replies have redis-py's shapes."""
        words = call_words(args)
        return self._call(shapes.shape_of(encode(args[0]), options), words)

    def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange:
        """Add many entries as one unit and one record. Returns their IDs; each is formatted only when looked at.

        Raises DataError if `rows` is not an iterable of dicts, and what `xadd` raises.
        """
        try:
            reply, promise = self._many(key, rows)
        except CommandError as error:
            self._hold(self._core.look(nothing)[1])
            raise from_command(error) from None
        self._hold(promise)
        return self._ids(reply)

    def scan_iter(
        self,
        match: PatternT | None = None,
        count: int | None = None,
        _type: str | None = None,
    ) -> Iterator[Text]:
        """Iterate over the names of all keys with SCAN. `count` is a hint for the size of one step."""
        cursor = -1
        while cursor:
            cursor, names = self.scan(max(cursor, 0), match, count, _type)
            yield from names

    def ping(self) -> bool:
        """True while the store is open."""
        return self._call(shapes.pong, [b"PING"])

    def time(self) -> tuple[int, int]:
        """The store's clock: (Unix seconds, microseconds of the second)."""
        return self._call(shapes.clock, [b"TIME"])

    def __contains__(self, name: KeyT) -> bool:
        return bool(self.exists(name))

    def __getitem__(self, name: KeyT) -> Text:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: KeyT, value: Any) -> None:
        self.set(name, value)

    def __delitem__(self, name: KeyT) -> None:
        self.delete(name)

    # --- pipelines and transactions

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline: its commands run as one unit, or with `transaction=False` each as its own unit."""
        return Pipeline(self, transaction)

    def transaction(
        self,
        func: Callable[[Pipeline], Any],
        *watches: KeyT,
        shard_hint: str | None = None,
        value_from_callable: bool = False,
        watch_delay: float | None = None,
    ) -> Any:
        """Watch `watches`, call `func(pipe)` and execute; repeat until no watched key changed in between.

        Returns the results, or with `value_from_callable` what `func` returned. `watch_delay` (seconds) is the pause
        before a repeat.
        """
        with self.pipeline(True) as pipe:
            while True:
                try:
                    if watches:
                        pipe.watch(*watches)
                    value = func(pipe)
                    results = pipe.execute()
                    return value if value_from_callable else results
                except WatchError:
                    if watch_delay:
                        sleep(watch_delay)

    # --- queues

    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Any = "json",
        max_deliveries: int = 5,
        retry_after: Duration = 30.0,
        keep: int | timedelta = 0,
        max_depth: int | None = None,
        max_failures: int = 1000,
    ) -> Queue:
        """A durable queue in this store.

        codec            `json`, `msgpack`, `bytes`, `str`, a pair of functions (encode, decode), or a pydantic model
        max_deliveries   a job that was delivered this often without success becomes a dead job
        retry_after      seconds or a timedelta: how long a lease outlives its worker, and the first retry pause
        keep             how many acknowledged jobs to keep, or (timedelta) for how long after they were put; enforced
                         while jobs are being done
        max_depth        bound on unfinished jobs; `put` waits while the queue is full. None = no bound
        max_failures     how many entries about failures to keep

        The options are not stored. Nothing is written before the first job. Raises DataError.
        """
        # Imported here: a program without queues does not load them.
        from tidelog.store.queue.face import Queue
        from tidelog.store.queue.options import make_options

        options = make_options(
            *(name, group),
            codec=codec,
            max_deliveries=max_deliveries,
            retry_after=retry_after,
            keep=keep,
            max_depth=max_depth,
            max_failures=max_failures,
        )
        return Queue(self, options)

    # --- the store itself

    def barrier(self, level: str = "fsynced") -> Receipt:
        """Wait until everything written so far, by any caller, has reached `level` (`written` or `fsynced`).

        Returns the receipt of the last record. Raises DataError, StorePoisoned.
        """
        number = level_number(level)
        core = self._core
        _, promise = core.look(nothing)
        core.durability.hold(promise, number)
        return Receipt(*promise[:2])

    def digest(self) -> str:
        """A digest of the whole state, in hexadecimal. Equal states have equal digests, whatever led to them."""
        reply, promise = self._digest()
        self._hold(promise)
        return str(reply)

    def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """The store's status now, as a dict. `unsynced_bytes` and `unsynced_seconds`: what a power cut would lose."""
        return self._info()

    def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """The settings that match a glob pattern: `appendfsync` and the stream limits."""
        return self._config_get((pattern, *args))

    def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change settings until the store is closed; they are not stored. Raises DataError, ResponseError."""
        return self._config_set(name, value, args)

    def checkpoint(self) -> int:
        """Fold the log into the checkpoint now; other calls go on. Returns the last LSN that the checkpoint covers.

        Raises CheckpointFailed; then nothing has changed, and the log is kept.
        """
        return self._checkpoints().fold()

    def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store's current state under snapshots/. Returns its path and LSN.

        Raises CheckpointFailed.
        """
        return self._checkpoints().snapshot()

    def verify(self) -> list[Finding]:
        """Read and check everything that is stored. Returns the findings; an empty list if there are none."""
        return self._checkpoints().verify()

    def refresh(self) -> int:
        """Apply what the writer has logged since the last look. Read-only stores only. Returns the last LSN.

        Raises DataError on a writer's store, StoreDamaged, NewerFormat.
        """
        return self._core.refresh()

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Sync the log and release the directory. Blocked calls raise StoreClosed. Closing twice is allowed.

        The store's queues stop handing out jobs. Then the call waits up to `drain` seconds (None = for ever, 0 = not at
        all) for the jobs that other living threads and tasks have in hand. Returns how many of those were left, and
        logs it. They will be delivered again, and so will the caller's own.

        Raises StorePoisoned, with the number of unconfirmed records, after the directory was released.
        """
        return close(self._core, drain)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened_here:
            self.close()
