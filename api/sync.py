"""Store: the face for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from tidelog.api import shapes
from tidelog.api.closing import Closing
from tidelog.api.compound import Compound
from tidelog.api.encode import encode, encode_all
from tidelog.api.face import Face, nothing
from tidelog.api.idrange import IdRange
from tidelog.api.missing import answers_missing
from tidelog.api.pipeline import Pipeline, call_words
from tidelog.api.receipts import Receipt
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT, TextT
from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.store.commit.callers import ThreadCaller
from tidelog.store.commit.core import Answer
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import from_command
from tidelog.store.lifetime import DRAIN_SECONDS, close
from tidelog.store.role import Role

if TYPE_CHECKING:
    from tidelog.api.queue.face import Queue
    from tidelog.api.queue.schedules import Schedules
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.scheduling import Schedule
    from tidelog.jobs.typed import QueueOptions, Typed
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.scrub import Finding

T = TypeVar("T")


@answers_missing
class Store(Face, Compound[Pipeline, TextT], Closing):
    """An open store. `tidelog.open` makes it; many threads may use it at once.

    Its commands have the names, parameters and replies of redis-py's `Redis`. Texts in replies are bytes, or str if the
    store was opened with `decode_responses=True`. "spec 5.1" names a section of docs/reference/streams.md, which
    describes the command. Leaving `with tidelog.open(...)` closes the store; leaving the context of a view (`db`, `at`,
    `receipts`) does not.

    Besides the errors that it names, any method may raise: DataError for an argument that is not bytes, str, int or
    float; StoreClosed; StorePoisoned; StoreDamaged if something in the checkpoint cannot be read; and if it writes,
    OutOfSpace, UnitTooLarge, OutcomeUnknown and, on a read-only store, ReadOnlyError. Through a view at the level
    `replicated` it may raise NotReplicated.
    """

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
        if not self._fulfilled_already(promise):
            self._fulfil(promise)
        if reply.__class__ is CommandError:
            raise from_command(reply)
        return reply

    def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> TextT:
        core = self._core
        key = name.encode() if name.__class__ is str else encode(name)
        row: list[bytes] = []  # inlined encode_row, saves a call
        add = row.append
        for f, v in fields.items():
            add(f.encode() if f.__class__ is str else f if f.__class__ is bytes else encode(f))
            add(v.encode() if v.__class__ is str else v if v.__class__ is bytes else encode(v))
        try:
            effect, log, lsn = core.add(self._db, key, tuple(row))
        except CommandError as error:
            # the error tells of the state, so it waits too
            self._fulfil(core.look(nothing)[1])
            raise from_command(error) from None
        if self._fulfils_each or lsn > core.durability.through(log, self._level):
            self._fulfil((log, lsn, True))
        ms, seq = effect[3], effect[4]
        id = f"{ms}-{seq}" if self._decode else b"%d-%d" % (ms, seq)
        return id  # type: ignore[return-value]

    def _fulfil(self, promise: Promise) -> None:
        core, asked = self._core, self._replicated
        core.durability.fulfil(promise, self._level)
        if self._keeps_receipts:
            self._receive(promise)
        if asked is not None:
            core.acks.wait(promise, asked)
            if self._keeps_receipts:
                self._receive(promise, True)

    def _wait(self, waiter: Waiter, news: Callable[[], None] | None = None) -> Answer:
        """Wait until a parked read is served or its time is up. An interrupt withdraws a read not served yet.

        `news` is called before each sleep, without the lock: a decision that waits on may have changed something.
        """
        core, caller = self._core, waiter.owner
        try:
            while not caller.done:
                if news is not None:
                    news()
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
        """Run any command, given as words: `execute_command("XLEN", "orders")`.

        Args:
            *args: The command's name and its arguments. A name with a blank, `"XINFO STREAM"`, is a command and its
                subcommand.
            **options: Options of redis-py that choose the shape of a reply, such as `parse_justid`; others are ignored.

        Returns:
            The reply, in the shape that redis-py gives it.

        Raises:
            DataError: There are no words, or the command is SELECT.
            ResponseError: The command is unknown or refused.
        """
        words = call_words(args)
        return self._call(shapes.shape_of(encode(args[0]), options), words)

    def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange[TextT]:
        """Append many entries to a stream as one unit and one record: all are stored or none.

        Args:
            key: Key of the stream. It is created if missing.
            rows: The fields of each entry, as in `xadd`.

        Returns:
            The entries' IDs, a sequence.

        Raises:
            DataError: `rows` is not an iterable of dicts.
            ResponseError: The key holds no stream.
        """
        try:
            reply, promise = self._many(key, rows)
        except CommandError as error:
            self._fulfil(self._core.look(nothing)[1])
            raise from_command(error) from None
        self._fulfil(promise)
        return self._ids(reply)

    def ping(self) -> bool:
        """True while the store is open (spec 16.1)."""
        return self._call(shapes.pong, [b"PING"])

    # --- pipelines and transactions

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline. It queues commands, and `execute` runs them together.

        Args:
            transaction: True: the commands are one unit, all or nothing. False: each is its own unit; they share
                writes.
            shard_hint: Ignored; redis-py has it.
        """
        return Pipeline(self, transaction)

    # --- queues

    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["bytes"],
        **options: Unpack[QueueOptions],
    ) -> Queue[bytes]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["str"],
        **options: Unpack[QueueOptions],
    ) -> Queue[str]: ...
    @overload
    def queue(
        self, name: str, group: str = "workers", *, codec: Typed[T], **options: Unpack[QueueOptions]
    ) -> Queue[T]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: str | Codec = "json",
        **options: Unpack[QueueOptions],
    ) -> Queue[Any]: ...
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Any = "json",
        **options: Unpack[QueueOptions],
    ) -> Queue[Any]:
        """A durable queue in this store. Its options are not stored; nothing is written before the first job.

        Args:
            name: Name of the queue, the key of its stream.
            group: Each group of a queue gets every job once.
            codec: `json`, `msgpack`, `bytes`, `str`, a pair of functions (encode, decode), a pydantic model or
                TypeAdapter.
            options: `max_deliveries`, `retry_after`, `keep`, `max_depth`, `max_failures`, `concurrency`, `rate`,
                `concurrency_per_key`, `lease`, `retry`, `time_limit`. `QueueOptions` describes them.

        Raises:
            DataError: An option is invalid.
        """
        # here: a program without queues does not load them
        from tidelog.api.queue.face import Queue
        from tidelog.jobs.options import make_options

        made = make_options(name, group, codec=codec, **options)
        return Queue(self, made)

    def schedule(
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
        """Put a job into a queue again and again.

        The schedule is stored. A second call with the same name and the same arguments changes nothing; one with other
        arguments replaces it.

        Any fetch of any queue in this database makes the ticks that are due. Each tick is one unit, with the dedup ID
        `name@<unix ms>`; no crash and no second process makes a tick twice.

        Args:
            name: Name of the schedule, unique in the database.
            cron: A cron expression of five fields, or of six with seconds first.
            queue: Name of the queue that gets the jobs.
            every: Instead of `cron`: seconds or a timedelta between two ticks, at least one second. The first tick
                comes after that time.
            value: The value of each job. Its headers have `schedule`, the name, and `tick`, the time.
            tz: Name of the time zone of the cron expression; None = UTC. A time that a change to summer time skips
                ticks right after it; one that a change to winter time repeats ticks once.
            catch_up: Of the ticks that were due while no worker fetched, put `one` job for the latest, `all`, or `none`
                that is over a minute late.
            codec: Encodes the value, as in `queue`.
            priority: The priority of the jobs, from 0 to 9.

        Returns:
            The schedule.

        Raises:
            DataError: An argument is invalid, the time zone is unknown, or the expression never fires.
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
        """
        return self.schedules._make(
            *(name, cron, every, queue, value, tz, catch_up, codec, priority)
        )

    @property
    def schedules(self) -> Schedules:
        """The schedules of this database: list, pause, resume and remove them."""
        # here: a program without queues does not load them
        from tidelog.api.queue.embedded import Database
        from tidelog.api.queue.schedules import Schedules

        return Schedules(Database(self._inside()))

    # --- the store itself

    def barrier(
        self,
        level: str = "fsynced",
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> Receipt:
        """Wait until everything written so far, by any caller, has reached a level.

        Args:
            level: `written` (the kernel has it), `fsynced` (the disk has it) or `replicated` (followers have it, too).
            replicas: As in `at`.
            fsynced: As in `at`.
            timeout: As in `at`.

        Returns:
            The receipt of the last record.

        Raises:
            DataError: The level is unknown, or another argument is invalid.
            NotReplicated: Too few followers have confirmed it in time.
            StorePoisoned: The log cannot be synced any more.
        """
        view = self.at(level, replicas=replicas, fsynced=fsynced, timeout=timeout)
        promise, life = self._everything()
        view._fulfil(promise)
        return Receipt(self._core.acks, promise, view._replicated is not None, life)

    def wait_for(self, token: str | bytes, timeout: Duration | None = None) -> None:
        """Wait until this store has applied a write that was made elsewhere. Reads that follow see it.

        Args:
            token: `receipt.token` of the write, or the reply of `TIDELOG TOKEN` at the leader.
            timeout: Seconds or a timedelta; None = 10 seconds.

        Raises:
            DataError: The token is malformed or another store's, or this store is read-only.
            TokenLate: It was not applied in time.
            TokenLost: The history of this store shows that the write was given up.
        """
        from tidelog.store import tokens  # imported here: few programs read from followers

        limit = tokens.TIMEOUT_S if timeout is None else seconds("timeout", timeout, zero=True)
        tokens.wait(self._core, tokens.parse(token), limit)

    def digest(self) -> str:
        """A digest of the whole state, in hexadecimal. Equal states have equal digests, whatever led to them."""
        reply, promise = self._digest()
        self._fulfil(promise)
        return str(reply)

    def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """The store's status now. It does not wait, and works on a failed store too.

        Args:
            section: Ignored, as are further arguments; redis-py has them.

        Returns:
            A dict. `unsynced_bytes` and `unsynced_seconds` say what a power cut would lose; docs/guides/checkpoints.md
            lists the other fields.
        """
        return self._info()

    def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """The settings that match a glob pattern: `appendfsync` and the stream limits.

        Raises:
            DataError: A pattern is not a str.
        """
        return self._config_get((pattern, *args))

    def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change settings until the store is closed; they are not stored.

        Args:
            name: Name of a setting, as `config_get` returns it.
            value: Its new value.
            *args: Further names and values.

        Returns:
            True.

        Raises:
            DataError: A value is missing, or the fsync policy is unknown.
            ResponseError: There is no such setting, or the value is not a number.
            NotStored: The system gives a new fsync policy no thread; the policy stays.
        """
        return self._config_set(name, value, args)

    def checkpoint(self) -> int:
        """Fold the log into the checkpoint now. Other calls go on meanwhile.

        Returns:
            The last LSN that the checkpoint covers.

        Raises:
            CheckpointFailed: The checkpoint could not be made; nothing has changed.
            DataError: The store is read-only.
        """
        return self._checkpoints().fold()

    def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store's current state in its folder snapshots/. Other calls go on meanwhile.

        Returns:
            Its path and manifest.

        Raises:
            CheckpointFailed: The snapshot could not be made; nothing has changed.
            DataError: The store is read-only.
        """
        return self._checkpoints().snapshot()

    def role(self) -> Role:
        """Whether the store leads, or follows another store's log, and why.

        Raises:
            DataError: The store is read-only.
        """
        return self._roles().role

    def promote(self) -> None:
        """Make a follower a leader, which takes writes. When this returns, the disk has the beginning of its new life.

        In a leader it does nothing.

        Raises:
            NotStored: The role could not be changed, for example because the disk is full (OutOfSpace). Call it again.
            DataError: The store is read-only.
        """
        self._roles().promote()

    def verify(self) -> list[Finding]:
        """Read and check everything that is stored. Other calls go on meanwhile.

        Returns:
            The faults found; an empty list if there are none.

        Raises:
            CheckpointFailed: The checkpoint could not be read right now.
            DataError: The store is read-only.
        """
        return self._checkpoints().verify()

    def refresh(self) -> int:
        """Let a read-only store catch up with what its writer has logged.

        Returns:
            The last LSN read.

        Raises:
            DataError: This store is the writer.
            StoreDamaged: The files are damaged.
            NewerFormat: The writer is a newer tidelog.
        """
        return self._core.refresh()

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Close the store: sync the log and release the directory. Closing twice is allowed.

        Blocked calls raise StoreClosed. The store's queues stop handing out jobs; then the call waits for the jobs that
        other living threads and tasks hold.

        Args:
            drain: Seconds or a timedelta to wait for those jobs; None = for ever, 0 = not at all.

        Returns:
            How many of those jobs were left. They are delivered again, and so are the caller's own.

        Raises:
            DataError: `drain` is not a duration.
            StorePoisoned: Records are not confirmed; the text has their number. The directory was released.
            StoreDamaged: The checkpoint is damaged; everything is in the log. The directory was released.
        """
        return close(self._core, drain)
