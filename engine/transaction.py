"""Transaction: MULTI, EXEC, DISCARD, WATCH and UNWATCH of one session (spec 15).

Pure bookkeeping. A session gives every command to `submit` first:

    None      not its business: decide and apply the command as usual
    Exec      run these commands in order, each decided and then applied, with `ctx.may_block` False,
              a CommandError becoming an element of the reply; all of it is one unit
    a reply   the answer; nothing is to run

`Watches` is the store's registry of who watches what; it is told of every change that touches a watched key
(engine.observe.touches), before that change is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from tidelog.engine.context import Context
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import NULL_ARRAY, OK, QUEUED, Reply
from tidelog.engine.state import State
from tidelog.engine.table import TABLE, Table
from tidelog.engine.waiting import Place

# What one queued argument costs besides its bytes: the header it gets when it becomes part of a record.
_ARGUMENT_BYTES = 5
_PLAIN_BYTES = len(b"XADD*") + 3 * _ARGUMENT_BYTES  # of a plain XADD, besides its key and row
QUEUED_BYTES_MAX = 64 << 20

PlainAdd = tuple[
    bytes, tuple[bytes, ...]
]  # (key, row): XADD key * field value ..., with nothing but defaults
Queued = list[bytes] | PlainAdd  # a command's words, or that

# What a session answers at once while it queues everything else.
_NOT_QUEUED = frozenset((b"multi", b"exec", b"discard", b"watch"))


def words_of(command: Queued) -> list[bytes]:
    """A command's words."""
    if isinstance(command, tuple):
        return [b"XADD", command[0], b"*", *command[1]]
    return command


def discarded(error: CommandError) -> CommandError:
    """What EXEC answers where it was refused itself; the transaction is over then."""
    reason = error.line.removeprefix(b"ERR ")
    return CommandError(b"EXECABORT Transaction discarded because of: " + reason)


class Exec:
    """EXEC may run: the queued commands, in order."""

    __slots__ = ("commands",)

    def __init__(self, commands: list[Queued]) -> None:
        self.commands = commands


class Watches:
    """Which transactions watch which key. One per store, guarded by its lock.

    keys    the keys someone watches, a live view; empty when nobody does. Looked at with every write
    """

    __slots__ = ("keys", "_by_place")

    def __init__(self) -> None:
        # The bool: the key's time had passed already when it was watched, though it was not deleted yet.
        self._by_place: dict[Place, dict[Transaction, bool]] = {}
        self.keys: Collection[Place] = self._by_place.keys()

    def add(self, transaction: Transaction, place: Place, expired: bool) -> None:
        self._by_place.setdefault(place, {})[transaction] = expired

    def remove(self, transaction: Transaction, places: Iterable[Place]) -> None:
        for place in places:
            watchers = self._by_place[place]
            del watchers[transaction]
            if not watchers:
                del self._by_place[place]

    def expired_at_watch(self, transaction: Transaction, place: Place) -> bool:
        return self._by_place[place][transaction]

    def touch(self, places: Iterable[Place]) -> None:
        """Break the transactions that watch these keys."""
        for place in places:
            for transaction, expired in self._by_place.get(place, {}).items():
                if expired:
                    # Only the deletion that was due when it was watched: to the watcher the key
                    # was missing before, and is missing after. The next change counts.
                    self._by_place[place][transaction] = False
                else:
                    transaction.broken = True


class Transaction:
    """The transaction state of one session.

    active    between MULTI and EXEC or DISCARD
    broken    a watched key was touched: EXEC answers the null array
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
        self._watched: dict[Place, None] = {}
        self._bytes_max = queued_bytes_max
        self._end()

    def submit(self, ctx: Context, args: list[bytes]) -> Reply | Exec | None:
        """See the module's text. Raises CommandError; an error while queuing dooms the transaction."""
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
                # A malformed EXEC ends the transaction all the same, also one that was never begun.
                self._end()
                raise discarded(error) from None
            raise
        return _SESSION[name](self, ctx, args)

    def queue(self, ctx: Context, commands: Sequence[Queued]) -> tuple[int, CommandError] | None:
        """`submit` many after MULTI: (position, error) of the first that cannot be queued, if any."""
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
        """Queue commands that are all plain XADDs at once, if they are and fit: nothing else can be wrong with them."""
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
        """A command was refused before it could be queued: EXEC will refuse the rest."""
        self._aborted = self.active

    def reset(self) -> None:
        """Drop everything: the session ends, or RESET."""
        self._end()

    @property
    def queued(self) -> int:
        """How many commands are queued."""
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """What they take, about."""
        return self._bytes

    @property
    def watched(self) -> Collection[Place]:
        return self._watched

    def _enqueue(self, args: list[bytes]) -> Reply:
        self._bytes += sum(map(len, args)) + _ARGUMENT_BYTES * len(args)
        if self._bytes > self._bytes_max:
            # Nothing more is kept: EXEC refuses anyway.
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
        """Whether a watched key's time has passed since, though nobody has deleted it yet."""
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
