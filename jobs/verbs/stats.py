"""QUEUE STATS: figures about a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from tidelog.engine.api import State, Stream
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Map, Reply
from tidelog.jobs import rows
from tidelog.jobs.due import due_in
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import lanes_in, totals
from tidelog.jobs.own import FLAG, Own
from tidelog.jobs.stats import Stats
from tidelog.jobs.streams import counted
from tidelog.jobs.verbs.verb import CANCEL, LOOKS, Facts, Verb
from tidelog.jobs.work.later import later_of
from tidelog.store.commit.core import Answer

MORE: Final = ("cancelled", "hanging", "killed")


@dataclass(frozen=True, slots=True)
class AskStats(Verb):
    """Figures about a queue: Stats.

    more    with those that clients of version 0.1 do not know
    """

    name = b"STATS"
    facts = Facts(
        *(-3, LOOKS, "RO access", "0.1.0", "Figures about a queue"),
        (
            "STATS <name> [MORE]",
            "Figures about the queue; MORE: also how many jobs were cancelled, and how many handlers hang.",
        ),
    )
    options = {b"MORE": FLAG}
    more_words = CANCEL, b"MORE"

    more: bool = False

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(b"MORE" in own)

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        options, db = engine.options, engine.db
        core, known = engine.core, engine.known
        mono, now = core.monotonic(), engine.store_ms()

        def at(state: State) -> Stats:
            pending = unread = paused = due = length = 0
            in_flight: dict[str, int] = {}
            by_priority: dict[int, int] = {}
            oldest = MAX
            for lane in lanes_in(state, db, options):
                group, back = lane.group, 0
                new, delivered, given, first = counted(lane.stream, group)
                if group is not None:
                    back = len(due_in(engine, state, lane))
                    for consumer in group.listed():
                        held = group.pending.held_by(consumer.index)
                        if held:
                            name = rows.shown(consumer.name)
                            in_flight[name] = in_flight.get(name, 0) + held
                if new + back:
                    by_priority[lane.options.priority] = new + back
                unread, due, length = unread + new, due + back, length + lane.stream.length
                pending, paused = pending + delivered, paused + given - back
                oldest = min(oldest, first)
            age = None if oldest == MAX else max(0, now - (oldest >> 64)) / 1000
            put, done = known.sample(mono, *totals(state, db, options))
            later = later_of(state, db, options)
            place = db, options.key, options.group_key
            arrived = known.later.count_due(core, later, now)
            return Stats(
                name=options.name,
                group=options.group,
                depth=unread + pending + arrived,
                waiting=unread + due + arrived,
                in_flight=in_flight,
                paused=paused,
                scheduled=0 if later is None else len(later[1].pending) - arrived,
                dead=_length(state, db, options.dead_key),
                failures=_length(state, db, options.failures_key),
                kept=max(0, length - unread - pending),
                oldest_seconds=age,
                put_per_second=put,
                done_per_second=done,
                by_priority=by_priority,
                cancelled=_added(state, db, options.cancels_key),
                **engine.leases.hangs.sum(place, mono)._asdict(),
            )

        answer: Answer = core.look(at)
        return answer

    def reply(self, result: Stats) -> Reply:
        """See `Verb`."""
        figures = result.as_dict()
        if not self.more:
            for name in MORE:
                del figures[name]
        return _pairs(figures)

    def result(self, reply: Any) -> Stats:
        """See `Verb`."""
        found = {name.decode(): value for name, value in _two_by_two(reply)}
        found["in_flight"] = {name.decode(): held for name, held in _two_by_two(found["in_flight"])}
        found["by_priority"] = {int(rank): n for rank, n in _two_by_two(found["by_priority"])}
        for name in ("name", "group"):
            found[name] = found[name].decode()
        for name in ("oldest_seconds", "put_per_second", "done_per_second"):
            found[name] = None if found[name] is None else float(found[name])
        return Stats(**found)


def _pairs(figures: dict[Any, Any]) -> Map:
    reply = Map()
    for name, value in figures.items():
        if isinstance(value, dict):
            value = _pairs(value)
        reply += str(name).encode(), value.encode() if isinstance(value, str) else value
    return reply


def _two_by_two(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _length(state: State, db: int, key: bytes) -> int:
    value = state.databases[db].keys.get(key)
    return value.length if isinstance(value, Stream) else 0


def _added(state: State, db: int, key: bytes) -> int:
    value = state.databases[db].keys.get(key)
    return value.entries_added if isinstance(value, Stream) else 0
