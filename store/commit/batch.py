"""Batches: many commands in one call. A pipeline, whose units share frames, or EXEC, which is one unit.

Both run their commands through `_Batch`; each is decided after the ones before it were applied
(store/commit/gathering.py).

Consecutive plain XADDs to one key are logged as one record, that of `xadd_many`. A frame holds all of them or none
anyway, and it is three times faster than a record each. Many of them seal whole nodes on the way; a few go into the
open node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, cast

from tidelog.engine.api import (
    APPLY,
    END,
    XADD,
    Context,
    Effect,
    Exec,
    PlainAdd,
    Queued,
    Stream,
    Transaction,
    decide_xadd_auto,
    decide_xadd_many,
    decide_xadd_run,
    discarded,
    reading,
    words_of,
)
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.fast_path import fast_path
from tidelog.engine.reply import Reply
from tidelog.store.commit.adding import BY_NAME, OTHER
from tidelog.store.commit.blocked import Decide, Takers
from tidelog.store.commit.core import Answer, Core
from tidelog.store.commit.gathering import FRAME_BYTES, Gathering
from tidelog.store.commit.landing import NOTHING
from tidelog.store.commit.reads import first_write
from tidelog.store.errors import NotStored, StoreDamaged

FRAME_UNITS = 1000  # a pipeline holds the lock for at most this many units
# This many plain XADDs in a row to one key become one record if they fit into the open node.
FEW = 4
# This many plain XADDs become one record even if they do not fit into the open node. With fewer, the work per record
# costs more than it saves.
MANY = 160
_WORD_BYTES: Final = 5  # at most, what msgpack adds to a byte string
_RECORD_BYTES: Final = 64  # upper bound of an XADD record's bytes, without its key and row
ANEW: Final = "the log was rebuilt meanwhile; repeat the call"


class Decided(list[bytes]):
    """A change among the commands of a unit that no command makes: the caller has decided its effect."""

    __slots__ = ("effect",)

    def __init__(self, effect: Effect) -> None:
        super().__init__()
        self.effect = effect


def _expected(command: Queued) -> Effect:
    """An effect as the command may have, before it is decided."""
    if command.__class__ is Decided:
        return command.effect
    if command.__class__ is tuple:
        return XADD, 0, command[0]
    words = words_of(command)
    return BY_NAME.get(words[0].lower(), OTHER), 0, words[1] if len(words) > 1 else b""


def run_transaction(
    core: Core, db: int, transaction: Transaction, commands: Sequence[Queued]
) -> Answer:
    """MULTI, the commands, EXEC: one unit, or nothing.

    The reply is a list (CommandErrors among them), NULL_ARRAY if a watched key changed, the CommandError of EXEC, or
    (position, CommandError) of the first command that could not be queued.
    """

    def work(ctx: Context) -> Reply:
        transaction.submit(ctx, [b"MULTI"])
        refusal = transaction.queue(ctx, commands)
        if core.refusal is not None:
            write = first_write(commands)
            if write is not None:
                transaction.abort()
                if refusal is None or write < refusal[0]:
                    refusal = write, CommandError(core.refusal)
        try:
            reply = transaction.submit(ctx, [b"EXEC"])
        except CommandError as error:
            return refusal or error
        if reply.__class__ is Exec:
            return _Batch(core, ctx, core.decide, one_unit=True).unit(reply.commands)
        return reply

    return core.run(db, work)


def run_exec(
    core: Core, db: int, transaction: Transaction, args: list[bytes], decide: Decide
) -> tuple[Answer, int]:
    """EXEC of a session that has queued its commands; `decide` decides each. Returns the answer, and the database that
    is selected afterwards. Gathered in the log, not flushed. Raises CommandError."""
    selected = db

    def work(ctx: Context) -> Reply:
        nonlocal selected
        reply = transaction.submit(ctx, args)
        if reply.__class__ is Exec:
            if core.refusal is not None and first_write(reply.commands) is not None:
                raise discarded(CommandError(core.refusal))  # it took writes when these were queued
            reply = _Batch(core, ctx, decide, flush=False, one_unit=True).unit(reply.commands)
        selected = ctx.db
        return reply

    try:
        answer = core.run(db, work, flush=False)
    except BaseException:
        core.forget(transaction)  # the transaction has ended, however EXEC ends
        raise
    if answer[0].__class__ is CommandError:
        raise answer[0]
    return answer, selected


def run_unit(
    core: Core, db: int, plan: Callable[[Context], Sequence[list[bytes]] | None]
) -> Answer:
    """Run the commands that `plan` makes from the state as one unit: a transaction with any condition.

    The reply is their replies, or None if there is no plan. If one command is refused, the whole unit is undone.
    Raises CommandError and whatever `plan` raises.
    """

    def work(ctx: Context) -> Reply:
        commands = plan(ctx)
        if commands is None:
            return None
        return _Batch(core, ctx, core.decide_words, one_unit=True).unit(commands)

    return core.decided(db, work)


def land_commands(core: Core, ctx: Context, commands: Sequence[list[bytes]]) -> None:
    """[lock] Run commands as a unit of their own, within a decision that has no effects yet.

    The caller made sure that none of them is refused: undoing a part of the unit means rebuilding memory.
    """
    _Batch(core, ctx, core.decide_words, one_unit=True).unit(commands)


def run_pipeline(core: Core, db: int, commands: Sequence[Queued], flush: bool = True) -> Answer:
    """Run every command as its own unit. The reply is a list with exceptions in it. `flush` as in `Core.run`.

    A command that could not be stored has NotStored as its reply, and so has everything after a unit that broke. The
    lock is released between frames.
    """
    replies: list[Reply] = []
    promise = core.log, 0, False
    for at in range(0, len(commands), FRAME_UNITS):
        part = commands[at : at + FRAME_UNITS]

        def work(ctx: Context) -> Reply:
            if promise[2] and core.log is not promise[0]:
                # The log was replaced. Only the previous log knows the outcome of the units so far, so run no more
                # units.
                replies.append(NotStored(f"{NOTHING}: {ANEW}"))
                return None
            return _Batch(core, ctx, core.decide, flush, replies=replies).units(part)

        whole, (log, lsn, wrote) = core.run(db, work, flush=flush)
        if whole is not None:
            promise = log, lsn, promise[2] or wrote
        if not whole:
            replies += [replies[-1]] * (len(commands) - len(replies))
            break
    return replies, promise


class _Batch:
    """[lock] Commands that share frames: those of one EXEC (`unit`), or a part of a pipeline (`units`).

    replies   one per command so far
    start     index of the first reply of the frame under way
    silent    indexes of replies without their own unit: nothing logged, or one of many
    """

    def __init__(
        self,
        core: Core,
        ctx: Context,
        decide: Decide,
        flush: bool = True,
        *,
        one_unit: bool = False,
        replies: list[Reply] | None = None,
    ) -> None:
        self._core, self._landing, self._ctx = core, core.landing, ctx
        self._decide, self._flush, self._one_unit = decide, flush, one_unit
        self._replies: list[Reply] = [] if replies is None else replies
        self._gathering = Gathering(self._landing, flush, one_unit)
        self._new_frame()

    def _new_frame(self) -> None:
        self._start = len(self._replies)
        self._silent: list[int] = []
        self._gathering.begin()  # last: see `Gathering.append`

    # --- EXEC

    def unit(self, commands: Sequence[Queued]) -> list[Reply]:
        """Run all of them as one unit. If `decide` raises for a command, all of them are undone.

        If the unit outgrows the largest frame or the disk halfway, only rebuilding memory can undo it. So the store's
        quota is heeded before the first command.
        """
        gathering = self._gathering
        position = 0
        try:
            self._landing.heed_quota(0, map(_expected, commands))
            while position < len(commands):
                stop = self._plain_until(commands, position)
                if stop > position + 1:
                    self._plain(cast(Sequence[PlainAdd], commands[position:stop]))
                else:  # preparing a run of one command costs more than it saves
                    stop = position + 1
                    self._part(words_of(commands[position]))
                position = stop
            gathering.append()
        except BaseException as error:
            if gathering.changed:
                raise self._landing.broken(error, gathering.appending)
            raise self._landing.unreserved(error)
        finally:
            self._ctx.effects = []
        return self._replies

    def _part(self, args: list[bytes]) -> None:
        """Run one command of the unit."""
        ctx = self._ctx
        ctx.effects = []
        reply: Reply = None
        if args.__class__ is Decided:
            ctx.effects.append(args.effect)
        else:
            reply = self._decide(ctx, args)
        self._gathering.take(ctx.effects)
        self._replies.append(reply)

    # --- a pipeline

    def units(self, commands: Sequence[Queued]) -> bool:
        """Run each as a unit, and append a reply for each. False if a unit broke and the rest was not run."""
        landing, replies, waiting = self._landing, self._replies, self._landing.waiting
        wanted = len(replies) + len(commands)
        position = 0
        try:
            while position < len(commands):
                given: Takers | None = None
                if commands[position].__class__ is list:
                    stop = position + 1
                    self._words(cast(list[bytes], commands[position]))
                else:
                    if waiting.keys or landing.watches.keys:
                        given, stop = self._takers(commands, position)
                    else:
                        stop = self._plain_until(commands, position)
                    self._plain(cast(Sequence[PlainAdd], commands[position:stop]))
                if waiting.signalled:
                    # Append first. `serve` may add units, and in the log they must come after the unit that woke the
                    # waiters.
                    self._append()
                    log = landing.log
                    if given is not None:
                        self._hand_out(commands[position][0], given)
                    else:
                        self._core.waits.serve(self._flush)
                    if landing.log is not log:
                        raise NotStored(ANEW)
                    self._ctx = landing.begin(self._ctx.db, False)
                elif self._gathering.size > FRAME_BYTES:
                    self._append()
                position = stop
            self._append()
        except BaseException as error:
            unknown = self._gathering.appending or not self._gathering.rescue(self._whole())
            if unknown:
                del replies[self._start :]
            rest = "the outcome of the rest is unknown" if unknown else "the rest were not"
            told = landing.broken(
                error, unknown, f"the first {len(replies)} commands were stored, {rest}"
            )
            if not isinstance(told, Exception):
                raise told
            replies += [told] * (wanted - len(replies))
            return False
        finally:
            self._ctx.effects = []
        return True

    def _append(self) -> None:
        """Append the gathered units as one frame, and begin a new one."""
        self._gathering.append()
        self._new_frame()

    def _whole(self) -> int:
        """How many units of the frame under way are complete."""
        units = len(self._replies) - self._start
        return units - sum(position < len(self._replies) for position in self._silent)

    def _words(self, args: list[bytes]) -> None:
        """Run one command, given as words, as a unit."""
        ctx, replies = self._ctx, self._replies
        ctx.effects = []
        try:
            reply = self._decide(ctx, args)
        except StoreDamaged as error:
            ctx.effects, reply = [], error
        gathering = self._gathering
        try:
            count = gathering.pack(ctx.effects)
        except StoreDamaged as error:
            ctx.effects, count, reply = [], 0, error
        except Exception as error:
            # Nothing of this command was applied. Perhaps it only made the frame too large. So append the units
            # gathered before it, then try the command alone.
            alone = gathering.count == 0
            self._append()
            if not alone:
                self._words(args)
                return
            ctx.effects, count, reply = [], 0, self._landing.unreserved(error)
        gathering.apply(ctx.effects, count)
        if not count:
            self._silent.append(len(replies))
        replies.append(reply)

    def _takers(self, commands: Sequence[Queued], at: int) -> tuple[Takers | None, int]:
        """How far plain XADDs from `at` on may go together while there are waiters or watchers, and which consumers get
        the entries. Together go: XADDs to keys without waiters; XADDs to one key whose takers are known; else only the
        first.
        """
        landing, waits, db, key = self._landing, self._core.waits, self._ctx.db, commands[at][0]
        waited, watched = landing.waiting.keys, landing.watches.keys
        stop = at + 1
        if (db, key) not in waited and not watched:
            for command in commands[stop:]:
                if command.__class__ is list or (db, command[0]) in waited:
                    break
                stop += 1
            return None, stop
        given = waits.takers(db, key, 1)
        if given is not None and stop < len(commands):
            for command in commands[stop:]:
                if command.__class__ is list or command[0] != key:
                    break
                stop += 1
            several = waits.takers(db, key, stop - at)
            if several is not None:
                group, consumers = several
                names = sum(len(key) + len(group.name) + len(name) for _, name in consumers)
                if names <= FRAME_BYTES:  # the deliveries hold each name once
                    return several, stop
        return given, at + 1

    def _hand_out(self, key: bytes, given: Takers) -> None:
        """Give the entries added to the key to its takers; to fewer of them if an XADD was refused."""
        db = self._ctx.db
        group, consumers = given
        stream = self._landing.state.databases[db].keys[key]
        assert isinstance(stream, Stream)
        new = list(reading.after(stream, group.last_id, len(consumers)))
        given = group, consumers[: len(new)]
        self._core.waits.hand_out(db, key, given, new, self._flush)

    # --- plain XADDs, of both kinds

    def _plain_until(self, commands: Sequence[Queued], at: int) -> int:
        """The end of the run of plain XADDs that begins at `at`."""
        stop = at
        while stop < len(commands) and commands[stop].__class__ is tuple:
            stop += 1
        return stop

    @fast_path(
        of="store.commit.batch:_Batch._plain_as_words",
        held_by="tests/store/test_fast_paths.py::test_pipelines_of_plain_xadds",
    )
    def _plain(self, commands: Sequence[PlainAdd]) -> None:
        """A run of plain XADDs: the hot path of pipelines."""
        landing, gathering, replies = self._landing, self._gathering, self._replies
        if landing.now >= landing.state.next_expiry:
            # A key has expired, but its deletion could not be logged. This fast path does not check for expired keys;
            # the general path does.
            self._plain_as_words(commands)
            return
        keys, rows = zip(*commands)
        # Compute an upper bound of the bytes of all records, so that room is reserved only once.
        room = len(b"".join(chain.from_iterable(rows))) + sum(map(len, keys))
        room += _WORD_BYTES * sum(map(len, rows)) + _RECORD_BYTES * len(rows)
        if room > FRAME_BYTES and len(rows) > 1:
            half = len(rows) // 2
            self._plain(commands[:half])
            if not self._one_unit and gathering.size > FRAME_BYTES // 2:
                self._append()
            self._plain(commands[half:])
            return
        alike = len(rows) >= FEW and keys.count(keys[0]) == len(keys)
        if alike and len(rows) >= MANY and self._many(keys[0], rows):
            return
        try:
            gathering.reserve(room)
        except Exception as error:
            if self._one_unit:
                raise
            if gathering.count:
                self._append()
                self._plain(commands)
            else:
                self._silent += range(len(replies), len(replies) + len(rows))
                replies += [landing.unreserved(error)] * len(rows)
            return
        state, settings, db, now = landing.state, landing.settings, self._ctx.db, landing.now
        pack, reply = landing.packer.pack, replies.append
        observed = landing.observed
        decide_add, table = decide_xadd_auto, APPLY
        end = 0 if self._one_unit else END
        at, count, records = 0, len(rows), 0
        run_at = 0 if alike else count  # where to try several in one record
        last: Effect = ()
        slow = False
        while at < count:
            effect, added = None, 1
            try:
                if at >= run_at:
                    effect = decide_xadd_run(state, settings, db, keys[0], rows[at:], now, end)
                    if effect is None:
                        run_at = at + FEW
                    else:
                        added = len(effect[5])
                if effect is None:
                    effect = decide_add(state, settings, db, keys[at], rows[at], now, end)
            except CommandError as error:
                self._silent.append(len(replies))
                reply(error)
                at += 1
                continue
            except CorruptBlock as error:
                if self._one_unit:
                    raise StoreDamaged(str(error)) from error
                self._silent.append(len(replies))
                reply(StoreDamaged(str(error)))
                at += 1
                continue
            if effect is None:
                slow = True
                break
            pack(effect)
            gathering.changed = True
            if observed:
                landing.observe(effect)
            table[effect[0]](state, effect)
            if added == 1:
                reply(b"%d-%d" % (effect[3], effect[4]))
            else:
                self._reply_run(effect[3], effect[4], added)
            last = effect
            records += 1
            at += added
        gathering.applied(records, last)
        if slow:
            self._plain_as_words(commands[at : at + 1])
            if at + 1 < count:
                self._plain(commands[at + 1 :])

    def _plain_as_words(self, commands: Sequence[PlainAdd]) -> None:
        """Run plain XADDs the general way."""
        for command in commands:
            if self._one_unit:
                self._part(words_of(command))
            else:
                self._words(words_of(command))

    def _reply_run(self, ms: int, seq: int, count: int) -> None:
        """Reply with the IDs of XADDs that are one record."""
        replies = self._replies
        self._silent += range(len(replies) + 1, len(replies) + count)
        replies += map((b"%d-%%d" % ms).__mod__, range(seq, seq + count))

    def _many(self, key: bytes, rows: Sequence[tuple[bytes, ...]]) -> bool:
        """Plain XADDs to one key as one record. False, and nothing done, if each needs its own answer."""
        ctx = self._ctx
        ctx.effects = []
        try:
            ms, seq, count = decide_xadd_many(ctx, key, rows)
        except (CommandError, CorruptBlock):
            return False
        try:
            records = self._gathering.pack(ctx.effects)
        except Exception:
            if self._one_unit:
                raise
            # Append the frame without these XADDs. The caller then runs them one by one, and perhaps some of them fit
            # into the next frame.
            self._append()
            return False
        self._gathering.apply(ctx.effects, records)
        self._reply_run(ms, seq, count)
        return True
