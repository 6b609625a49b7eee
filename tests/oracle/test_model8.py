"""The engine against a plain model of 8.8, command by command, with random valid commands."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from tests.oracle.driver import shown, shown_command
from tests.oracle.engine_side import Tidelog, digest_of, replayed
from tests.oracle.grammar import START_MS, Command
from tests.oracle.model8 import Model, Readers
from tests.oracle.render import id_text
from tests.oracle.wire import OK, Form
from tests.rounds import rest_slow

FIRST_SEED = int(os.environ.get("ORACLE_SEED", "1"))
SEQUENCES = 20  # of each batch
STEPS = 150

GROUPS = (b"g", b"h")
CONSUMERS = (b"alice", b"bob", b"")
POLICIES = (b"KEEPREF", b"DELREF", b"ACKED")


class Disagreed(AssertionError):
    """The model gives another reply."""


class Walk:
    """One random sequence. Every step gives a command, and lets the model say the reply."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.model = Model()
        self.tidelog = Tidelog(compared=False)
        self.tidelog.ctx.settings.stream_node_max_entries = 0
        self.tidelog.ctx.settings.stream_node_max_bytes = 0
        self.now = START_MS
        self.log: list[str] = []

    def number(self, value: int) -> bytes:
        return b"%d" % value

    def check(self, args: Command, wanted: Form, view: bool = False) -> None:
        got = self.tidelog.run(self.now, args).form
        if not view:
            self.log.append(f"@{self.now - START_MS} {shown_command(args)}")
        if wanted != got:
            asked = f"{shown_command(args)}\n  model   {shown(wanted)}\n  tidelog {shown(got)}"
            raise Disagreed("\n".join([*self.log[-40:], asked]))

    def go(self) -> None:
        for group in GROUPS:
            self.create(group, 0)
        for _ in range(STEPS):
            self.now += self.r.choice((0, 0, 1, 3, 50))
            self.model.now = self.now
            self.r.choices(*STEP_ROWS)[0](self)
            self.views()
        assert digest_of(replayed(self.tidelog.history)) == digest_of(self.tidelog.state)

    def views(self) -> None:
        model = self.model
        self.check(
            [b"XRANGE", b"s", b"-", b"+"], [model.entry(id) for id in sorted(model.entries)], True
        )
        for name in model.groups:
            self.check([b"XPENDING", b"s", name, b"-", b"+", b"1000"], model.xpending(name), True)

    # --- words

    def ids(self) -> list[int]:
        known = [
            *self.model.entries,
            *(id for group in self.model.groups.values() for id in group.pending),
        ]
        known += [max(known, default=0) + (1 << 64), 5 << 64]
        return [self.r.choice(known) for _ in range(self.r.choice((1, 1, 2, 3, 8)))]

    def listed(self, ids: list[int]) -> list[bytes]:
        return [b"IDS", self.number(len(ids)), *map(id_text, ids)]

    def group(self) -> bytes:
        return self.r.choice(GROUPS)

    def mixed(self, *groups: list[bytes]) -> list[bytes]:
        order = list(groups)
        self.r.shuffle(order)
        return [word for group in order for word in group]

    # --- steps

    def create(self, name: bytes, last_id: int) -> None:
        self.model.groups[name] = Readers(last_id)
        self.check([b"XGROUP", b"CREATE", b"s", name, id_text(last_id), b"MKSTREAM"], OK)

    def xadd(self) -> None:
        row = (b"f", b"%d" % self.r.randint(0, 99))
        if self.r.random() < 0.5:
            idmp = (self.r.choice((b"p", b"q")), self.r.choice((b"i", b"j", b"k", b"l")))
            self.check(
                [b"XADD", b"s", b"IDMP", *idmp, b"*", *row], self.model.xadd(None, row, idmp)
            )
        else:
            self.check([b"XADD", b"s", b"*", *row], self.model.xadd(None, row))

    def xcfgset(self) -> None:
        model = self.model
        duration, maxsize = self.r.choice((1, 2, 100)), self.r.choice((1, 2, 3, 100))
        if (duration * 1000, maxsize) != (model.duration_ms, model.maxsize):
            model.producers = {}
        model.duration_ms, model.maxsize = duration * 1000, maxsize
        words = [b"IDMP-DURATION", self.number(duration), b"IDMP-MAXSIZE", self.number(maxsize)]
        self.check([b"XCFGSET", b"s", *words], OK)

    def xtrim(self) -> None:
        policy = self.r.choice(POLICIES)
        if self.r.random() < 0.5:
            maxlen = max(0, len(self.model.entries) - self.r.randint(0, 3))
            words = [b"MAXLEN", self.number(maxlen)]
            wanted = self.model.trim(policy, maxlen, 0)
        else:
            minid = self.r.choice(sorted(self.model.entries)[:4] or [0])
            words = [b"MINID", id_text(minid)]
            wanted = self.model.trim(policy, None, minid)
        self.check([b"XTRIM", b"s", *self.mixed(words, [policy])], wanted)

    def xdel(self) -> None:
        ids = self.ids()
        self.check(
            [b"XDEL", b"s", *map(id_text, ids)],
            sum(self.model.delete(b"KEEPREF", id) == 1 for id in ids),
        )

    def xdelex(self) -> None:
        policy, ids = self.r.choice(POLICIES), self.ids()
        args = [b"XDELEX", b"s", *self.mixed([policy], self.listed(ids))]
        self.check(args, self.model.xdelex(policy, ids))

    def xreadgroup(self) -> None:
        r = self.r
        name, consumer, count = self.group(), r.choice(CONSUMERS), r.choice((0, 1, 2, 3, 5, 10))
        claim = r.choice((None, None, 0, 1, 4, 50, 1000))
        noack = r.random() < 0.1
        after = r.choice((None,) * 5 + (0, *self.ids()))
        options = self.mixed(
            [b"GROUP", name, consumer], [b"COUNT", self.number(count)] if count else [],
            [] if claim is None else [b"CLAIM", self.number(claim)], [b"NOACK"] if noack else [],
        )  # fmt: skip
        args = [
            b"XREADGROUP",
            *options,
            b"STREAMS",
            b"s",
            b">" if after is None else id_text(after),
        ]
        self.check(args, self.model.xreadgroup(name, consumer, count, claim, noack, after))

    def xack(self) -> None:
        name, ids = self.group(), self.ids()
        self.check([b"XACK", b"s", name, *map(id_text, ids)], self.model.xack(name, ids))

    def xackdel(self) -> None:
        name, policy, ids = self.group(), self.r.choice(POLICIES), self.ids()
        args = [b"XACKDEL", b"s", name, *self.mixed([policy], self.listed(ids))]
        self.check(args, self.model.xackdel(name, policy, ids))

    def xnack(self) -> None:
        name, mode, ids = self.group(), self.r.choice((b"SILENT", b"FAIL", b"FATAL")), self.ids()
        retrycount, force = self.r.choice((None, None, 0, 4)), self.r.random() < 0.3
        options = self.mixed(
            self.listed(ids), [] if retrycount is None else [b"RETRYCOUNT", self.number(retrycount)],
            [b"FORCE"] if force else [],
        )  # fmt: skip
        wanted = self.model.xnack(name, mode, ids, retrycount, force)
        self.check([b"XNACK", b"s", name, mode, *options], wanted)

    def xclaim(self) -> None:
        r = self.r
        name, consumer, idle, ids = (
            self.group(),
            r.choice(CONSUMERS),
            r.choice((0, 0, 1, 50)),
            self.ids(),
        )
        time = r.choice((None, None, self.now - 5, self.now - 60, 0, self.now + 9))
        retrycount, force, justid = r.choice((None, None, 0, 7)), r.random() < 0.3, r.random() < 0.3
        options = self.mixed(
            [] if time is None else [b"TIME", self.number(time)],
            [] if retrycount is None else [b"RETRYCOUNT", self.number(retrycount)],
            [b"FORCE"] if force else [], [b"JUSTID"] if justid else [],
        )  # fmt: skip
        args = [b"XCLAIM", b"s", name, consumer, self.number(idle), *map(id_text, ids), *options]
        self.check(
            args, self.model.xclaim(name, consumer, idle, ids, time, retrycount, force, justid)
        )

    def xautoclaim(self) -> None:
        r = self.r
        name, consumer, idle = self.group(), r.choice(CONSUMERS), r.choice((0, 1, 50))
        start, count, justid = (
            r.choice((0, *self.ids())),
            r.choice((1, 2, 5, 100)),
            r.random() < 0.3,
        )
        options = self.mixed([b"COUNT", self.number(count)], [b"JUSTID"] if justid else [])
        args = [b"XAUTOCLAIM", b"s", name, consumer, self.number(idle), id_text(start), *options]
        self.check(args, self.model.xautoclaim(name, consumer, idle, start, count, justid))

    def groups(self) -> None:
        name, roll = self.group(), self.r.random()
        if roll < 0.4:
            consumer = self.r.choice(CONSUMERS)
            self.check(
                [b"XGROUP", b"DELCONSUMER", b"s", name, consumer],
                self.model.delconsumer(name, consumer),
            )
        elif roll < 0.8:
            last_id = self.r.choice((0, *self.ids()))
            self.model.groups[name].last_id = last_id
            self.check([b"XGROUP", b"SETID", b"s", name, id_text(last_id)], OK)
        else:
            self.check([b"XGROUP", b"DESTROY", b"s", name], 1)
            self.create(name, 0)


STEP_ROWS: tuple[list[Any], list[int]] = (
    [Walk.xadd, Walk.xcfgset, Walk.xtrim, Walk.xdel, Walk.xdelex, Walk.xreadgroup, Walk.xack, Walk.xackdel,
     Walk.xnack, Walk.xclaim, Walk.xautoclaim, Walk.groups],
    [30, 1, 3, 2, 4, 24, 4, 6, 8, 6, 5, 3],
)  # fmt: skip


@pytest.mark.parametrize("batch", rest_slow(range(8), 2))
def test_the_engine_does_what_the_model_does(batch: int) -> None:
    for seed in range(FIRST_SEED + batch * 1_000_000, FIRST_SEED + batch * 1_000_000 + SEQUENCES):
        try:
            Walk(seed).go()
        except Disagreed as found:
            pytest.fail(f"seed {seed}, model8 and the engine differ\n{found}", pytrace=False)
