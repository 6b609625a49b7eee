"""Random histories of all commands over a checkpoint, beside the same without one; every step is chosen, none is timed.

So much happens in the middle of a checkpoint, which a thread that writes to a disk passes in no time: it is taken one
stream or key at a time, and given up at any of these moments.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from tests.engine.rows_in_memory import RowsInMemory
from tests.oracle.grammar import Grammar8

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide, expire_due
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import (
    MOVE,
    OPCODE,
    RENAME,
    SWAPDB,
    VOLATILE,
    XGROUP_DESTROY,
    XREOPEN,
    Effect,
)
from tidelog.engine.effects.prepare import prepare
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.freeze import Frozen, freeze, load_state, release, settle, thaw
from tidelog.engine.keys.keyspace import resident
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.reply import OK
from tidelog.engine.streams.block import rows_of
from tidelog.engine.streams.entries import Entries
from tidelog.engine.streams.stored import page_with, stored_nodes, stored_stream
from tidelog.engine.streams.stream import Stream

# Fields that tell of the past of this very state, or are left open.
UNCOMPARED = frozenset((b"xinfo", b"object", b"memory", b"randomkey", b"info", b"config", b"keys"))
SESSION = frozenset((b"multi", b"exec", b"discard", b"watch", b"unwatch", b"select", b"xaddmany"))
NAMES = {XREOPEN: "reopen", MOVE: "move", SWAPDB: "swap", RENAME: "rename", XGROUP_DESTROY: "end group"}  # fmt: skip

Counts = Counter[str]


def plain(reply: Any) -> Any:
    """A reply as what can be compared."""
    if isinstance(reply, Entries):
        return [plain(each) for each in reply.pairs()]
    if isinstance(reply, CommandError):
        return reply.line
    if isinstance(reply, (list, tuple)):
        return [plain(each) for each in reply]
    return reply


class Side:
    """A state, and units decided on it."""

    def __init__(self, settings: Settings) -> None:
        self.state = State()
        self.settings = settings

    def context(self, db: int, now: int) -> Context:
        ctx = Context(self.state, self.settings)
        ctx.db, ctx.now, ctx.may_block = db, now, False
        return ctx

    def unit(self, db: int, now: int, args: list[bytes]) -> tuple[Any, list[Effect]]:
        """The reply, and what it changed, what expired before included."""
        done: list[Effect] = []
        while now >= self.state.next_expiry:
            ctx = self.context(db, now)
            expire_due(ctx, 2)
            if not ctx.effects:
                break
            self.apply(ctx.effects)
            done += ctx.effects
        ctx = self.context(db, now)
        try:
            reply = plain(decide(ctx, list(args)))
        except CommandError as refused:
            return refused.line, done
        self.apply(ctx.effects)
        return reply, done + ctx.effects

    def apply(self, effects: list[Effect]) -> None:
        if self.state.cold is not None:
            prepare(self.state, effects)
        for effect in effects:
            apply(self.state, effect)


class Stirred(Side):
    """A state over rows."""

    def __init__(self, settings: Settings, r: random.Random, counts: Counts) -> None:
        super().__init__(settings)
        self.r, self.counts = r, counts
        self.rows = RowsInMemory()
        self.meta = self.frozen_meta = self.state.tables_meta()
        self.frozen: Frozen | None = None
        self.frozen_digest = ""
        self.operations: list[tuple[Any, ...]] = []
        self.behind: list[bytes] = []  # effects that the rows do not hold
        self.since: list[bytes] = []  # those after the freeze

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._count(effect)
        super().apply(effects)
        packed = [msgpack.packb(effect) for effect in effects if effect[0] & OPCODE < VOLATILE]
        self.behind += packed
        self.since += packed

    def _count(self, effect: Effect) -> None:
        name = NAMES.get(effect[0] & OPCODE)
        if name is None:
            return
        self.counts[name] += 1
        if self.frozen is not None:
            self.counts[name + ", in flight"] += 1
        if isinstance(effect[2], bytes):
            value = resident(self.state.databases[effect[1]].keys, effect[2])
            if isinstance(value, Stream):
                self.counts[name + ", cold nodes"] += value.cold is not None
                self.counts[name + ", cold chunks"] += any(
                    group.pending.resident() < len(group.pending) for group in value.groups.values()
                )

    # --- what is done to it

    def freeze(self) -> None:
        if self.frozen is None:
            self.frozen_meta = msgpack.unpackb(msgpack.packb(self.state.tables_meta()))
            self.frozen_digest = digest(self.state)
            self.frozen = freeze(self.state)
            self.operations, self.since = [], []

    def take(self) -> None:
        if self.frozen is not None:
            self.frozen.take_some(self.r.choice((1, 1, 2, 9)))
            if self.r.random() < 0.5:
                self.operations += self.frozen.rows(self.rows)

    def commit(self) -> None:
        frozen = self.frozen
        if frozen is None:
            return
        while frozen.take_some(3):
            self.operations += frozen.rows(self.rows)
        self.operations += frozen.rows(self.rows)
        self.rows.write(self.operations)
        self.state.cold = self.rows
        settle(self.state, frozen)
        self.frozen, self.meta, self.behind = None, self.frozen_meta, self.since[:]
        self.counts["commit"] += 1
        state = load_state(self.rows.copy(), self.meta)
        assert digest(state) == self.frozen_digest
        nodes_are_stored(state, self.rows)

    def fail(self) -> None:
        if self.frozen is not None:
            thaw(self.state, self.frozen)
            self.frozen = None
            self.counts["fail"] += 1

    def evict(self) -> None:
        cold = self.state.cold
        if cold is None:
            return
        for database in self.state.databases[:3]:
            for key in list(dict.keys(database.keys)):
                value = resident(database.keys, key)
                way = self.r.random()
                if way < 0.4:
                    self.counts["evict"] += database.keys.evict(key)
                elif way < 0.8 and isinstance(value, Stream) and self.frozen is None:
                    release(self.state, value)
                    for group in value.groups.values():
                        group.evict(cold, value.number)

    def restart(self) -> None:
        """As after a kill: what the rows hold, and the log behind it."""
        self.frozen = None
        self.state = State()
        if self.counts["commit"]:
            self.state = load_state(self.rows, self.meta)
        for packed in self.behind:
            apply(self.state, msgpack.unpackb(packed, use_list=False, strict_map_key=False))
        self.counts["restart"] += 1


def nodes_are_stored(state: State, rows: RowsInMemory) -> None:
    """Assert that the nodes read from the rows alone are those of the loaded streams."""
    for database in state.databases:
        for value in database.keys.values():
            if isinstance(value, Stream):
                stored = stored_stream(rows, value.number)
                found = [
                    (
                        node.ordinal,
                        node.first,
                        node.last,
                        node.slots,
                        node.deleted,
                        rows_of(node.data),
                    )
                    for node in stored_nodes(rows, stored)
                ]
                nodes = list(value.walk())
                assert found == [
                    (n.ordinal, n.first, n.last, n.count, n.deleted, n.rows()) for n in nodes
                ]
                for node in nodes:
                    if node.ordinal < stored.stop:
                        page = page_with(rows, stored, node.ordinal)
                        assert page.ordinal <= node.ordinal < page.stop


class Pair:
    """The two, and one history."""

    def __init__(self, seed: int, counts: Counts) -> None:
        self.r = random.Random(seed)
        self.settings = Settings()
        self.counts = counts
        self.quiet = Side(self.settings)
        self.stirred = Stirred(self.settings, self.r, counts)
        self.db = self.now = 0

    def run(self, *args: bytes) -> Any:
        name = args[0].lower()
        if name == b"select" and len(args) == 2 and args[1] in (b"0", b"1", b"2"):
            self.db = int(args[1])
        if name in SESSION:
            return None
        reply, effects = self.quiet.unit(self.db, self.now, list(args))
        other, changes = self.stirred.unit(self.db, self.now, list(args))
        if name not in UNCOMPARED:
            assert reply == other, args
        logged, others = ([e[:3] for e in some if e[0] < VOLATILE] for some in (effects, changes))
        assert logged == others, args
        return reply

    def many(self) -> None:
        """A stream of many nodes, and a group of many chunks."""
        r, run = self.r, self.run
        key = r.choice((b"s", b"s", b"t"))
        if r.random() < 0.3:
            self.limits()
        for _ in range(r.choice((5, 30, 150))):
            run(b"XADD", key, b"*", b"f", b"%d" % r.randrange(1000))
        entries = run(b"XRANGE", key, b"-", b"+")
        if not isinstance(entries, list) or not entries:
            return
        ids = [entry_id for entry_id, _ in entries]
        some = r.sample(ids, min(len(ids), r.choice((1, 10, 60))))
        at = r.randrange(len(ids))
        count = b"%d" % r.choice((3, 90, 300))
        name, other = r.sample((b"bob", b"alice"), 2)
        choices: list[tuple[bytes, ...]] = [
            (b"XGROUP", b"CREATE", key, b"g", b"0"),
            (b"XREADGROUP", b"GROUP", b"g", name, b"COUNT", count, b"STREAMS", key, b">"),
            (b"XCLAIM", key, b"g", other, b"0", *some),
            (b"XNACK", key, b"g", b"FAIL", b"IDS", b"%d" % len(some), *some),
            (b"XACK", key, b"g", *some),
            (b"XAUTOCLAIM", key, b"g", other, b"0", b"0", b"COUNT", count),
            (b"XDEL", key, *some),
            (b"XTRIM", key, b"MAXLEN", r.choice((b"=", b"~")), b"%d" % r.randrange(len(ids))),
            (b"XTRIM", key, b"MINID", ids[at]),
            (b"XDEL", key, *ids[at : at + 12]),
            (b"XDEL", key, *ids[at:]),
            (b"XDEL", key, *ids[: at + 1]),
            (b"XSETID", key, ids[-1]),
            (b"XRANGE", key, ids[at], b"+", b"COUNT", b"7"),
            (b"XREVRANGE", key, ids[at], b"-", b"COUNT", b"7"),
            (b"XPENDING", key, b"g", b"-", b"+", b"20", name),
            (b"XGROUP", b"DELCONSUMER", key, b"g", other),
            (b"XGROUP", b"DESTROY", key, b"g"),
            (b"PEXPIRE", key, b"%d" % r.choice((1, 5000))),
            (b"COPY", key, b"v", b"REPLACE"),
            (b"RESTORE", b"v", b"0", run(b"DUMP", key) or b"", b"REPLACE"),
            (b"RENAME", b"v", key),
            (b"MOVE", key, b"%d" % r.randrange(3)),
            (b"SWAPDB", b"0", b"%d" % r.randrange(3)),
        ]
        for args in choices:
            if r.random() < (0.5 if args[0].startswith(b"X") else 0.08):
                run(*args)
                if r.random() < 0.2:
                    self.stir()

    def again(self) -> None:
        """The newest entries of a stream go, and their IDs are given again."""
        r, run = self.r, self.run
        key = r.choice((b"s", b"s", b"t"))
        entries = run(b"XRANGE", key, b"-", b"+")
        if not isinstance(entries, list) or not entries:
            return
        ids = [entry_id for entry_id, _ in entries]
        at = r.randrange(max(len(ids) - 40, 0), len(ids))
        last = ids[at - 1] if at else b"0-1"
        run(b"XDEL", key, *ids[at:])
        run(b"XSETID", key, ids[-1], b"MAXDELETEDID", b"0-1")
        self.counts["IDs again"] += run(b"XSETID", key, last) == OK
        for entry_id in ids[at + r.randrange(2) :]:
            if r.random() < 0.2:
                self.stir()
            run(b"XADD", key, entry_id, b"f", b"again")

    def stir(self) -> None:
        stirred = self.stirred
        steps: list[Callable[[], None]] = [stirred.freeze, stirred.freeze, *[stirred.take] * 4]
        steps += [*[stirred.commit] * 2, stirred.fail, *[stirred.evict] * 3]
        if self.r.random() < 0.3:
            steps += [stirred.restart, self.limits]
        self.r.choice(steps)()

    def limits(self) -> None:
        self.settings.stream_node_max_entries = self.r.choice((1, 2, 5, 20, 100))
        self.settings.stream_node_max_bytes = self.r.choice((60, 300, 4096))

    def compare(self) -> None:
        assert digest(self.stirred.state) == digest(self.quiet.state)
        for database in self.stirred.state.databases:
            for value in dict.values(database.keys):
                if isinstance(value, Stream):
                    value.check()
                    for group in value.groups.values():
                        group.pending.check()

    def play(self, commands: int) -> None:
        r = self.r
        self.limits()
        for turn in Grammar8(r).sequence(commands):
            self.now = turn.now
            for args in turn.commands:
                self.run(*args)
                if r.random() < 0.1:
                    self.stir()
            if r.random() < 0.15:
                self.many()
            if r.random() < 0.1:
                self.again()
            for _ in range(r.choice((0, 1, 2))):
                self.stir()
            if r.random() < 0.1:
                self.compare()
        self.compare()
        for step in (self.stirred.freeze, self.stirred.commit, self.stirred.evict):
            step()
        self.compare()
        self.stirred.restart()
        self.compare()


def test_a_history_is_the_same_over_a_checkpoint() -> None:
    counts: Counts = Counter()
    for seed in range(6):
        print("seed", seed)
        Pair(seed, counts).play(150)
    for name in ("commit", "fail", "evict", "restart", "move", "swap", "rename", "IDs again"):
        assert counts[name], name


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_many_histories(seed: int) -> None:
    Pair(seed, Counter()).play(800)
