"""Store: the face for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from threading import get_ident
from time import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.engine.waiting import Waiter
from tidelog.store import shapes
from tidelog.store.core import Answer, Core
from tidelog.store.durations import Duration
from tidelog.store.encode import encode, encode_all
from tidelog.store.errors import WatchError, from_command
from tidelog.store.face import Face, nothing
from tidelog.store.idrange import IdRange
from tidelog.store.lifetime import DRAIN_SECONDS, close
from tidelog.store.methods import Methods
from tidelog.store.pipeline import Pipeline, call_words
from tidelog.store.promise import Promise
from tidelog.store.receipts import Receipt, level_number
from tidelog.store.shapes import Shape
from tidelog.store.types import KeyT, PatternT, Text
from tidelog.store.waiters import ThreadCaller

if TYPE_CHECKING:
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.scrub import Finding
    from tidelog.store.queue.face import Queue

T = TypeVar("T")


class Store(Face, Methods):
    """An open store. Made by `tidelog.open`; safe to use from many threads.

    As a context manager it closes itself; leaving the context of a view (`db`, `at`, `receipts`) closes nothing.
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
        row: list[bytes] = []  # as encode_row; a call less
        add = row.append
        for f, v in fields.items():
            add(f if f.__class__ is bytes else f.encode() if f.__class__ is str else encode(f))
            add(v if v.__class__ is bytes else v.encode() if v.__class__ is str else encode(v))
        try:
            effect, log, lsn = core.add(self._db, key, tuple(row))
        except CommandError as error:
            self._hold(core.look(nothing)[1])  # it tells something about the state
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
        """A parked read: until it is served, or its time is up. An interrupt leaves nothing delivered to nobody."""
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
        """A command given as words; the reply in the shape redis-py gives it."""
        words = call_words(args)
        return self._call(shapes.shape_of(encode(args[0]), options), words)

    def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange:
        """Add many entries as one unit and one record; their IDs, made only when looked at."""
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
        """Every name, by SCAN."""
        cursor = -1
        while cursor:
            cursor, names = self.scan(max(cursor, 0), match, count, _type)
            yield from names

    def ping(self) -> bool:
        """True while the store is open."""
        return self._call(shapes.pong, [b"PING"])

    def time(self) -> tuple[int, int]:
        """The store's clock: unix seconds, microseconds."""
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
        """A queue of commands: one unit, or with `transaction=False` a unit each."""
        return Pipeline(self, transaction)

    def transaction(
        self,
        func: Callable[[Pipeline], Any],
        *watches: KeyT,
        shard_hint: str | None = None,
        value_from_callable: bool = False,
        watch_delay: float | None = None,
    ) -> Any:
        """Run `func(pipe)` and the pipeline with `watches` watched, again until none of them changed meanwhile."""
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

        codec            `json`, `msgpack`, `bytes`, `str`, a pair of functions (encode, decode), a pydantic model
        max_deliveries   after so many failed ones a job goes to the dead
        retry_after      seconds or a timedelta: the lease of a job whose worker died, the first pause before a retry
        keep             acknowledged jobs that stay: a number, or until so long after they were put (timedelta); looked
                         at while jobs are being done
        max_depth        jobs that may be unfinished; beyond that `put` waits
        max_failures     entries kept about what went wrong

        Nothing of this is stored; nothing is written before the first job. Raises DataError.
        """
        # Not with the rest: who needs no queue does without its import.
        from tidelog.store.queue.face import make_queue
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
        return make_queue(self, options)

    # --- the store itself

    def barrier(self, level: str = "fsynced") -> Receipt:
        """Wait until all that was written before, by anyone, holds `level`."""
        number = level_number(level)
        core = self._core
        _, promise = core.look(nothing)
        core.durability.hold(promise, number)
        return Receipt(*promise[:2])

    def digest(self) -> str:
        """One hexadecimal digest of the whole state, equal for equal states, however they came about."""
        reply, promise = self._digest()
        self._hold(promise)
        return str(reply)

    def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """What the store is and what is exposed at this moment (`unsynced_bytes`, `unsynced_seconds`)."""
        return self._info()

    def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """Settings by glob pattern: `appendfsync` and the stream limits."""
        return self._config_get((pattern, *args))

    def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change settings of this open; nothing of it is stored."""
        return self._config_set(name, value, args)

    def checkpoint(self) -> int:
        """Fold the log into the checkpoint now, beside whatever goes on. The LSN up to which that holds everything.

        Raises CheckpointFailed; then nothing has changed, and the log is kept.
        """
        return self._checkpoints().fold()

    def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store as it is now, in its folder snapshots/: where it is, and its LSN.

        Raises CheckpointFailed.
        """
        return self._checkpoints().snapshot()

    def verify(self) -> list[Finding]:
        """Read everything that is stored, and say what is wrong with it: an empty list if nothing is."""
        return self._checkpoints().verify()

    def refresh(self) -> int:
        """Read-only stores: follow the writer on to what the log holds now. The last LSN."""
        return self._core.refresh()

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Sync, release the directory, wake whoever waits with StoreClosed. Closing twice is allowed.

        Queues of the store hand out no more jobs; those in the hands of other living threads and tasks are waited for
        first, `drain` seconds at most (None = for ever, 0 = not at all). Returns how many were left in their hands, and
        logs it; they will be delivered again, as will the caller's own.

        Raises StorePoisoned, after releasing, with the number of records that were never confirmed.
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
