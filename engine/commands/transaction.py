"""Transaction: MULTI, EXEC, DISCARD, WATCH and UNWATCH of one session (spec 15).

This module runs no command. A session passes every command to `submit` first, which returns

    None      the command is not part of a transaction: decide and apply it as usual
    Exec      run these commands in order as one unit. Decide and apply each with `ctx.may_block` False; a CommandError
              becomes an element of the reply
    a reply   the answer; there is nothing to run

`Watches` is the store's registry of watched keys. The store tells it of every change to a watched key
(engine.effects.observe.touches) before that change is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import TABLE, Table
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.state import State
from tidelog.engine.keys.waiting import DbKey
from tidelog.engine.reply import NULL_ARRAY, OK, QUEUED, Reply

# Overhead of one queued argument: the msgpack header that it gets in a record.
_ARGUMENT_BYTES = 5
_PLAIN_BYTES = len(b"XADD*") + 3 * _ARGUMENT_BYTES  # of a plain XADD, without its key and row
QUEUED_BYTES_MAX = 64 << 20

# (key, row): stands for the command XADD key * field value ..., without options.
PlainAdd = tuple[bytes, tuple[bytes, ...]]
Queued = list[bytes] | PlainAdd  # a command's words, or a plain XADD

# A session runs these commands at once between MULTI and EXEC. It queues all others.
_NOT_QUEUED = frozenset((b"multi", b"exec", b"discard", b"watch"))


def words_of(command: Queued) -> list[bytes]:
    """The words of a queued command."""
    if isinstance(command, tuple):
        return [b"XADD", command[0], b"*", *command[1]]
    return command


def discarded(error: CommandError) -> CommandError:
    """The error reply of an EXEC that is itself refused. Such an EXEC ends the transaction."""
    reason = error.line.removeprefix(b"ERR ")
    return CommandError(b"EXECABORT Transaction discarded because of: " + reason)


class Exec:
    """EXEC may run: the queued commands, in order."""

    __slots__ = ("commands",)

    def __init__(self, commands: list[Queued]) -> None:
        self.commands = commands


class Watches:
    """The transactions that watch each key. One per store, guarded by the store's lock.

    keys    a live view of the watched keys. Every write checks it
    """

    __slots__ = ("keys", "_by_place")

    def __init__(self) -> None:
        # For each watched key its transactions; True if the key had already expired at the WATCH but was still stored.
        self._by_place: dict[DbKey, dict[Transaction, bool]] = {}
        self.keys: Collection[DbKey] = self._by_place.keys()

    def add(self, transaction: Transaction, place: DbKey, expired: bool) -> None:
        self._by_place.setdefault(place, {})[transaction] = expired

    def remove(self, transaction: Transaction, places: Iterable[DbKey]) -> None:
        for place in places:
            watchers = self._by_place[place]
            del watchers[transaction]
            if not watchers:
                del self._by_place[place]

    def expired_at_watch(self, transaction: Transaction, place: DbKey) -> bool:
        return self._by_place[place][transaction]

    def touch(self, places: Iterable[DbKey]) -> None:
        """Break the transactions that watch these keys."""
        for place in places:
            for transaction, expired in self._by_place.get(place, {}).items():
                if expired:
                    # The key had already expired at the WATCH, so the watcher saw no key, and still sees none after
                    # this deletion. Do not break its transaction now. The next change of the key breaks it.
                    self._by_place[place][transaction] = False
                else:
                    transaction.broken = True


class Transaction:
    """The transaction state of one session.

    active    between MULTI and EXEC or DISCARD
    broken    a watched key was changed: EXEC answers the null array
    """

    __slots__ = (
        "active",
        "broken",
        "_aborted",
        "_queue",
        "_bytes",
        "_bytes_max",
        "_watched",
        "_watches",
        "_resolve",
    )

    active: bool
    broken: bool

    def __init__(
        self,
        watches: Watches,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
        table: Table = TABLE,
    ) -> None:
        self._watches = watches
        self._resolve = table.resolve
        self._watched: dict[DbKey, None] = {}
        self._bytes_max = queued_bytes_max
        self._end()

    def submit(self, ctx: Context, args: list[bytes]) -> Reply | Exec | None:
        """See the module docstring. Raises CommandError; after an error while queuing, EXEC will be refused."""
        name = args[0].lower()
        if not self.active and name not in _SESSION:
            return None
        try:
            self._resolve(args)
            if self.active and name not in _NOT_QUEUED:
                return self._enqueue(args)
        except CommandError as error:
            self._aborted = self.active
            if name == b"exec":
                # A malformed EXEC also ends the transaction. If there is no transaction, it only drops the watches.
                self._end()
                raise discarded(error) from None
            raise
        return _SESSION[name](self, ctx, args)

    def queue(self, ctx: Context, commands: Sequence[Queued]) -> tuple[int, CommandError] | None:
        """`submit` many commands after MULTI. Returns (index, error) of the first that cannot be queued, or None."""
        if self._queue_plain(commands):
            return None
        refusal: tuple[int, CommandError] | None = None
        for position, command in enumerate(commands):
            try:
                self.submit(ctx, words_of(command))
            except CommandError as error:
                refusal = refusal or (position, error)
        return refusal

    def _queue_plain(self, commands: Sequence[Queued]) -> bool:
        """Queue all commands at once if all are plain XADDs and fit. No other check applies to those."""
        plain = [command for command in commands if isinstance(command, tuple) and command[1]]
        if len(plain) != len(commands):
            return False
        rows = [row for _, row in plain]
        nbytes = len(b"".join(chain.from_iterable(rows))) + sum(len(key) for key, _ in plain)
        nbytes += _ARGUMENT_BYTES * sum(map(len, rows)) + _PLAIN_BYTES * len(rows)
        if self._bytes + nbytes > self._bytes_max:
            return False
        self._bytes += nbytes
        self._queue += commands
        return True

    def abort(self) -> None:
        """Note that a command was refused before it was queued, so that EXEC refuses the transaction."""
        self._aborted = self.active

    def reset(self) -> None:
        """Drop the queue and all watches, as the end of the session or RESET does."""
        self._end()

    @property
    def queued(self) -> int:
        """The number of queued commands."""
        return len(self._queue)

    @property
    def commands(self) -> Sequence[Queued]:
        """The queued commands."""
        return self._queue

    @property
    def queued_bytes(self) -> int:
        """The approximate bytes that the queued commands take."""
        return self._bytes

    @property
    def watched(self) -> Collection[DbKey]:
        return self._watched

    def _enqueue(self, args: list[bytes]) -> Reply:
        self._bytes += sum(map(len, args)) + _ARGUMENT_BYTES * len(args)
        if self._bytes > self._bytes_max:
            # Free the queue: EXEC will be refused anyway.
            self._queue.clear()
            raise CommandError(
                b"ERR transaction too large: more than %d bytes are queued" % self._bytes_max
            )
        if not self._aborted:
            self._queue.append(args)
        return QUEUED

    def _multi(self, ctx: Context, args: list[bytes]) -> Reply:
        if self.active:
            raise CommandError(b"ERR MULTI calls can not be nested")
        self.active = True
        return OK

    def _exec(self, ctx: Context, args: list[bytes]) -> Reply | Exec:
        if not self.active:
            raise CommandError(b"ERR EXEC without MULTI")
        aborted, broken = self._aborted, self.broken or self._watched_expired(ctx.state, ctx.now)
        commands = self._queue
        self._end()
        if aborted:
            raise CommandError(b"EXECABORT Transaction discarded because of previous errors.")
        return NULL_ARRAY if broken else Exec(commands)

    def _discard(self, ctx: Context, args: list[bytes]) -> Reply:
        if not self.active:
            raise CommandError(b"ERR DISCARD without MULTI")
        self._end()
        return OK

    def _watch(self, ctx: Context, args: list[bytes]) -> Reply:
        if self.active:
            raise CommandError(b"ERR WATCH inside MULTI is not allowed")
        keys = ctx.database.keys
        for key in args[1:]:
            place = (ctx.db, key)
            if place not in self._watched:
                self._watched[place] = None
                self._watches.add(self, place, keys.expire_at(key) < ctx.now)
        return OK

    def _unwatch(self, ctx: Context, args: list[bytes]) -> Reply:
        self._forget_watches()
        return OK

    def _watched_expired(self, state: State, now: int) -> bool:
        """Whether a watched key has expired since the WATCH, even if it is not deleted yet."""
        return any(
            state.databases[db].keys.expire_at(key) < now
            and not self._watches.expired_at_watch(self, (db, key))
            for db, key in self._watched
        )

    def _forget_watches(self) -> None:
        self._watches.remove(self, self._watched)
        self._watched = {}
        self.broken = False

    def _end(self) -> None:
        self.active = False
        self._aborted = False
        self._queue: list[Queued] = []
        self._bytes = 0
        self._forget_watches()


_SESSION = {
    b"multi": Transaction._multi,
    b"exec": Transaction._exec,
    b"discard": Transaction._discard,
    b"watch": Transaction._watch,
    b"unwatch": Transaction._unwatch,
}
