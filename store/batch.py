"""Batches: the units of a pipeline in as few frames as may be, and EXEC as one unit.

In a batch a command is decided after those before it were applied, so memory is ahead of the log until the
frame is added. If something breaks, the units that are whole are still written; the rest was not stored.

Plain XADDs to one key in a row are logged as one unit, the record of `xadd_many`: a frame holds all of them or none
anyhow, and it is three times faster than a record each. Many seal whole nodes on the way; few, as far as they go into
the open node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import cast

import msgpack

from tidelog.engine.apply import APPLY
from tidelog.engine.commands.add import decide_xadd_auto, decide_xadd_many, decide_xadd_run
from tidelog.engine.context import Context
from tidelog.engine.effects import END, VOLATILE
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.reply import Reply
from tidelog.engine.stream import Stream
from tidelog.engine.transaction import Exec, Transaction
from tidelog.store.core import NOTHING, Answer, Core
from tidelog.store.errors import NotStored, StoreDamaged
from tidelog.store.hand_out import Takers, hand_out, takers

FRAME_BYTES = 1 << 20  # a pipeline is cut into frames of about this size
FRAME_UNITS = 1000  # and of at most so many units, which bounds how long it keeps the lock
FEW = 4  # so many plain XADDs to one key in a row are one record if they fit into the open node
MANY = 160  # so many are one record in any case; below, what is done for each such record outweighs the gain
_WORD_BYTES = 5  # at most, what msgpack adds to one byte string
_RECORD_BYTES = 64  # at most, what an XADD record takes besides its key and row

Decide = Callable[[Context, list[bytes]], Reply]
Light = tuple[bytes, tuple[bytes, ...]]  # (key, row): an XADD with nothing but defaults
Queued = list[bytes] | Light  # a command's words, or that


def run_transaction(
    core: Core, db: int, transaction: Transaction, commands: Sequence[list[bytes]]
) -> Answer:
    """MULTI, the commands, EXEC: one unit, or nothing.

    The reply is a list (CommandErrors among them), NULL_ARRAY if a watched key changed, the CommandError of EXEC, or
    (position, CommandError) of the first command that could not be queued.
    """
    with core.lock:
        if core.trouble is not None:
            core.mend()
        before = core.log.next_lsn
        ctx = core.begin(db, False)
        refusal: tuple[int, CommandError] | None = None
        transaction.submit(ctx, [b"MULTI"])
        for position, args in enumerate(commands):
            try:
                transaction.submit(ctx, args)
            except CommandError as error:
                refusal = refusal or (position, error)
        try:
            reply = transaction.submit(ctx, [b"EXEC"])
        except CommandError as error:
            return refusal or error, core.claim()
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error
        if reply.__class__ is Exec:
            reply = _unit(core, reply.commands, core.decide)
        log, after = core.log, core.log.next_lsn
        if core.waiting.signalled:
            core.serve()
        return reply, (log, after - 1, after != before)


def run_exec(
    core: Core, db: int, transaction: Transaction, args: list[bytes], decide: Decide
) -> tuple[Answer, int]:
    """EXEC of a session that queued its commands before, each decided by `decide`: the answer, and the database that
    is selected afterwards. Gathered in the log, not flushed. Raises CommandError."""
    with core.lock:
        try:
            if core.trouble is not None:
                core.mend()
            ctx = core.begin(db, False)
        except BaseException:
            transaction.reset()  # however EXEC ends, the transaction has ended
            raise
        before = core.log.next_lsn
        try:
            reply = transaction.submit(ctx, args)
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error
        if reply.__class__ is Exec:
            reply = _unit(core, reply.commands, decide, flush=False)
        log, after, selected = core.log, core.log.next_lsn, ctx.db
        if core.waiting.signalled:
            core.serve(False)
        return (reply, (log, after - 1, after != before)), selected


def run_unit(
    core: Core, db: int, plan: Callable[[Context], Sequence[list[bytes]] | None]
) -> Answer:
    """Commands that `plan` makes of the state as it is, as one unit: a transaction with a condition of any kind.

    The reply is their replies, or None if there was no plan. A command that is refused takes the whole unit back.
    Raises CommandError and whatever `plan` raises.
    """
    with core.lock:
        if core.trouble is not None:
            core.mend()
        before = core.log.next_lsn
        try:
            commands = plan(core.begin(db, False))
            reply = None if commands is None else _unit(core, commands, core.decide_words)
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error
        log, after = core.log, core.log.next_lsn
        if core.waiting.signalled:
            core.serve()
        return reply, (log, after - 1, after != before)


def _unit(
    core: Core, commands: Sequence[list[bytes]], decide: Decide, flush: bool = True
) -> list[Reply]:
    """[lock] One unit of many commands. What `decide` raises takes all of it back.

    If it outgrows the largest frame or the disk half way, only rebuilding memory can take it back.
    """
    log, packer, ctx = core.log, core.packer, core.ctx
    replies: list[Reply] = []
    count = last = size = 0
    changed = adding = False
    packer.reset()  # see Core.commit
    try:
        for args in commands:
            ctx.effects = []
            replies.append(decide(ctx, args))
            for effect in ctx.effects:
                if effect[0] < VOLATILE:
                    last = size
                    packer.pack(effect)
                    size = packer.getbuffer().nbytes
                    count += 1
            if ctx.effects:
                if size:
                    log.reserve(size)
                if core.state.changes.cold is not None:
                    core.ready(
                        ctx.effects
                    )  # may refuse: outside of `changed`, if these are the first
                changed = True
                core.apply(ctx.effects)
        if count:
            body = bytearray(packer.bytes())
            # A record is a msgpack array of fewer than 16 fields and its opcode a one-byte int, so the mark of
            # the unit's end can be set now that it is known that no effect follows.
            assert body[last] & 0xF0 == 0x90 and body[last + 1] < VOLATILE
            body[last + 1] |= END
            adding = True
            log.add(bytes(body), count, core.now, flush and (core.relaxed or not log.syncing))
    except BaseException as error:
        if changed:
            raise core.broken(error, adding)
        raise core.unreserved(error)
    return replies


def run_pipeline(core: Core, db: int, commands: Sequence[Queued], flush: bool = True) -> Answer:
    """Every command a unit of its own. The reply is a list with exceptions in it. `flush` as of `Core.run`.

    What could not be stored is NotStored there, and so is everything after a unit that broke.
    The lock is given back between frames.
    """
    replies: list[Reply] = []
    claim = core.log, 0, False
    for at in range(0, len(commands), FRAME_UNITS):
        part = commands[at : at + FRAME_UNITS]
        with core.lock:
            if core.trouble is not None:
                core.mend()
            log, before = core.log, core.log.next_lsn
            if claim[2] and log is not claim[0]:
                # Only the log before can tell what became of the units so far.
                replies.append(NotStored(f"{NOTHING}: the log was begun anew meanwhile"))
                whole = False
            else:
                whole = _Frames(core, db, replies, flush).run(part)
                after = log.next_lsn
                claim = log, after - 1, claim[2] or after != before
        if not whole:
            replies += [replies[-1]] * (len(commands) - len(replies))
            break
    return replies, claim


class _Frames:
    """[lock] One part of a pipeline, gathered into frames.

    size, count    bytes and records gathered so far, known between commands
    start          the reply that the frame under way begins with
    silent         positions of replies that have no unit of their own: nothing logged, or one of many
    adding         inside `Log.add`: nobody knows whether the frame is there
    """

    def __init__(self, core: Core, db: int, replies: list[Reply], flush: bool) -> None:
        self._core = core
        self._flush = flush
        self._ctx = core.begin(db, False)
        self._replies = replies
        self._new_frame()

    def _new_frame(self) -> None:
        # `_adding` last: an interrupt in between finds the frame before stored, or unknown, never half counted.
        self._start = len(self._replies)
        self._silent: list[int] = []
        self._size = self._count = 0
        self._core.packer.reset()
        self._adding = False

    def run(self, commands: Sequence[Queued]) -> bool:
        """Append one reply per command. False if a unit broke and the rest was not run."""
        core, replies = self._core, self._replies
        wanted = len(replies) + len(commands)
        position = 0
        try:
            while position < len(commands):
                stop = position + 1
                given: Takers | None = None
                if commands[position].__class__ is list:
                    self._words(cast(list[bytes], commands[position]))
                elif core.waiting.keys or core.watches.keys:
                    given, stop = self._takers(commands, position)
                    self._light(cast(Sequence[Light], commands[position:stop]))
                else:
                    while stop < len(commands) and commands[stop].__class__ is tuple:
                        stop += 1
                    self._light(cast(Sequence[Light], commands[position:stop]))
                if core.waiting.signalled:
                    # Those who were woken come after the unit that woke them, in the log too.
                    self._add()
                    log = core.log
                    if given is not None:
                        self._hand_out(commands[position][0], given)
                    else:
                        core.serve(self._flush)
                    if core.log is not log:
                        raise NotStored("the log was begun anew meanwhile")
                    self._ctx = core.begin(self._ctx.db, False)
                elif self._size > FRAME_BYTES:
                    self._add()
                position = stop
            self._add()
        except BaseException as error:
            unknown = self._adding or not self._rescue()
            if unknown:
                del replies[self._start :]
            rest = "of the rest nobody knows" if unknown else "the rest was not"
            told = core.broken(
                error, unknown, f"the first {len(replies)} commands were stored, {rest}"
            )
            if not isinstance(told, Exception):
                raise told
            replies += [told] * (wanted - len(replies))
            return False
        return True

    def _words(self, args: list[bytes]) -> None:
        """One command given as words."""
        core, ctx, replies = self._core, self._ctx, self._replies
        ctx.effects = []
        try:
            reply = core.decide(ctx, args)
            if core.state.changes.cold is not None:
                core.ready(ctx.effects)  # here, where it is this command's trouble alone
        except StoreDamaged as error:
            ctx.effects, reply = [], error
        count = core.pack(ctx.effects)
        if count:
            size = core.packer.getbuffer().nbytes
            try:
                core.log.reserve(size)
            except Exception as error:
                # Nothing of it is applied. What was gathered before goes first; then it is tried alone, as
                # perhaps it only was the frame that grew too large.
                alone = self._count == 0
                self._add()
                if alone:
                    self._silent.append(len(replies))
                    replies.append(core.unreserved(error))
                else:
                    self._words(args)
                return
            core.apply(ctx.effects)
            replies.append(reply)
            self._count += count
            self._size = size
        else:
            core.apply(ctx.effects)
            self._silent.append(len(replies))
            replies.append(reply)

    def _takers(self, commands: Sequence[Queued], at: int) -> tuple[Takers | None, int]:
        """How far plain XADDs from `at` on may go together where somebody waits or watches, and who gets the messages:
        those to keys on which nobody waits; those to one key, if it is known whom they serve; else just the first.
        """
        core, db, key = self._core, self._ctx.db, commands[at][0]
        waited, watched = core.waiting.keys, core.watches.keys
        stop = at + 1
        if (db, key) not in waited and not watched:
            for command in commands[stop:]:
                if command.__class__ is list or (db, command[0]) in waited:
                    break
                stop += 1
            return None, stop
        given = takers(core, db, key, 1)
        if given is not None and stop < len(commands):
            for command in commands[stop:]:
                if command.__class__ is list or command[0] != key:
                    break
                stop += 1
            several = takers(core, db, key, stop - at)
            if several is not None:
                group, consumers = several
                names = sum(len(key) + len(group.name) + len(name) for _, name in consumers)
                if names <= FRAME_BYTES:  # which the deliveries hold once each
                    return several, stop
        return given, at + 1

    def _hand_out(self, key: bytes, given: Takers) -> None:
        """What was added to the key goes to its takers; to the first of them, if an XADD was refused."""
        core, db = self._core, self._ctx.db
        group, consumers = given
        stream = core.state.databases[db].keys[key]
        assert isinstance(stream, Stream)
        new = list(stream.after(group.last_id, len(consumers)))
        hand_out(core, db, key, (group, consumers[: len(new)]), new, self._flush)

    def _light(self, commands: Sequence[Light]) -> None:
        """A run of plain XADDs: the hot path of pipelines (see Core.add)."""
        core, replies = self._core, self._replies
        if core.now >= core.state.next_expiry:
            # What is due could not be deleted: the long way looks for that.
            for key, row in commands:
                self._words([b"XADD", key, b"*", *row])
            return
        keys, rows = zip(*commands)
        # None of their records can take more than this, so room is asked for once.
        room = len(b"".join(chain.from_iterable(rows))) + sum(map(len, keys))
        room += _WORD_BYTES * sum(map(len, rows)) + _RECORD_BYTES * len(rows)
        if room > FRAME_BYTES and len(rows) > 1:
            half = len(rows) // 2
            self._light(commands[:half])
            if self._size > FRAME_BYTES // 2:
                self._add()
            self._light(commands[half:])
            return
        alike = len(rows) >= FEW and keys.count(keys[0]) == len(keys)
        if alike and len(rows) >= MANY and self._many(keys[0], rows):
            return
        try:
            core.log.reserve(self._size + room)
        except Exception as error:
            if self._count:
                self._add()
                self._light(commands)
            else:
                self._silent += range(len(replies), len(replies) + len(rows))
                replies += [core.unreserved(error)] * len(rows)
            return
        state, settings, db, now = core.state, core.settings, self._ctx.db, core.now
        pack, reply = core.packer.pack, replies.append
        observed = bool(core.waiting.keys or core.watches.keys or core.listener)
        decide_add, table = decide_xadd_auto, APPLY
        at, count, records = 0, len(rows), 0
        run_at = 0 if alike else count  # where to try several at once
        slow = False
        while at < count:
            effect, added = None, 1
            try:
                if at >= run_at:
                    effect = decide_xadd_run(state, settings, db, keys[0], rows[at:], now)
                    if effect is None:
                        run_at = at + FEW
                    else:
                        added = len(effect[5])
                if effect is None:
                    effect = decide_add(state, settings, db, keys[at], rows[at], now)
            except (CommandError, CorruptBlock) as error:
                self._silent.append(len(replies))
                reply(error if isinstance(error, CommandError) else StoreDamaged(str(error)))
                at += 1
                continue
            if effect is None:
                slow = True
                break
            pack(effect)
            if observed:
                core.observe(effect)
            table[effect[0]](state, effect)
            if added == 1:
                reply(b"%d-%d" % (effect[3], effect[4]))
            else:
                self._reply_run(effect[3], effect[4], added)
            records += 1
            at += added
        self._count += records
        self._size = core.packer.getbuffer().nbytes
        if slow:
            self._words([b"XADD", keys[at], b"*", *rows[at]])
            if at + 1 < count:
                self._light(commands[at + 1 :])

    def _reply_run(self, ms: int, seq: int, count: int) -> None:
        """The IDs of XADDs that are one unit."""
        replies = self._replies
        self._silent += range(len(replies) + 1, len(replies) + count)
        replies += map((b"%d-%%d" % ms).__mod__, range(seq, seq + count))

    def _many(self, key: bytes, rows: Sequence[tuple[bytes, ...]]) -> bool:
        """Plain XADDs to one key as one unit. False, and nothing done, where each needs an answer of its own."""
        core, ctx = self._core, self._ctx
        ctx.effects = []
        try:
            ms, seq, count = decide_xadd_many(ctx, key, rows)
        except (CommandError, CorruptBlock):
            return False
        packed = core.pack(ctx.effects)
        size = core.packer.getbuffer().nbytes
        try:
            core.log.reserve(size)
        except Exception:
            self._add()  # the frame so far, without this; then perhaps some of them fit
            return False
        core.apply(ctx.effects)
        self._reply_run(ms, seq, count)
        self._count += packed
        self._size = size
        return True

    def _add(self) -> None:
        """The gathered units as one frame; a new one begins."""
        if self._count:
            core = self._core
            # Of the packer only what was applied: a unit that was refused may lie behind it.
            body = core.packer.bytes()[: self._size]
            self._adding = True
            flush = self._flush and (core.relaxed or not core.log.syncing)
            core.log.add(body, self._count, core.now, flush)
        self._new_frame()

    def _rescue(self) -> bool:
        """Add the units that are whole after something broke. False if that fails too."""
        core = self._core
        units = len(self._replies) - self._start
        units -= sum(position < len(self._replies) for position in self._silent)
        if units:
            body, count = whole_units(core.packer.bytes(), units)
            try:
                core.log.add(body, count, core.now, core.relaxed or not core.log.syncing)
            except Exception:
                return False
        return True


def whole_units(packed: bytes, units: int) -> tuple[bytes, int]:
    """The first `units` units of packed records, and the number of their records."""
    unpacker = msgpack.Unpacker(raw=True, use_list=False, max_buffer_size=len(packed))
    unpacker.feed(packed)
    records = 0
    while units:
        records += 1
        if unpacker.unpack()[0] & END:
            units -= 1
    return packed[: unpacker.tell()], records
