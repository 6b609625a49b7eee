"""The same turns to tidelog and to a real server; the first reply or view that is not as owed is a Disagreement.

tidelog decides a turn first. Its outcomes say what the server owes (differences.expected) and which mends to
send along; then the server gets the turn in one batch. After every turn both are looked at whole.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from tests.oracle.conftest import Oracle
from tests.oracle.engine_side import Outcome, Tidelog, rows_of
from tests.oracle.grammar import Command, Turn
from tests.oracle.wire import QUEUED, Connection, Form

VIEWED_DATABASES = (0, 1, 2, 15)
UNBLOCK_SECONDS_MAX = 60.0


class Disagreement(AssertionError):
    """The server did not answer as owed."""

    def __init__(self, args: Command, ours: Form, owed: Form, got: Form, turn: int) -> None:
        self.args_sent, self.ours, self.owed, self.got, self.turn = args, ours, owed, got, turn
        owed_line = "" if ours == owed else f"\n  owed      {shown(owed)}"
        super().__init__(
            f"{shown_command(args)}\n  tidelog   {shown(ours)}{owed_line}\n  redis     {shown(got)}"
        )


class Sent(NamedTuple):
    """One command to the server and what is to come back."""

    args: Command
    ours: Form
    owed: Form
    parks: bool = False


class Pair:
    """tidelog and a server from the same empty start."""

    def __init__(self, oracle: Oracle) -> None:
        self.tidelog = Tidelog(owes=oracle.owes)
        self.clock = oracle.clock
        self.link = oracle.server.connect()
        self.onlooker = oracle.server.connect()
        self.link_id = b"%d" % self.link.call(b"CLIENT", b"ID")
        self.turn = 0
        self.now = 0
        reset(self.onlooker)

    def close(self) -> None:
        self.link.close()
        self.onlooker.close()

    def play(self, turns: list[Turn]) -> None:
        for self.turn, turn in enumerate(turns):
            self.step(turn)

    def step(self, turn: Turn) -> None:
        self.now = turn.now
        self.clock.set(turn.now)
        if turn.now % 2:
            self._expire_due()
        self._exchange(self._plan(turn))
        self.compare_views()

    def _expire_due(self) -> None:
        """tidelog clears away what is due in one go, the server key by key as somebody looks."""
        for db, key in self.tidelog.expire_due(self.now):
            replies = self.onlooker.pipeline([[b"SELECT", b"%d" % db], [b"EXISTS", key]])
            if replies[1] != 0:
                raise Disagreement([b"EXISTS", key], 0, 0, replies[1], self.turn)

    def _plan(self, turn: Turn) -> list[Sent]:
        plan: list[Sent] = []
        queued: list[int] = []  # where in the plan the commands of the open transaction stand
        for args in turn.commands:
            if args[0] == b"XADDMANY":
                if not self.tidelog.queueing:
                    plan += self._singly(args, self.tidelog.run(turn.now, args))
                continue
            outcome = self.tidelog.run(turn.now, args)
            if outcome.queued is not None:
                outcome = self._mended_exec(plan, queued, outcome)
            if outcome.form == QUEUED:
                queued.append(len(plan))
            elif args[0].upper() in (b"EXEC", b"DISCARD") and len(args) == 1:
                queued = []
            # A release that owes another reply, such as an error for an option that came later, does not park.
            parks = outcome.parked and outcome.expect == outcome.form
            plan.append(Sent(args, outcome.form, outcome.expect, parks))
            plan += [Sent(mend.args, f"(mend: {mend.row})", mend.expect) for mend in outcome.mends]
        return plan

    def _singly(self, args: Command, outcome: Outcome) -> list[Sent]:
        """The commands for the server that stand for one xadd_many."""
        return [
            Sent([b"XADD", args[1], b"*", *row], reply, reply)
            for row, reply in zip(rows_of(args), outcome.form, strict=True)
        ]

    def _mended_exec(self, plan: list[Sent], queued: list[int], outcome: Outcome) -> Outcome:
        """Mends of queued commands are queued right behind them, so EXEC owes their replies too."""
        assert outcome.queued is not None and len(queued) == len(outcome.queued)
        owed: list[Form] = []
        for each in outcome.queued:
            owed.append(each.expect)
            owed += [mend.expect for mend in each.mends]
        for at, each in reversed(list(zip(queued, outcome.queued, strict=True))):
            plan[at + 1 : at + 1] = [Sent(mend.args, QUEUED, QUEUED) for mend in each.mends]
        return outcome._replace(expect=owed)

    def _exchange(self, plan: list[Sent]) -> None:
        self.link.send([sent.args for sent in plan])
        for sent in plan:
            if sent.parks:
                self._unblock()
            got = self.link.receive()
            if not sent.owed == got:
                raise Disagreement(sent.args, sent.ours, sent.owed, got, self.turn)

    def _unblock(self) -> None:
        deadline = time.monotonic() + UNBLOCK_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.onlooker.call(b"CLIENT", b"UNBLOCK", self.link_id) == 1:
                return
        raise AssertionError("the server does not wait where tidelog waits")

    def compare_views(self) -> None:
        for db in VIEWED_DATABASES:
            self.onlooker.call(b"SELECT", b"%d" % db)
            keys = self._look(db, [[b"KEYS", b"*"], [b"DBSIZE"]])[0]
            wanted: list[Command] = []
            for key in sorted(keys):
                wanted += [[b"TYPE", key], [b"PEXPIRETIME", key]]
                if self.tidelog.look(self.now, db, [b"TYPE", key]).form == ("+", b"stream"):
                    wanted.append([b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])
                    wanted.append([b"XINFO", b"STREAM", key])
                else:
                    wanted.append([b"GET", key])
            if wanted:
                self._look(db, wanted)

    def _look(self, db: int, wanted: list[Command]) -> list[Form]:
        outcomes = [self.tidelog.look(self.now, db, args) for args in wanted]
        replies = self.onlooker.pipeline(wanted)
        for args, outcome, got in zip(wanted, outcomes, replies, strict=True):
            if not outcome.expect == got:
                raise Disagreement(args, outcome.form, outcome.expect, got, self.turn)
        return [outcome.form for outcome in outcomes]


def reset(link: Connection) -> None:
    """A server as it was started."""
    for args in (
        (b"FLUSHALL",),
        (b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"),
        (b"CONFIG", b"SET", b"stream-node-max-entries", b"100", b"stream-node-max-bytes", b"4096"),
    ):
        reply = link.call(*args)
        assert reply == ("+", b"OK"), reply


def shown(form: Form) -> str:
    """A reply on one line, short."""
    text = re.sub(r"""\bb(?=['"])""", "", repr(form))
    return text if len(text) <= 1500 else f"{text[:1200]} ... {text[-250:]}"


def shown_command(args: Command) -> str:
    def word(arg: bytes) -> str:
        text = arg.decode("latin-1")
        plain = (
            text
            and text.isascii()
            and text.isprintable()
            and not set(text) & set(" '\"\\$*?()<>|&;#~[]{}!")
        )
        return text if plain else '"' + repr(arg)[2:-1].replace('"', '\\"') + '"'

    return " ".join(map(word, args))
