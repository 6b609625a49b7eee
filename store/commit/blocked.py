"""Blocked: calls that wait for entries, from parking to their answer. All methods but `patience`: [lock].

A call that has to block is parked as a `Waiter` (engine/keys/waiting.py has the queues). A unit that may make a key
ready signals it. After the unit, `serve` decides the calls that wait on signalled keys again: first in, first out,
each as its own unit. Each is answered through its `Caller`, or parked again.

A frequent case needs no decision: if only consumers of one group wait on a key, and the group has read everything, an
XADD serves the first of them with the entry that it adds. `takers` says so before the XADD, `hand_out` delivers after
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.engine.api import (
    APPLY,
    DELIVER,
    END,
    SEEN,
    Context,
    Effect,
    Entries,
    EntryRow,
    Group,
    RowsPart,
    Stream,
    Waiter,
    nothing_new,
    read_new,
    resident,
)
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.fast_path import fast_path
from tidelog.engine.idlist import pack_one
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.reply import NULL_ARRAY, Park, Reply, Streams
from tidelog.store.clock import Clock
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.landing import UNKNOWN, Landing
from tidelog.store.errors import OutcomeUnknown, StoreDamaged, TidelogError

Decide = Callable[[Context, list[bytes]], Reply]
Work = Callable[[Context], Reply]
Consumes = tuple[Waiter, bytes]  # a waiter, and the consumer that it reads as
Takers = tuple[Group, list[Consumes]]


class Waits:
    """The blocked calls of one open store. `decide` decides the words of a command."""

    def __init__(self, landing: Landing, decide: Decide, clock: Clock) -> None:
        self._landing = landing
        self._waiting = landing.waiting
        self._decide = decide
        self._clock = clock

    # --- parking, and parked callers

    def park(self, park: Park, db: int, caller: Caller, work: Work | None) -> Waiter:
        """Park a call. It is decided again by `work`, or by its words if that is None."""
        waiter = Waiter(park, db, caller, work)
        self._start(waiter)
        return waiter

    def park_again(self, waiter: Waiter) -> None:
        """Park the waiter of an earlier read again, for the same read by the same caller, with its full timeout."""
        waiter.owner.reset()
        self._start(waiter)

    def _start(self, waiter: Waiter) -> None:
        seconds = waiter.timeout_ms / 1000
        waiter.deadline = self._clock.monotonic() + seconds if seconds else None
        self._waiting.park(waiter)

    def patience(self, waiter: Waiter) -> float | None:
        """Seconds that a parked caller may sleep before the store has to check its timers; None = until it is served.
        Needs no lock.
        """
        clock = self._clock
        if clock.manual:
            return None  # until the clock is moved
        at = waiter.deadline
        if waiter.ask_at is not None:
            at = waiter.ask_at if at is None else min(at, waiter.ask_at)
        seconds = None if at is None else max(0.0, at - clock.monotonic())
        if waiter.claim_at is not None:
            # Add one ms: the two clocks round differently, and a wake just before the time would be useless.
            claim = max(0, waiter.claim_at - self._landing.time_ms() + 1) / 1000
            seconds = claim if seconds is None else min(seconds, claim)
        return seconds

    def wake(self, waiter: Waiter) -> None:
        """A parked caller woke: serve what is due at its timers, or answer it if its time is up."""
        landing, monotonic = self._landing, self._clock.monotonic
        # Look for due work before the deadline: a caller that wakes late must not miss entries that came in time.
        if waiter.ask_at is not None and monotonic() >= waiter.ask_at:
            waiter.ask_at = None
            landing.begin(waiter.db, False)
            self._waiting.signal(waiter.keys)
            self.serve()
        elif waiter.claim_at is not None:
            landing.begin(waiter.db, False)
            self._waiting.claims_due(landing.now)
            if self._waiting.signalled:
                self.serve()
        late = waiter.deadline is not None and monotonic() >= waiter.deadline
        if late:
            self.dismiss(waiter)

    def dismiss(self, waiter: Waiter) -> None:
        """Answer a parked caller as if its time were up. If it was served already, it keeps that answer."""
        if not waiter.owner.done:
            self._waiting.remove(waiter)
            waiter.owner.deliver(NULL_ARRAY, self._landing.all_applied())

    def leave(self, waiter: Waiter) -> None:
        """Remove a parked caller that goes away. If it was served already, its entries stay delivered (and pending)."""
        if not waiter.owner.done:
            self._waiting.remove(waiter)

    def desert(self, thread: int) -> None:
        """Remove the waiters of an interrupted thread: the interrupt may have struck between parking and sleeping."""
        for waiter in self._waiting.waiters():
            if waiter.owner.thread == thread:
                self._waiting.remove(waiter)

    def nudge_all(self) -> None:
        """Make every parked caller look at its timers."""
        for waiter in self._waiting.waiters():
            waiter.owner.nudge()

    def end(self, reason: Callable[[], TidelogError]) -> None:
        """Fail every parked call with `reason()`."""
        for waiter in self._waiting.waiters():
            self._waiting.remove(waiter)
            waiter.owner.fail(reason())

    # --- serving

    def serve(self, flush: bool = True) -> None:
        """Decide the calls again that wait on signalled keys.

        A failure in here only fails that waiter. Only an interrupt propagates to the call that woke it.
        """
        landing, waiting = self._landing, self._waiting
        interrupt: BaseException | None = None
        while waiting.signalled:
            try:
                for waiter in waiting.visits(landing.state, self._idle):
                    before = landing.log.next_lsn
                    try:
                        self._visit(waiter, waiter.owner, flush)
                    except BaseException as error:
                        if not isinstance(error, Exception):
                            interrupt = error
                        if not waiter.owner.done:
                            self._interrupted(waiter, error, before)
                        if landing.trouble is not None:
                            break  # the state was replaced, so `visits` iterates over the old one
            except BaseException:
                # The error came between two visits, so the rest of the signalled keys is lost. Make the next call visit
                # all keys.
                waiting.signal(list(waiting.keys))
                raise
            if landing.trouble is not None and not self._rebuilt():
                break
        if interrupt is not None:
            raise interrupt

    def _rebuilt(self) -> bool:
        """Rebuild memory inside a call that has succeeded. If that fails, the next call raises."""
        try:
            self._landing.rebuild()
        except TidelogError:
            return False
        return True

    def _visit(self, waiter: Waiter, caller: Caller, flush: bool) -> None:
        """Decide one waiter's call again. Answer it, or park it again with its old deadline."""
        if caller.gone or caller.done:
            return
        landing = self._landing
        ctx = landing.ctx
        ctx.db, ctx.now, ctx.may_block = waiter.db, landing.now, True
        ctx.effects = []
        before = landing.log.next_lsn
        try:
            reply = self.decide_again(ctx, waiter)
        except CommandError as error:
            if waiter.work is not None:
                raise
            reply = error
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error
        if ctx.effects:
            landing.land(ctx.effects, flush)
        if reply is waiter:
            self._waiting.park(waiter)
        elif reply.__class__ is Park:
            waiter.again(reply)
            self._waiting.park(waiter)
            if waiter.claim_at is not None or waiter.ask_at is not None:
                caller.nudge()  # its timer may have changed
        else:
            caller.deliver(reply, landing.promise(before))

    def decide_again(self, ctx: Context, waiter: Waiter) -> Reply:
        """Decide a waiter's call again. Returns the waiter itself if it is to wait unchanged."""
        reader, work = waiter.reader, waiter.work
        if reader is not None:
            group, consumer, count = reader
            if count is not None:
                reply = read_new(ctx, waiter.keys[0][1], group, consumer, count)
                if reply is not None:
                    return waiter if reply is NULL_ARRAY else reply
        return self._decide(ctx, waiter.args) if work is None else work(ctx)

    def _interrupted(self, waiter: Waiter, error: BaseException, before: int) -> None:
        """A visit broke off; `before` was the next LSN before it. Another thread's interrupt does not end the wait."""
        landing = self._landing
        if isinstance(error, Exception):
            waiter.owner.fail(error)
        elif landing.trouble is None and landing.log.next_lsn == before:
            self._waiting.park(waiter)
            self._waiting.signal(waiter.keys)
        else:
            waiter.owner.fail(OutcomeUnknown(f"{UNKNOWN} ({error!r})"))

    # --- consumers that find nothing new

    @fast_path(
        of="store.commit.blocked:Waits.decide_again",
        held_by="tests/store/test_blocking.py::test_who_waits_again_waits_as_one_who_is_decided_again",
    )
    def finds_nothing(self, waiter: Waiter) -> bool:
        """Park the waiter of a repeated read again if the read finds nothing new. False: a full decision is needed."""
        landing, reader = self._landing, waiter.reader
        if reader is None or reader[2] is None or landing.listener or self._waiting.signalled:
            return False
        now = landing.time_ns() // 1_000_000
        if now != landing.now:
            now = landing.tick(now)
        state = landing.state
        if now >= state.next_expiry:
            return False
        name, consumer_name, _ = reader
        db, key = waiter.keys[0]
        try:
            group = nothing_new(state, db, key, name)
        except CorruptBlock:
            return False  # the decision raises it
        consumer = None if group is None else group.consumers.get(consumer_name)
        if consumer is None:
            return False
        state.databases[db].keys.accessed[key] = now
        if consumer.seen_time != now:
            APPLY[SEEN](state, (SEEN, db, key, name, consumer_name, now))  # never logged
        self.park_again(waiter)
        return True

    @fast_path(
        of="store.commit.blocked:Waits._visit",
        held_by="tests/store/test_fast_paths.py::test_consumers_that_are_passed_over",
    )
    def _idle(self, waiters: Sequence[Waiter], at: int, alike: bool) -> int:
        """How many waiters from `at` on are consumers of one group that find nothing new. The one at `at` has a
        `reader`.

        They are marked as seen now; deciding their commands would do no more. `alike`: all of them are of that group.
        Then once per millisecond is enough, because consumers that came since are marked too.
        """
        state, now = self._landing.state, self._landing.now
        first = waiters[at]
        assert first.reader is not None
        name = first.reader[0]
        place = db, key = first.keys[0]
        try:
            group = nothing_new(state, db, key, name)
        except CorruptBlock:
            return 0  # the decision raises it
        if group is None:
            return 0
        if alike and group.all_seen == (now, place):
            return len(waiters) - at
        consumers = group.consumers
        seen: list[bytes] = []
        for i in range(at, len(waiters)):
            waiter = waiters[i]
            reader, caller = waiter.reader, waiter.owner
            if reader is None or reader[0] != name or reader[1] not in consumers:
                break
            if caller.gone or caller.done:
                break
            seen.append(reader[1])
        if seen:
            APPLY[SEEN](state, (SEEN, db, key, name, tuple(seen), now))  # never logged
            if alike and len(seen) == len(waiters) - at:
                group.all_seen = now, place
        return len(seen)

    # --- handing out

    def takers(self, db: int, key: bytes, count: int) -> Takers | None:
        """Which consumers get the entries of the next `count` XADDs to a key, one each, in this order. Each XADD is a
        unit. None: `serve` has to decide.
        """
        landing, waiting = self._landing, self._waiting
        place = db, key
        name = waiting.groups.get(place)
        if name is None or landing.watches.keys or landing.listener:
            return None
        state = landing.state
        if landing.now >= state.next_expiry:
            return None
        stream = resident(state.databases[db].keys, key)
        if not isinstance(stream, Stream):
            return None
        group = stream.groups.get(name)
        # Go on only if the stream's next entry is also the group's next one. Then delivering it adds one to
        # `entries_read`.
        if (
            group is None
            or group.entries_read != stream.entries_added  # first: a lost group has no more fields
            or group.last_id != stream.last_id
        ):
            return None
        found: list[Consumes] = []
        for waiter in waiting.at(place):
            reader, caller = waiter.reader, waiter.owner
            if reader is None or reader[2] is None or caller.gone or caller.done:
                return None
            found.append((waiter, reader[1]))
            if len(found) == count:
                break
        return (group, found) if found else None

    @fast_path(
        of="store.commit.blocked:Waits.serve",
        held_by="tests/store/test_hand_out.py::test_as_if_everyone_were_asked_after_each_message",
    )
    def hand_out(
        self,
        db: int,
        key: bytes,
        given: Takers,
        entries: Sequence[tuple[int, EntryRow | None]],
        flush: bool,
    ) -> None:
        """Deliver one new entry of the key to each of the takers, in order. Each delivery is its own unit. The key is
        signalled before, and is not afterwards.
        """
        landing, waiting = self._landing, self._waiting
        log, now = landing.log, landing.now
        place = db, key
        group, consumers = given
        lsn = before = log.next_lsn
        try:
            name, read = group.name, group.entries_read
            effects: list[Effect] = []
            for (waiter, consumer), (entry_id, _) in zip(consumers, entries):
                waiting.remove(waiter)
                read += 1
                packed, ms, seq = pack_one(entry_id), entry_id >> 64, entry_id & SEQ_MAX
                effects.append(
                    (DELIVER + END, db, key, name, consumer, packed, now, 1, now, ms, seq, read)
                )
            body = b"".join(map(landing.pack_one, effects))
            landing.land_packed(body, len(effects), effects, flush)
            for (waiter, _), (entry_id, row) in zip(consumers, entries):
                one = Entries((RowsPart([entry_id], [row]),), 1)
                waiter.owner.deliver(Streams(([key, one],)), (log, lsn, True))
                lsn += 1
        except BaseException as error:
            for waiter, _ in consumers:
                if not waiter.owner.done:
                    waiting.remove(waiter)
                    self._interrupted(waiter, error, before)
            if landing.trouble is None or self._rebuilt():
                self.serve(flush)  # the next waiters may succeed
            if not isinstance(error, Exception):
                raise
            return
        others = waiting.at(place)
        seen = not others or group.all_seen == (now, place)
        if seen or self._idle([*others], 0, True) == len(others):
            waiting.signalled.pop(place, None)
        if waiting.signalled:  # or there are other keys, left by an interrupt
            self.serve(flush)
