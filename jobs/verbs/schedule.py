"""QUEUE SCHEDULE: add, pause, resume or remove a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from tidelog.engine import ids
from tidelog.engine.api import Context
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import InDatabase
from tidelog.jobs.lanes import create_group
from tidelog.jobs.options import make_options, named
from tidelog.jobs.own import ONE, TWO, Own
from tidelog.jobs.rules import SCHEDULES, Rule, make_rule
from tidelog.jobs.scheduling import Schedule, Stored, find, of_pairs, pairs, shown
from tidelog.jobs.streams import stream_at
from tidelog.jobs.verbs.verb import WORKS, Facts, OfDatabase, Plan, Safe
from tidelog.jobs.work.later import GROUP, SHIFT_MS, next_later
from tidelog.jobs.work.leases import leases_of
from tidelog.jobs.work.ticks import schedules_of, tick_words

Words = list[list[bytes]]
_NOT_TEXT: Final = b"ERR names, cron expressions and time zones must be UTF-8"


class ChangeSchedule(OfDatabase):
    """A request about one schedule: one of the classes below, which add a word of their own.

    A schedule puts jobs. So its user needs the right to put into the stream of the schedules, and into its queue.
    """

    __slots__ = ()

    name = b"SCHEDULE"
    facts = Facts(
        *(-4, WORKS, "", "0.1.0"),
        "Add, pause, resume or remove a schedule, which puts jobs again and again",
        (
            "SCHEDULE ADD <name> <queue> <value> CRON <expression> [TZ <zone>] | EVERY <ms> [CATCHUP ONE | ALL | NONE]",
            "Put a job into a queue again and again.",
            "SCHEDULE PAUSE | RESUME | REMOVE <name>",
            "Change a schedule; the reply is 0 if there is none.",
        ),
    )
    places = 2
    options = {b"ONCE": TWO}  # only a removal needs it, since all others may be repeated

    word: ClassVar[bytes]

    @classmethod
    def chosen(cls, words: list[bytes]) -> type[ChangeSchedule]:
        """See `OfDatabase`."""
        kinds = AddSchedule, PauseSchedule, ResumeSchedule, RemoveSchedule
        found = next((kind for kind in kinds if kind.word == words[0].upper()), None)
        if found is None or len(words) < found.places:
            raise CommandError(SYNTAX)
        return found

    @classmethod
    def puts(cls, words: list[bytes]) -> list[bytes]:
        """See `OfDatabase`."""
        return [SCHEDULES, words[2]] if cls.word == b"ADD" else [SCHEDULES]


@dataclass(frozen=True, slots=True)
class AddSchedule(ChangeSchedule):
    """Add or replace a schedule: a Schedule. The same again changes nothing."""

    word = b"ADD"
    places = 4
    options = dict.fromkeys((b"CRON", b"TZ", b"EVERY", b"CATCHUP", b"PRIORITY"), ONE) | {
        b"ONCE": TWO
    }

    rule: Rule

    @classmethod
    def of(cls, *given: Any) -> Self:
        """The request of a caller; `Store.schedule` documents the arguments. Raises DataError, EncodeError."""
        name, cron, every, queue, value, tz, catch_up, codec, priority = given
        raw = rows.encode_value(make_options(queue, codec=codec), value)
        return cls(make_rule(name, cron, every, queue, raw, tz, catch_up, priority))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        rule = self.rule
        words = [self.word, rule.name, rule.queue, rule.value]
        if rule.cron is None:
            words += (b"EVERY", b"%d" % rule.every)
        else:
            words += (b"CRON", named("cron", rule.cron), b"TZ", named("tz", rule.tz))
        words += (b"CATCHUP", rule.catch_up.encode())
        return [*words, b"PRIORITY", b"%d" % rule.priority] if rule.priority else words

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`. Raises DataError, EncodeError."""
        cron, tz, catch_up = (
            _text(own[option][0]) if option in own else None
            for option in (b"CRON", b"TZ", b"CATCHUP")
        )
        every, priority = own.number(b"EVERY"), own.number(b"PRIORITY", 0)
        length = None if every is None else every / 1000
        name, queue = _text(words[1]), _text(words[2])
        catch_up = (catch_up or "one").lower()
        return cls.of(name, cron, length, queue, words[3], tz, catch_up, "bytes", priority)

    def plan(self, engine: InDatabase) -> Plan:
        """See `OfDatabase`."""
        core = engine.core
        times = core.clocks()
        rule = self.rule.begun(times.wall)
        ticks = leases_of(core).ticks_of(engine.db)

        def plan(ctx: Context) -> tuple[Words, Schedule]:
            stream = stream_at(ctx, SCHEDULES)
            words = [] if schedules_of(stream) else [create_group(SCHEDULES, GROUP)]
            old = find(stream, rule.name)
            if old is not None:
                if rule.is_like(old.rule):
                    return [], shown(old, times)
                words += _gone_words(old)
            entry = next_later(0 if stream is None else stream.last_id, ctx.now)
            words.append([b"XADD", SCHEDULES, ids.text(entry), *rule.row()])
            wall = core.clocks(ctx.now).wall
            tick = rule.after(wall) if old is None or old.pending is not None else None
            if tick is not None:
                words.append(tick_words(entry, tick, 0))
                ticks.hear(core, tick, wall)
            there = Stored(entry, rule, None if tick is None else (tick - SHIFT_MS, 0, 0))
            return words, shown(there, times)

        return plan

    def reply(self, result: Schedule) -> Reply:
        """See `Verb`."""
        return pairs(result)

    def result(self, reply: Any) -> Schedule:
        """See `Verb`."""
        return of_pairs(reply)


@dataclass(frozen=True, slots=True)
class OneSchedule(ChangeSchedule):
    """A change of a schedule: 1; 0 if there is none of that name."""

    schedule: bytes

    @classmethod
    def of(cls, name: str) -> Self:
        """The request of a caller who names a schedule. Raises DataError."""
        return cls(named("name", name))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [self.word, self.schedule]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`. Raises DataError."""
        return cls.of(_text(words[1]))

    def plan(self, engine: InDatabase) -> Plan:
        """See `OfDatabase`."""

        def plan(ctx: Context) -> tuple[Words, int]:
            found = find(stream_at(ctx, SCHEDULES), self.schedule)
            return ([], 0) if found is None else (self._words(engine, ctx, found), 1)

        return plan

    def _words(self, engine: InDatabase, ctx: Context, found: Stored) -> Words:
        """[lock] The commands that change it."""
        raise NotImplementedError


class PauseSchedule(OneSchedule):
    """Stop the ticks of a schedule."""

    __slots__ = ()

    word = b"PAUSE"

    def _words(self, engine: InDatabase, ctx: Context, found: Stored) -> Words:
        return _gone_words(found)[:1] if found.pending is not None else []


class ResumeSchedule(OneSchedule):
    """End a pause."""

    __slots__ = ()

    word = b"RESUME"

    def plan(self, engine: InDatabase) -> Plan:
        """See `OfDatabase`."""
        leases_of(engine.core)  # the first call takes the lock, so `_words` must not make it
        return super().plan(engine)

    def _words(self, engine: InDatabase, ctx: Context, found: Stored) -> Words:
        wall = engine.core.clocks(ctx.now).wall
        tick = found.rule.after(wall) if found.pending is None else None
        if tick is None:
            return []
        leases_of(engine.core).ticks_of(engine.db).hear(engine.core, tick, wall)
        return [tick_words(found.entry, tick, 0)]


class RemoveSchedule(OneSchedule):
    """Delete a schedule."""

    __slots__ = ()

    word = b"REMOVE"
    safe = Safe.ONCE

    def _words(self, engine: InDatabase, ctx: Context, found: Stored) -> Words:
        return _gone_words(found)


def _gone_words(found: Stored) -> Words:
    job = ids.text(found.entry)
    return [[b"XACK", SCHEDULES, GROUP, job], [b"XDEL", SCHEDULES, job]]


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise CommandError(_NOT_TEXT) from None
