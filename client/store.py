"""SharedStore: the face of a store that another process serves, for threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, Unpack, overload

from tidelog.api import shapes
from tidelog.api.closing import Closing
from tidelog.api.compound import Compound
from tidelog.api.encode import encode, encode_all
from tidelog.api.idrange import IdRange
from tidelog.api.pipeline import call_words
from tidelog.api.receipts import followers, level_number
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT, TextT
from tidelog.client.base import BLOCK_S, Base, slice_s
from tidelog.client.keeper import Keeper
from tidelog.client.link import Link
from tidelog.client.missing import answers_missing
from tidelog.client.pipeline import SharedPipeline
from tidelog.client.pooled import Pooled, block_ms, safety
from tidelog.client.replies import as_engine
from tidelog.client.wire import session_free
from tidelog.engine.api import SERIES
from tidelog.engine.reply import Reply
from tidelog.jobs.own import ms_word
from tidelog.jobs.verbs.verb import Safe
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError

FOLD_S: Final = 3600.0  # for which a checkpoint may block a call

if TYPE_CHECKING:
    from tidelog.client.queue import SharedQueue
    from tidelog.client.schedules import SharedSchedules
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.scheduling import Schedule
    from tidelog.jobs.typed import QueueOptions, Typed
    from tidelog.snapshot.portable import Snapshot

T = TypeVar("T")
FSYNCED: Final = "fsynced"
TOKEN_S: Final = 10.0  # how long a call waits for a token unless it says so
# A write that changes nothing but the number of its series. WAIT and WAITAOF then wait for all that came before it.
_LAST: Final = [b"DEL", SERIES]


@answers_missing
class SharedStore(Base, Compound[SharedPipeline, TextT], Closing):
    """A store that another process serves. `tidelog.connect` makes it; many threads may use it at once.

    It has the methods of `tidelog.Store`, with the same replies. Leaving `with tidelog.connect(...)` disconnects;
    leaving the context of a view (`db`, `at`) does not. If the process that serves the store ends, the next
    call finds or starts another one. A call that was under way then is repeated, unless that could do it twice; then it
    raises OutcomeUnknown.

    Besides the errors that it names, any method may raise the errors that `Store` lists, and Unreachable if no server
    answers within the timeout of `connect`. Through a view at the level `replicated` it may raise NotReplicated.
    """

    def __init__(
        self,
        link: Link,
        *,
        decode: bool,
        db: int = 0,
        keeper: Keeper | None = None,
        opened_here: bool = False,
        level: str = "",
        replicas: tuple[int, bool, float] = (0, False, 0.0),
    ) -> None:
        super().__init__(link, keeper or Keeper(link), decode, db)
        self._opened_here = opened_here
        self._level = level  # FSYNCED or REPLICATED: wait for it after each call
        self._replicas = replicas

    def __repr__(self) -> str:
        return f"<shared store {self._link.address}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a shared store cannot be pickled; in the other process, connect to its path"
        )

    # --- views

    def _view(self, **changed: Any) -> Self:
        same: dict[str, Any] = {"decode": self._decode, "db": self._db, "keeper": self._keeper}
        same |= {"level": self._level, "replicas": self._replicas}
        return type(self)(self._link, **{**same, **changed})

    def db(self, number: int) -> Self:
        """The same store, another database.

        Args:
            number: 0 to 15.

        Raises:
            DataError: There is no such database.
        """
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 16:
            raise DataError(f"there is no database {number!r}; choose one from 0 to 15")
        return self._view(db=number)

    def at(
        self,
        level: str,
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> Self:
        """The same store, with replies at another durability level, at least that of the server's fsync policy.

        Args:
            level: As in `Store.at`. `written` is the level of the policy.
            replicas: As in `Store.at`.
            fsynced: As in `Store.at`.
            timeout: As in `Store.at`.

        Raises:
            DataError: The level is unknown, or a number is invalid.
        """
        level_number(level)
        wanted = followers(level, replicas, fsynced, timeout)
        changed: dict[str, Any] = {"level": "" if level == "written" else level}
        if wanted is not None:
            changed["replicas"] = wanted.replicas, wanted.fsynced, wanted.seconds
        return self._view(**changed)

    @property
    def fsync(self) -> str:
        """The fsync policy of the server: `always`, `everysec` or `no`. Assign to change it until the server ends.

        Raises:
            ResponseError: There is no such policy.
        """
        return self.config_get("appendfsync")["appendfsync"]

    @fsync.setter
    def fsync(self, policy: str) -> None:
        self.config_set("appendfsync", policy)

    # --- commands

    def _call(self, shape: Shape[T], words: list[Any]) -> T:
        args = encode_all(words)
        return shape(self._run(args), self._decode)

    def _run(self, args: list[bytes]) -> Reply:
        safe = safety(args)
        block = block_ms(args)
        if block is None:
            reply = self._sent(args, safe, 0.0)
        else:
            reply = self._blocked(args, safe, *block)
        return as_engine(args, reply)

    def _blocked(self, args: list[bytes], safe: Safe, at: int, ms: int) -> Reply:
        """Run a read that blocks, in slices, so that a server that hangs is noticed."""
        until = None if ms == 0 else time.monotonic() + ms / 1000
        while True:
            left = slice_s(until)
            words = [*args[:at], ms_word(left), *args[at + 1 :]]
            reply = self._sent(words, safe, left)
            if reply is not None or (until is not None and time.monotonic() >= until):
                return reply

    def _sent(self, args: list[bytes], safe: Safe, block: float) -> Reply:
        link = self._link
        if not self._level:
            return link.call(args, safe, self._db, block=block)
        pooled = link.take()
        try:
            before = pooled.wire
            reply = link.call(args, safe, self._db, block=block, pooled=pooled)
            if pooled.wire is not before:
                # The write may have been made through the connection before. So let this one write, too.
                link.call(_LAST, Safe.ONCE, self._db, pooled=pooled)
            self._confirm(pooled)
            return reply
        finally:
            link.give_back(pooled)

    def _confirm(self, pooled: Pooled) -> None:
        """Wait until the last reply of a connection has reached the level of this view."""
        if self._level == FSYNCED:
            self._link.confirm(pooled, self._db, 0, True, BLOCK_S)
        else:
            self._link.confirm(pooled, self._db, *self._replicas)

    def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> TextT:
        words: list[Any] = [b"XADD", name, b"*"]
        for pair in fields.items():
            words += pair
        id: TextT = self._call(shapes.text, words)
        return id

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run any command, given as words. As `Store.execute_command`.

        Raises:
            DataError: There are no words, or the command is SELECT or another one that changes the connection, of which
                calls use several by turns.
            ResponseError: The command is unknown or refused.
        """
        words = session_free(call_words(args))
        return self._call(shapes.shape_of(encode(args[0]), options), words)

    def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange[TextT]:
        """Append many entries to a stream as one unit: all are stored or none. As `Store.xadd_many`.

        Raises:
            DataError: `rows` is not an iterable of dicts.
            ResponseError: The key holds no stream.
        """
        if isinstance(rows, (Mapping, str, bytes)) or not isinstance(rows, Iterable):
            raise DataError(f"xadd_many needs an iterable of dicts, not {type(rows).__name__!r}")
        pipe = self.pipeline()
        for row in rows:
            pipe.xadd(key, dict(row))
        found = pipe.execute()
        if not found:
            return IdRange(0, 0, 0, self._decode)
        first = found[0].decode() if isinstance(found[0], bytes) else found[0]
        ms, _, seq = first.partition("-")
        return IdRange(int(ms), int(seq), len(found), self._decode)

    def ping(self) -> bool:
        """True while a server of the store answers."""
        return self._call(shapes.pong, [b"PING"])

    # --- pipelines and transactions

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> SharedPipeline:
        """A pipeline, as of `Store.pipeline`. If the connection breaks during `execute`, that raises OutcomeUnknown.

        Args:
            transaction: As in `Store.pipeline`.
            shard_hint: Ignored; redis-py has it.
        """
        return SharedPipeline(self, transaction)

    # --- queues

    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["bytes"],
        **options: Unpack[QueueOptions],
    ) -> SharedQueue[bytes]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["str"],
        **options: Unpack[QueueOptions],
    ) -> SharedQueue[str]: ...
    @overload
    def queue(
        self, name: str, group: str = "workers", *, codec: Typed[T], **options: Unpack[QueueOptions]
    ) -> SharedQueue[T]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: str | Codec = "json",
        **options: Unpack[QueueOptions],
    ) -> SharedQueue[Any]: ...
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Any = "json",
        **options: Unpack[QueueOptions],
    ) -> SharedQueue[Any]:
        """A durable queue in this store. As `Store.queue`.

        Args:
            name: As in `Store.queue`, and so are the others.
            group: Each group of a queue gets every job once.
            codec: How values become bytes, in this process.
            options: As in `Store.queue`.

        Raises:
            DataError: An option is invalid.
        """
        # here: a program without queues does not load them
        from tidelog.client.queue import SharedQueue
        from tidelog.client.remote import Remote
        from tidelog.jobs.options import make_options

        made = make_options(name, group, codec=codec, **options)
        return SharedQueue(self, Remote(self._inside(), made, codec))

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
        """Put a job into a queue again and again. As `Store.schedule`.

        The process that serves the store computes the ticks, by its clock and its time zones.

        Args:
            name: As in `Store.schedule`, and so are the others.
            cron: A cron expression.
            queue: Name of the queue that gets the jobs.
            every: The interval instead.
            value: The value of each job.
            tz: Name of the time zone of the cron expression.
            catch_up: `one`, `all` or `none` of the ticks that were missed.
            codec: Encodes the value.
            priority: The priority of each job, from 0 to 9.

        Returns:
            The schedule.

        Raises:
            DataError: An argument is invalid, the time zone is unknown, or the expression never fires.
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
        """
        return self.schedules._make(name, cron, every, queue, value, tz, catch_up, codec, priority)

    @property
    def schedules(self) -> SharedSchedules:
        """The schedules of this database: list, pause, resume and remove them."""
        # here: a program without queues does not load them
        from tidelog.client.remote import RemoteDatabase
        from tidelog.client.schedules import SharedSchedules

        return SharedSchedules(RemoteDatabase(self._inside()))

    # --- the store itself

    def barrier(
        self,
        level: str = FSYNCED,
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Wait until everything written so far has reached a level.

        Args:
            level: As in `Store.barrier`.
            replicas: As in `at`.
            fsynced: As in `at`.
            timeout: As in `at`.

        Raises:
            DataError: The level is unknown, or another argument is invalid.
            NotReplicated: Too few followers have confirmed it in time.
        """
        view = self.at(level, replicas=replicas, fsynced=fsynced, timeout=timeout)
        view._sent(_LAST, Safe.ONCE, 0.0)

    def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """The figures of INFO, as texts.

        Args:
            section: Only this section, and those in `args`.
        """
        words = [b"INFO", *encode_all([section, *args] if section else [])]
        found = self._link.call(words, Safe.READ, self._db)
        lines = (line.partition(":") for line in found.decode().splitlines())
        return {name: value for name, colon, value in lines if colon}

    def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """The options of the server that match a glob pattern.

        Args:
            pattern: The pattern; further ones in `args`.
        """
        return self._call(shapes.settings, [b"CONFIG", b"GET", pattern, *args])

    def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change options of the server until it ends.

        Args:
            name: Name of an option.
            value: Its new value.
            *args: Further names and values.

        Returns:
            True.

        Raises:
            ResponseError: There is no such option, or the value is invalid.
        """
        return self._call(shapes.ok, [b"CONFIG", b"SET", name, value, *args])

    def checkpoint(self) -> int:
        """Fold the log into the checkpoint now. Other calls go on meanwhile.

        Returns:
            The last LSN that the checkpoint covers. If another one was made right after it, that one's.

        Raises:
            ResponseError: The checkpoint could not be made; nothing has changed.
        """
        self._link.call((b"SAVE",), Safe.READ, self._db, block=FOLD_S)
        return int(self.info("tidelog")["checkpoint_lsn"])

    def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store's current state in its folder snapshots/. As `Store.snapshot`.

        The process that serves the store makes it.

        Returns:
            Its path, on the machine of that process, and its manifest.

        Raises:
            CheckpointFailed: The snapshot could not be made; nothing has changed.
        """
        # here: few programs make snapshots
        from tidelog.snapshot.manifest import parse
        from tidelog.snapshot.portable import Snapshot

        words = b"TIDELOG", b"SNAPSHOT"
        path, existed, manifest = self._link.call(words, Safe.READ, self._db, block=FOLD_S)
        place = Path(os.fsdecode(path))
        return Snapshot(place, parse(place, manifest), bool(existed))

    def promote(self) -> None:
        """Make a follower a leader, which takes writes. As `Store.promote`.

        Raises:
            ResponseError: The role could not be changed.
        """
        self._link.call((b"REPLICAOF", b"NO", b"ONE"), Safe.READ, self._db)

    def wait_for(self, token: str | bytes, timeout: Duration | None = None) -> None:
        """Wait until the server has applied a write that was made elsewhere. As `Store.wait_for`.

        Args:
            token: As in `Store.wait_for`.
            timeout: As in `Store.wait_for`.

        Raises:
            DataError: The timeout is invalid.
            ResponseError: The token is malformed or another store's.
            TokenLate: It was not applied in time.
            TokenLost: The history of the store shows that the write was given up.
        """
        limit = TOKEN_S if timeout is None else seconds("timeout", timeout, zero=True)
        words = (b"TIDELOG", b"WAITFOR", encode(token), ms_word(limit))  # 0 would be for ever
        self._link.call(words, Safe.READ, self._db, block=limit)
