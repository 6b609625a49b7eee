"""Ticks: schedules put their jobs. A decision under the store's lock.

Any fetch of any queue in the database makes the ticks that are due; each is one unit of an XADD with the dedup ID
`name@tick`, and an XCLAIM that sets the next tick. So no crash and no second process makes a tick twice, and without
workers there are no ticks: those that were missed are treated as `catch_up` says when a worker comes back.

Ticks are times of the wall clock. If that was set back, the next tick of a schedule may lie years ahead; the first look
then sets it to the next one by the clock (`Ticks._reset`).
"""

from __future__ import annotations

import logging
import math
import weakref
from itertools import islice
from typing import Any, Final

from tidelog.engine.api import XACK, Context, EntryRow, Group, Stream
from tidelog.engine.idlist import pack
from tidelog.engine.ids import text as id_text
from tidelog.jobs.dedup import PRODUCER, remembering
from tidelog.jobs.lanes import lane_key, missing_groups, next_in_lane
from tidelog.jobs.rows import HEADER, PRIORITY, VALUE, shown
from tidelog.jobs.rules import GRACE_MS, SCHEDULES, Rule, rule_of
from tidelog.jobs.work.later import CONSUMER, GROUP, SHIFT_MS, time_of
from tidelog.store.clock import LEAP_MS, Times
from tidelog.store.commit.batch import land_commands
from tidelog.store.commit.core import Core
from tidelog.store.errors import DataError

TICKS_MAX: Final = 100  # of one schedule in one unit
LOOK_SCHEDULES: Final = 100  # that one look serves
AGAIN_SECONDS: Final = (
    60.0  # until the next try with a schedule whose next tick cannot be computed here
)

log = logging.getLogger("tidelog.queue")


def schedules_of(value: object) -> tuple[Stream, Group] | None:
    """The stream of schedules and its group, None if missing."""
    if not isinstance(value, Stream):
        return None
    group = value.groups.get(GROUP)
    return None if group is None else (value, group)


def tick_words(schedule: int, tick: int, count: int) -> list[bytes]:
    """The command that sets the next tick of a schedule. `count`: how many ticks it has made."""
    job = id_text(schedule)
    return [
        *(b"XCLAIM", SCHEDULES, GROUP, CONSUMER, b"0", job, b"TIME", b"%d" % time_of(tick)),
        *(b"RETRYCOUNT", b"%d" % count, b"FORCE", b"JUSTID", b"LASTID", job),
    ]


class Ticks:
    """Knowledge about the schedules of one database, which all of its queues share.

    next_ms    when the next tick is, unix ms by the wall clock; inf = none is known
    groups     the `Known` of its queues, to be told of an earlier tick
    _lead      how far the store's time was ahead of the wall clock at the last look
    _to_reset  schedules whose ticks were not looked at since the clock was set back
    """

    def __init__(self, db: int) -> None:
        self.db = db
        self.next_ms = math.inf
        self.groups: weakref.WeakSet[Any] = weakref.WeakSet()
        self._troubled: set[bytes] = set()
        self._lead = 0
        self._to_reset: list[int] = []

    def hear(self, core: Core, tick: int, now: int) -> None:
        """[lock] A schedule was made, at `now` of the wall clock. If it ticks before all others, tell the workers, also
        those that wait.
        """
        if tick < self.next_ms:
            self.next_ms = tick
            at = core.monotonic() + max(0, tick - now) / 1000
            groups = list(self.groups)
            for known in groups:
                known.hasten(at)
            core.waiting.signal([(self.db, known.key) for known in groups])

    def advance(self, core: Core, ctx: Context) -> float:
        """[lock] Make the ticks that are due. Returns when to look next, in seconds from now; inf if never."""
        found = schedules_of(ctx.lookup(SCHEDULES))
        self.next_ms = math.inf
        if found is None or not len(found[1].pending):
            return math.inf
        stream, group = found
        times = core.clocks(ctx.now)
        now = times.wall
        if times.lead >= self._lead + LEAP_MS:
            self._to_reset = [schedule for _, schedule in group.pending.by_age(0)]
        self._lead = times.lead
        if self._to_reset:
            self._reset(core, ctx, stream, group, times)
        due = [
            (time + SHIFT_MS, schedule)
            for time, schedule in islice(group.pending.by_age(0), LOOK_SCHEDULES)
            if time + SHIFT_MS <= now
        ]
        waits = math.inf
        for tick, schedule in due:
            if not self._tick(core, ctx, stream, group, schedule, tick):
                waits = AGAIN_SECONDS
        for time, _ in islice(group.pending.by_age(0), len(due) + 1):
            if time + SHIFT_MS > now or waits == math.inf:
                self.next_ms = max(now, time + SHIFT_MS)
                break
        if self._to_reset:
            return 0.0
        return min(waits, max(0.0, self.next_ms - now) / 1000)

    def _reset(self, core: Core, ctx: Context, stream: Stream, group: Group, times: Times) -> None:
        """[lock] The clock was set back: set ticks that lie too far ahead, as one unit."""
        words: list[list[bytes]] = []
        looked, self._to_reset = (
            self._to_reset[:LOOK_SCHEDULES],
            self._to_reset[LOOK_SCHEDULES:],
        )
        for schedule in looked:
            row, held = stream.get(schedule), group.pending.get(schedule)
            rule = None if row is None else rule_of(row)
            if rule is not None and held is not None:
                tick = held[0] + SHIFT_MS
                earlier = next_tick(rule, tick, times)
                if earlier < tick:
                    words.append(tick_words(schedule, earlier, held[2]))
        if words:
            land_commands(core, ctx, words)

    def _tick(
        self, core: Core, ctx: Context, stream: Stream, group: Group, schedule: int, tick: int
    ) -> bool:
        """Make the ticks of one schedule that are due. False: they cannot be made here; they stay due."""
        row = stream.get(schedule)
        rule = None if row is None else rule_of(row)
        if rule is None:  # another client deleted or changed the entry
            effect = (XACK, ctx.db, SCHEDULES, GROUP, pack([schedule]))
            core.landing.land([effect])
            return True
        times = core.clocks(ctx.now)
        try:
            chosen, following = _due_ticks(rule, tick, times.wall)
        except DataError as error:
            if rule.name not in self._troubled:
                self._troubled.add(rule.name)
                log.warning("schedule %s: its ticks wait: %s", shown(rule.name), error)
            return False
        key = lane_key(rule.queue, rule.priority)
        for wrong in (rule.queue, key):
            if chosen and not isinstance(ctx.lookup(wrong), Stream | None):
                log.warning(
                    "schedule %s: key %r holds no queue, so %d ticks were skipped",
                    *(shown(rule.name), shown(wrong), len(chosen)),
                )
                chosen = []
        there = ctx.lookup(key)
        held = group.pending.get(schedule)
        count = (0 if held is None else held[2]) + len(chosen)
        words: list[list[bytes]] = []
        if chosen:
            if there is None:
                # XCFGSET needs the stream. Its groups are for its workers to create.
                words.append([b"XGROUP", b"CREATE", key, GROUP, b"0", b"MKSTREAM"])
                words.append([b"XGROUP", b"DESTROY", key, GROUP])
            words += remembering(there if isinstance(there, Stream) else None, key)
            if rule.priority:
                words += missing_groups(ctx, rule.queue, key)
                words += _lane_words(ctx, rule, key, chosen, times.lead)
                self._hear_lane(core, rule)
            else:
                words += [_job_words(rule, each, times.lead) for each in chosen]
        if following is None:
            words.append([b"XACK", SCHEDULES, GROUP, id_text(schedule)])
        else:
            words.append(tick_words(schedule, following, count))
        land_commands(core, ctx, words)
        return True

    def _hear_lane(self, core: Core, rule: Rule) -> None:
        """Tell the workers of the queue of a lane, and wake those that wait."""
        place = self.db, rule.queue
        for known in list(self.groups):
            if known.place == place:
                known.add_lane(rule.priority)
        core.waiting.signal([place])


def next_tick(rule: Rule, tick: int, times: Times) -> int:
    """The next tick where `tick` is the stored one: an earlier one if the clock was set back."""
    if not times.lead:
        return tick
    try:
        after = rule.after(times.wall)
    except DataError:  # it cannot be computed here
        after = None
    return tick if after is None else min(tick, after)


def _due_ticks(rule: Rule, tick: int, now: int) -> tuple[list[int], int | None]:
    """(the ticks that get a job, the next tick) of a schedule whose tick is due. Raises DataError."""
    if rule.catch_up != "all":
        # Only the latest tick counts, so do not list all that were missed.
        tick, following = max(tick, rule.until(now)), rule.after(now)
        skipped = rule.catch_up == "none" and now - tick > GRACE_MS
        return [] if skipped else [tick], following
    chosen = [tick]
    following = rule.after(tick)
    while following is not None and following <= now and len(chosen) < TICKS_MAX:
        chosen.append(following)
        following = rule.after(following)
    return chosen, following


def _job_words(rule: Rule, tick: int, lead: int) -> list[bytes]:
    once = _once(rule, tick, lead)
    return [b"XADD", rule.queue, b"IDMP", PRODUCER, once, b"*", *_row(rule, tick)]


def _lane_words(
    ctx: Context, rule: Rule, key: bytes, ticks: list[int], lead: int
) -> list[list[bytes]]:
    """The commands that put the jobs of these ticks into a lane, whose IDs are explicit."""
    found = ctx.lookup(key)
    stream = found if isinstance(found, Stream) else None
    if stream is not None and stream.idmp is not None:
        known = stream.idmp.lookup
        ticks = [
            tick for tick in ticks if known(PRODUCER, _once(rule, tick, lead), ctx.now) is None
        ]
    last = 0 if stream is None else stream.last_id
    first = next_in_lane(last, ctx.now, rule.priority, len(ticks))
    words: list[list[bytes]] = []
    for job, tick in enumerate(ticks, first):
        words.append([b"XADD", key, id_text(job), *_row(rule, tick)])
        words.append([b"XIDMPRECORD", key, PRODUCER, _once(rule, tick, lead), id_text(job)])
    return words


def _once(rule: Rule, tick: int, lead: int) -> bytes:
    """The dedup ID of a tick.

    If the clock is set back, a cron expression fires once at a time that comes twice. An interval goes on, so its dedup
    IDs have the store's time.
    """
    return rule.name + b"@%d" % (tick if rule.cron is not None else tick + lead)


def _row(rule: Rule, tick: int) -> EntryRow:
    """The row of the job of a tick."""
    priority = (PRIORITY, b"%d" % rule.priority) if rule.priority else ()
    return (
        *(VALUE, rule.value, *priority),
        *(HEADER + b"schedule", rule.name, HEADER + b"tick", rule.shown_tick(tick).encode()),
    )
