"""tidelog in memory, driven as one connection drives a server: SELECT, MULTI and WATCH included."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgpack
from tests.oracle import differences
from tests.oracle.differences import Mend
from tests.oracle.grammar import Command
from tests.oracle.render import form
from tests.oracle.wire import OK, Form, error

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide, expire_due
from tidelog.engine.commands.streams.add import decide_xadd_many
from tidelog.engine.commands.transaction import Exec, Transaction, Watches, words_of
from tidelog.engine.effects import observe
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import (
    DELIVER,
    END,
    OPCODE,
    VOLATILE,
    XGROUP_CREATE,
    XGROUP_SETID,
    Effect,
)
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.keys.waiting import Waiter, Waiting
from tidelog.engine.reply import Park
from tidelog.engine.streams.stream import Stream

COUNTED = (XGROUP_CREATE, XGROUP_SETID, DELIVER)  # effects that set entries-read


class Unit(NamedTuple):
    """The changes of one command, or one EXEC, as log records, without the volatile effects."""

    now: int
    records: list[bytes]


class Differences(Protocol):
    """The differences between tidelog and one release of Redis: a module of this folder."""

    @property
    def CAPS_ENTRIES_READ(self) -> bool: ...

    def expected(
        self, ctx: Context, args: Command, form: Form, effects: list[Effect], /
    ) -> Form: ...

    def mends(
        self, ctx: Context, args: Command, form: Form, effects: list[Effect], /
    ) -> list[Mend]: ...

    def nodes_emptied(self, ctx: Context, effects: list[Effect], /) -> list[Mend]: ...


class Outcome(NamedTuple):
    """`form` is tidelog's reply, `expect` the one that the server owes, `mends` go to the server alone after it."""

    form: Form
    expect: Form
    mends: list[Mend]
    parked: bool = False
    queued: list[Outcome] | None = None  # of EXEC: the outcomes of what was queued


class Tidelog:
    """One engine and one session. `history` is its log, in order, with the CONFIG SETs between the units.

    compared    whether outcomes say what the server owes; without that any command of 8.x may be run
    owes        the release of that server
    ahead       whether a group ever had an entries-read above entries-added
    """

    def __init__(self, compared: bool = True, owes: Differences = differences) -> None:
        self._compared = compared
        self._owes = owes
        self.ahead = False
        self.state = State()
        self.ctx = Context(self.state, Settings())
        self.history: list[Unit | Command] = []
        self._watches = Watches()
        self._transaction = Transaction(self._watches)
        self._waiting = Waiting()

    def run(self, now: int, args: Command) -> Outcome:
        self.ctx.now = now
        if args[:2] == [b"CONFIG", b"SET"]:
            return self._config(args)
        if args[0] == b"XADDMANY":
            return self._many(args)
        try:
            answer = self._transaction.submit(self.ctx, args)
        except CommandError as refused:
            return self._same(error(refused.line))
        records: list[bytes] = []
        if answer is None:
            self.ctx.may_block = True
            outcome = self._one(args, records)
        elif isinstance(answer, Exec):
            self.ctx.may_block = False
            queued = [self._one(words_of(command), records) for command in answer.commands]
            replies = [each.form for each in queued]
            outcome = Outcome(replies, [each.expect for each in queued], [], False, queued)
        else:
            outcome = self._same(form(answer))
        if records:
            self.history.append(Unit(now, records))
        self._serve(now)
        return outcome

    def block(self, now: int, args: Command) -> list[Form]:
        """A read by another connection that blocks. The list receives its reply when it is served."""
        self.ctx.now = now
        self.ctx.may_block = True
        park = self._waiting_decide(self.ctx.db, args)
        assert isinstance(park, Park), park
        answer: list[Form] = []
        self._waiting.park(Waiter(park, self.ctx.db, owner=answer))
        return answer

    def tick(self, now: int) -> None:
        """Time has passed: blocked CLAIMs look again."""
        self.ctx.now = now
        self._waiting.claims_due(now)
        self._serve(now)

    @property
    def next_claim_at(self) -> int | None:
        return self._waiting.next_claim_at()

    def _serve(self, now: int) -> None:
        """Blocked readers of signalled keys decide again, each as a unit of its own (spec 10.1)."""
        for waiter in self._waiting.visits(self.state):
            self.ctx.may_block = True
            reply = self._waiting_decide(waiter.db, waiter.args)
            if isinstance(reply, Park):
                waiter.again(reply)
                self._waiting.park(waiter)
            else:
                waiter.owner.append(reply)

    def _waiting_decide(self, db: int, args: Command) -> Form | Park:
        ctx = self.ctx
        before, ctx.db, ctx.effects = ctx.db, db, []
        try:
            reply = decide(ctx, args)
        except CommandError as refused:
            return error(refused.line)
        finally:
            ctx.db = before
        records: list[bytes] = []
        self._commit(ctx.effects, records)
        if records:
            self.history.append(Unit(ctx.now, records))
        return reply if isinstance(reply, Park) else form(reply)

    def expire_due(self, now: int) -> list[tuple[int, bytes]]:
        """Expire keys, as a store does when time has passed. Returns (database, key) of all that went."""
        ctx = self.ctx
        ctx.now, ctx.effects = now, []
        expire_due(ctx, 1000)
        gone = [(effect[1], key) for effect in ctx.effects for key in effect[2]]
        records: list[bytes] = []
        self._commit(ctx.effects, records)
        ctx.effects = []
        if records:
            self.history.append(Unit(now, records))
        return gone

    def look(self, now: int, db: int, args: Command) -> Outcome:
        """A command of an onlooker, beside the session."""
        self.ctx.now = now
        before, self.ctx.db = self.ctx.db, db
        records: list[bytes] = []
        outcome = self._one(args, records)
        self.ctx.db = before
        if records:
            self.history.append(Unit(now, records))
        return outcome

    def _one(self, args: Command, records: list[bytes]) -> Outcome:
        ctx = self.ctx
        ctx.effects = []
        parked = False
        try:
            reply = decide(ctx, args)
        except CommandError as refused:
            reply = None
            shown = error(refused.line)
            assert not ctx.effects
        else:
            parked = isinstance(reply, Park)
            shown = form(reply)
        effects, ctx.effects = ctx.effects, []
        expect: Form = shown
        mends: list[Mend] = []
        if self._compared:
            expect = self._owes.expected(ctx, args, shown, effects)
            mends = self._owes.mends(ctx, args, shown, effects)
        self._commit(effects, records)
        if self._compared:
            mends += self._owes.nodes_emptied(ctx, effects)
        if reply is not None:
            assert form(reply) == shown, "a reply changed after it was decided"
        return Outcome(shown, expect, mends, parked)

    def _commit(self, effects: list[Effect], records: list[bytes]) -> None:
        for effect in effects:
            self._watches.touch(observe.touches(effect, self.state, self._watches.keys))
            self._waiting.signal(observe.signals(effect, self.state, self._waiting.keys))
            APPLY[effect[0]](self.state, effect)
            if effect[0] & OPCODE in COUNTED:
                stream = self.state.databases[effect[1]].keys[effect[2]]
                assert isinstance(stream, Stream)
                self.ahead |= stream.groups[effect[3]].entries_read > stream.entries_added
            if effect[0] & OPCODE < VOLATILE:
                records.append(packed(effect))

    def _same(self, answer: Form) -> Outcome:
        return Outcome(answer, self._owes.expected(self.ctx, [b""], answer, []), [])

    def _many(self, args: Command) -> Outcome:
        """xadd_many: the reply is the list of IDs, or of one error for each row."""
        ctx = self.ctx
        ctx.effects = []
        rows = rows_of(args)
        records: list[bytes] = []
        try:
            ms, seq, count = decide_xadd_many(ctx, args[1], rows)
        except CommandError as refused:
            answer: Form = [error(refused.line)] * len(rows)
        else:
            answer = [b"%d-%d" % (ms, seq + i) for i in range(count)]
            self._commit(ctx.effects, records)
        ctx.effects = []
        if records:
            self.history.append(Unit(ctx.now, records))
        return Outcome(answer, answer, [])

    @property
    def queueing(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction.active

    def _config(self, args: Command) -> Outcome:
        name = args[2].replace(b"-", b"_").decode()
        setattr(self.ctx.settings, name, int(args[3]))
        self.history.append(args)
        return Outcome(OK, OK, [])


def rows_of(args: Command) -> list[tuple[bytes, ...]]:
    """The rows of an XADDMANY."""
    width, words = int(args[2]), args[3:]
    return [tuple(words[at : at + width]) for at in range(0, len(words), width)]


def packed(effect: Effect) -> bytes:
    record = msgpack.packb(effect)
    assert isinstance(record, bytes)
    return record


def unpacked(record: bytes) -> Effect:
    effect = msgpack.unpackb(record, use_list=False)
    assert isinstance(effect, tuple)
    return effect


def replayed(history: list[Unit | Command]) -> State:
    """A fresh state after the log: what recovery would build."""
    state = State()
    for unit in history:
        if isinstance(unit, Unit):
            *inner, last = unit.records
            effects = [*map(unpacked, inner), unpacked(last)]
            effects[-1] = (effects[-1][0] | END, *effects[-1][1:])
            for effect in effects:
                APPLY[effect[0]](state, effect)
    return state


def digest_of(state: State) -> bytes:
    value = digest(state)
    return value if isinstance(value, bytes) else str(value).encode()
