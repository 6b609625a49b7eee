"""Following: a store whose log is the log of its leader, a moment behind.

`Following` is attached to the core of a follower (`Core.following`; None in a leader). It appends the leader's frames
and applies them. A leader applies a unit before it appends it, because it can still refuse the unit. A follower cannot
refuse what its leader has logged, so it appends first: after any interrupt, memory is at most behind the log, and the
next call rebuilds it.

A follower refuses writes at these places. Below all of them, `Log.reserve` of a follower's log refuses too.

    a command, EXEC             `decide_read`, in place of the engine's `decide`
    a decision of a queue       `Core.decided`
    a call that would block     `ReadersOnly`, in place of `Waits`: only reads wait
    an expired key              is hidden; the leader's DEL deletes it (`Landing.expiring`)

`now` is the leader's, so a key expires for readers here when it expires there, whatever this machine's clock says.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.aof.errors import LeaderLog
from tidelog.aof.reading.reader import Epoch
from tidelog.engine.api import (
    EPOCH,
    OPCODE,
    Context,
    Waiter,
    decide,
)
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.store.commit.blocked import Waits
from tidelog.store.commit.landing import READONLY
from tidelog.store.commit.reads import first_write, reads_only
from tidelog.store.errors import StoreClosed, from_command

if TYPE_CHECKING:
    # a program that never follows does not load this module
    from tidelog.aof.received import Batch
    from tidelog.store.commit.core import Core

UNBLOCKED: Final = (
    b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
)
decide_read: Final = reads_only(READONLY)
IN_LOG: Final = "the received frames may be in the log; the next call reads them from there"


class ReadersOnly(Waits):
    """The blocked calls of a follower: readers, and no consumer, since to take an entry is a write.

    A call that was decided just before the store became a follower may still park a consumer here. Its next decision
    refuses it.
    """

    def decide_again(self, ctx: Context, waiter: Waiter) -> Reply:
        work = waiter.work
        return self._decide(ctx, waiter.args) if work is None else work(ctx)

    def finds_nothing(self, waiter: Waiter) -> bool:
        return False

    def _idle(self, waiters: Sequence[Waiter], at: int, alike: bool) -> int:
        return 0

    def end_writers(self) -> None:
        """Fail the parked calls that would write."""
        for waiter in self._waiting.waiters():
            if waiter.work is not None or _writes(waiter.args):
                self._waiting.remove(waiter)
                waiter.owner.fail(from_command(CommandError(UNBLOCKED)))


def _writes(args: list[bytes]) -> bool:
    return first_write([args]) is not None


class Following:
    """The follower's part of an open store. `follow` makes it; `lead` ends it."""

    def __init__(self, core: Core) -> None:
        # weakly, because the core must be released with its last reference, which a cycle would delay
        self._core = weakref.ref(core)
        self._landing = core.landing
        self._monotonic = core.clock.monotonic
        # The leader's clock showed `_ms` when the monotonic clock showed `_at`. Until the leader is heard, this is the
        # store's own `now`: the time of the last frame if it was opened as a follower.
        self._ms, self._at = core.landing.now, core.clock.monotonic()
        self._heard = False

    # --- frames

    def receive(self, batch: Batch) -> None:
        """Append a batch of the leader's log, apply it, and serve the readers that wait for its entries.

        Raises aof.errors.BadFrame, and LeaderLog if the store follows no more; OutOfSpace, StoreDamaged, NotStored,
        StorePoisoned, StoreClosed: nothing has changed. OutcomeUnknown: it broke off, and `last` says how far the log
        goes. An interrupt leaves that open too.
        """
        core = self._held()
        landing = self._landing
        with core.lock:
            if landing.trouble is not None:
                core.mend()
            if core.following is not self:
                raise LeaderLog
            if landing.state.changes.cold is not None:
                landing.ready(batch.records)
            log = landing.log
            before = log.next_lsn
            try:
                log.receive(batch)
                self._frames_at(batch.now)
                self._apply(batch, core)
            except BaseException as error:
                unchanged = log.next_lsn == before and not log.in_doubt
                if unchanged and isinstance(error, Exception):
                    raise landing.unreserved(error)
                # The log may be ahead of memory, and how far was applied is unknown.
                raise landing.broken(error, True, IN_LOG)
            core.arrivals.tell(batch.last)
            if landing.waiting.signalled:
                core.waits.serve()

    def _apply(self, batch: Batch, core: Core) -> None:
        self._landing.replay(batch.records)
        if batch.epochs and core.checkpoints is not None:
            for lsn, record in enumerate(batch.records, batch.first):
                if record[0] & OPCODE == EPOCH:
                    core.checkpoints.lived(Epoch(record[1], record[2], lsn))
            core.arrivals.tell()  # a token's life may have ended

    @property
    def last(self) -> tuple[int, int]:
        """(LSN, header checksum) of the last frame. Raises as `Core.mend`."""
        core = self._held()
        with core.lock:
            if core.trouble is not None:
                core.mend()
            return core.log.written_lsn, core.log.chain

    def lives(self) -> list[Epoch]:
        """The lives in the log, newest first. Raises as `Core.mend`."""
        core = self._held()
        with core.lock:
            if core.trouble is not None:
                core.mend()
            return [] if core.checkpoints is None else core.checkpoints.epochs[::-1]

    def _held(self) -> Core:
        core = self._core()
        if core is None:
            raise StoreClosed("the store was closed; open it again")
        return core

    # --- the leader's time

    def heard(self, leader_ms: int) -> None:
        """The leader's clock shows `leader_ms` now."""
        core = self._held()
        with core.lock:
            if core.following is not self:
                return
            self._ms, self._at = leader_ms, self._monotonic()
            # Only the first time may `now` go back: until then it was this machine's time, or a guess.
            self._landing.follow_clock(leader_ms, exactly=not self._heard)
            self._heard = True

    def _frames_at(self, now_ms: int) -> None:
        """[lock] A frame was written at `now_ms`, some time ago."""
        if now_ms > self.time_ns() // 1_000_000:
            self._ms, self._at = now_ms, self._monotonic()
        self._landing.follow_clock(now_ms)

    def time_ns(self) -> int:
        """The leader's time, as this store knows it. Runs on by the monotonic clock."""
        return self._ms * 1_000_000 + int((self._monotonic() - self._at) * 1_000_000_000)


def follow(core: Core) -> None:
    """[lock] Make the core a follower's. Its log is one already. May be repeated after an interrupt."""
    landing = core.landing
    following = Following(core)
    readers = ReadersOnly(landing, decide_read, core.clock)
    core.waits, core.decide_words = readers, decide_read
    core.refusal = READONLY
    landing.expiring = False
    landing.time_ns = following.time_ns
    readers.end_writers()
    if core.queues is not None:
        core.queues.nudge()  # callers that wait for room try again, and are refused
    core.following = following  # last: says that the rest is done


def lead(core: Core) -> None:
    """[lock] Make the core a leader's again. May be repeated after an interrupt."""
    landing = core.landing
    landing.time_ns = core.clock.time_ns
    landing.follow_clock(landing.log.last_now)
    landing.expiring = True
    core.waits, core.decide_words = Waits(landing, decide, core.clock), decide
    core.refusal = None
    core.following = None  # last: says that the rest is done
