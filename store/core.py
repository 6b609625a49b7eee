"""Core: one open store: its state, its log, and the way of a command from decision to durability.

Everything that reads or changes state holds `lock`, which is the log's. Under it a unit is

    decided     effects and a reply, nothing changed
    packed      one msgpack record per effect; the last logged one is marked
    reserved    room in the segment; a full disk or a unit too large is refused here, nothing changed
    applied     memory changes; from here to the end of `Log.add`, memory is ahead of the log
    added       the frame is in the segment, or gathered for the next group commit

and then those whom it wakes are served. Waiting for the disk happens without the lock (`hold`).

If anything breaks out while memory is ahead (KeyboardInterrupt, MemoryError, an error of the disk), the caller is
told that nothing was stored, or that nobody knows, and `trouble` makes the next call rebuild memory from the
log before it does anything else (`mend`).

`now` is sampled once per unit and never decreases; while the wall clock shows less, it runs on by the monotonic one, so
that what is to expire, or be idle for long enough, does so in time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import msgpack

from tidelog.aof import errors as aof
from tidelog.aof.log import FSYNCED, WRITTEN, Log, Policy
from tidelog.disk.real import OUT_OF_SPACE
from tidelog.engine.apply import APPLY
from tidelog.engine.commands.add import decide_xadd_auto
from tidelog.engine.commands.readgroup import nothing_new, read_new
from tidelog.engine.context import Context
from tidelog.engine.effects import DEL, END, OPCODE, SEEN, VOLATILE, XADD, XADD_NODE, Effect
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.execute import decide, expire_due
from tidelog.engine.observe import SIGNALS, signals, touches
from tidelog.engine.prepare import prepare
from tidelog.engine.reply import NULL_ARRAY, Park, Reply
from tidelog.engine.state import Settings, State
from tidelog.engine.transaction import Transaction, Watches
from tidelog.engine.waiting import Waiter, Waiting
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.errors import (
    DataError,
    NotStored,
    OutcomeUnknown,
    OutOfSpace,
    StoreClosed,
    StoreDamaged,
    StorePoisoned,
    TidelogError,
    UnitTooLarge,
)
from tidelog.store.hand_out import hand_out, takers
from tidelog.store.waiters import Caller

RELIEF_S = 0.01  # how often who waits looks whether memory is within its budget again
EXPIRE_KEYS = 1000  # how many keys one unit lets expire
RELOAD = "memory may be ahead of the log"

_logger = logging.getLogger("tidelog")

# What has to hold before a reply may leave: a log, an LSN in it, and whether the call wrote that. The log is named
# because a rebuilt store goes on with a new one, where the LSN of a lost unit may stand for another.
Claim = tuple[Log, int, bool]
Answer = tuple[Reply, Claim]


class Core:
    """One open store. The faces share it; see `store.sync` and `store.aio`.

    lock      the log's
    trouble   why state must not be touched before `mend`; None nearly always
    relaxed   the policy is not `always`: nothing is gained by gathering units for the next sync
    listener  [lock] told of each effect before it is applied, at `now`; must not fail. Its unit may yet break: then
              `reloads` has counted on when the lock can be had again by a call that finds no trouble
    """

    def __init__(
        self,
        log: Log,
        state: State,
        settings: Settings,
        recover: Callable[[Core], State],
        clock: Clock = SYSTEM,
    ) -> None:
        self.log = log
        self.root = Path()  # its directory; set by who opens it
        self.clock = clock
        self.time_ns, self.monotonic = clock.time_ns, clock.monotonic
        clock.ticked(self.ticked)
        self.lock: Any = log.lock
        self.state = state
        self.settings = settings
        self.ctx = Context(state, settings)
        self.now = log.last_now
        self.opened_at = self._base = self.now, clock.monotonic()
        self.relaxed = log.policy != "always"
        self.trouble: str | None = None
        self.waiting = Waiting()
        self.watches = Watches()
        self.served = False  # a server has it
        self.listener: Callable[[Effect, State, int], None] | None = None
        self.reloads = 0
        self.expired_keys = 0  # deleted because their time had passed, in this open
        self.packer = msgpack.Packer(autoreset=False)
        self.pack_one = msgpack.Packer(autoreset=True).pack
        self.decide_words = decide  # the engine's; a read-only store puts its own in place
        self._recover = recover
        self._end: Callable[[], TidelogError] | None = None
        self.forked = False
        self.keeper: Any = None  # see store.lifetime
        self.queues: Any = None  # see store.queue.leases
        self.checkpoints: Any = None  # see store.checkpoints
        self.relief: threading.Event | None = None
        self.finalizer: Any = None

    # --- running commands: each takes the lock

    def run(
        self,
        db: int,
        args: list[bytes],
        caller: Callable[[], Caller] | None = None,
        flush: bool = True,
        before: Waiter | None = None,
    ) -> Answer:
        """Decide and commit one command.

        A CommandError is returned, not raised: an error tells something about the state too, so it waits like
        any reply. A read that has to block parks a `caller()`, and the reply is its `Waiter`; without `caller` it
        does not block. Without `flush` what it logs is only gathered: whoever runs many commands in a row, and
        answers them together, has the log flush once. `before`: the waiter of the same command of the same caller, if
        it was parked before and is not now. Whoever reads on and on is spared the way through the words.
        """
        with self.lock:
            if self.trouble is not None:
                self.mend()
            log = self.log
            first = log.next_lsn
            ctx = self.begin(db, caller is not None)
            try:  # as `decide`, one call less
                if before is None:
                    reply = self.decide_words(ctx, args)
                else:
                    reply = self._decide_again(ctx, before)
            except CommandError as error:
                reply = error
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error
            effects = ctx.effects
            if effects:
                try:
                    self.commit(effects, flush)
                except OutOfSpace:
                    if not self._only_due(effects):
                        raise
            if reply.__class__ is Park:
                reply = self._park(db, reply, caller)
            elif reply is before and before is not None:
                before.owner.reset()
                self._wait(before)
            after = log.next_lsn  # now: serving others may end in another log
            if self.waiting.signalled:
                self.serve(flush)
            return reply, (log, after - 1, after != first)

    def wait_again(self, waiter: Waiter) -> bool:
        """Park one who waited before and asks for the same, if there is nothing new for it: what `run` with `before`
        would come to, which is to be called otherwise. Most consumers of a group wait most of the time, and each of
        their reads begins like this.
        """
        reader = waiter.reader
        with self.lock:
            if reader is None or reader[2] is None or self.trouble is not None or self.listener:
                return False
            if self.waiting.signalled:  # which an interrupt left: who decides serves them
                return False
            now = self.time_ns() // 1_000_000
            if now != self.now:
                now = self._tick(now)
            state = self.state
            if now >= state.next_expiry:
                return False
            name, consumer_name, _ = reader
            db, key = waiter.keys[0]
            try:
                group = nothing_new(state, db, key, name)
            except CorruptBlock:
                return False  # who decides is told
            consumer = None if group is None else group.consumers.get(consumer_name)
            if consumer is None:
                return False
            state.databases[db].keys.accessed[key] = now
            if consumer.seen_time != now:
                APPLY[SEEN](state, (SEEN, db, key, name, consumer_name, now))  # is never logged
            waiter.owner.reset()
            self._wait(waiter)
            return True

    def add(
        self, db: int, key: bytes, row: tuple[bytes, ...], flush: bool = True
    ) -> tuple[Effect, Log, int]:
        """`run` of `XADD key * field value ...`, shorter: (effect, log, LSN). Raises CommandError.

        The hot path: what `begin` and `commit` do stands here inlined (test_core checks that both agree).
        """
        with self.lock:
            if self.trouble is not None:
                self.mend()
            now = self.time_ns() // 1_000_000
            if now != self.now:
                now = self._tick(now)
            state = self.state
            if now >= state.next_expiry:
                now = self.begin(db, False).now  # what expired was logged with that
                if now >= state.next_expiry:  # but for what could not be
                    return self._add_slowly(db, key, row)
            try:
                effect = decide_xadd_auto(state, self.settings, db, key, row, now)
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error
            if effect is None:
                return self._add_slowly(db, key, row)
            body: bytes = self.pack_one(effect)
            log = self.log
            size = len(body)
            if log.offset + size > log.room:  # as `reserve`
                self.reserve(log, size)
            adding = False
            observed = self.watches.keys or self.waiting.keys or self.listener
            served = takers(self, db, key, 1) if observed else None
            try:
                if served is not None:
                    self.waiting.signalled[db, key] = None
                elif observed:
                    self.observe(effect)
                APPLY[effect[0]](state, effect)
                adding = True
                lsn = log.add(body, 1, now, flush and (self.relaxed or not log.syncing))
            except BaseException as error:
                raise self.broken(error, adding)
            if served is not None:
                hand_out(self, db, key, served, ((effect[3] << 64 | effect[4], row),), flush)
            elif observed and self.waiting.signalled:
                self.serve(flush)
            return effect, log, lsn

    def _add_slowly(self, db: int, key: bytes, row: tuple[bytes, ...]) -> tuple[Effect, Log, int]:
        """[lock] `add` where that takes more than one effect."""
        ctx = self.begin(db, False)
        reply = self.decide(ctx, [b"XADD", key, b"*", *row])
        if reply.__class__ is CommandError:
            raise reply
        effects = ctx.effects
        self.commit(effects)
        log, lsn = self.log, self.log.next_lsn - 1
        if self.waiting.signalled:
            self.serve()
        return next(e for e in effects if e[0] & OPCODE in (XADD, XADD_NODE)), log, lsn

    def decided(
        self,
        db: int,
        work: Callable[[Context], Reply],
        caller: Callable[[], Caller] | None = None,
    ) -> Answer:
        """One unit of a decision that is no command of words. Raises CommandError.

        With a `caller`, work may answer Park: then the reply is a `Waiter`, and work is asked again as a command
        would be decided again.
        """
        with self.lock:
            if self.trouble is not None:
                self.mend()
            log = self.log
            before = log.next_lsn
            ctx = self.begin(db, caller is not None)
            try:
                reply = work(ctx)
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error
            if ctx.effects:
                self.commit(ctx.effects)
            if reply.__class__ is Park:
                reply = self._park(db, reply, caller, work)
            after = log.next_lsn
            if self.waiting.signalled:
                self.serve()
            return reply, (log, after - 1, after != before)

    def session(self, db: int, transaction: Transaction, args: list[bytes]) -> Answer:
        """WATCH and UNWATCH, for a transaction that has not begun. Raises CommandError."""
        with self.lock:
            if self.trouble is not None:
                self.mend()
            try:
                return transaction.submit(self.begin(db, False), args), self.claim()
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error

    def forget(self, transaction: Transaction) -> None:
        """A transaction's session ends; its watches go."""
        if (transaction.watched or transaction.active) and self._end is None:
            with self.lock:
                transaction.reset()

    def look(self, at: Callable[[State], Any]) -> Answer:
        """Look at the state."""
        with self.lock:
            if self.trouble is not None:
                self.mend()
            try:
                return at(self.state), self.claim()
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error

    def try_again(self) -> None:
        """See whether the log has room again for what it refused last, so that `Log.refusal` tells without a write."""
        if self.log.refusal() is None:
            return
        with self.lock:
            if self.trouble is None:
                try:
                    self.log.try_again()
                except Exception as error:
                    self.unreserved(error)

    def claim(self) -> Claim:
        """[lock] What a call that wrote nothing has to wait for: all that was applied."""
        return self.log, self.log.next_lsn - 1, False

    def refresh(self) -> int:
        """Read-only stores follow their log; this one writes it."""
        raise DataError("this store is the writer; only a read-only one is refreshed")

    # --- waiting for the disk: without the lock

    def held(self, log: Log, lsn: int, level: int) -> bool:
        """Whether `lsn` has reached `level`; 0 is the level that the fsync policy promises."""
        if level == WRITTEN or (not level and self.relaxed):
            return lsn <= log.written_lsn and not log.parked
        return lsn <= log.synced_lsn and self.relief is None

    def hold(self, claim: Claim, level: int) -> None:
        """Until a claim has reached `level`. Raises OutcomeUnknown (a write), StorePoisoned (a read)."""
        log, lsn, wrote = claim
        if level == WRITTEN or (not level and self.relaxed):  # as `held`
            if lsn <= log.written_lsn and not log.parked:
                return
            level = WRITTEN
        elif lsn <= log.synced_lsn and self.relief is None:
            return
        else:
            level = FSYNCED
        try:
            log.wait(lsn, level)
        except aof.AofError as error:
            raise unheld(error, wrote) from error
        relief = self.relief
        if wrote:
            while relief is not None and relief is self.relief:
                # Not by its own `wait`: an interrupt in there could leave it locked, and who is to set it would hang.
                sleep(RELIEF_S)

    def press(self, relief: threading.Event | None) -> None:
        """Memory is over its budget: who writes waits for `relief` before the reply; None: it is not any more."""
        with self.lock:
            self.relief = relief
            self.log.press(relief is not None)

    def policy_level(self) -> int:
        """What a reply promises unless the caller asks otherwise."""
        return WRITTEN if self.relaxed else FSYNCED

    def set_policy(self, policy: Policy) -> None:
        """Another fsync policy from now on. Raises ValueError; NotStored where the system gives it no thread."""
        with self.lock:
            if self._end is not None:
                raise self._end()
            try:
                self.log.policy = policy
            except aof.NoThread as error:
                raise NotStored(f"the policy stays {self.log.policy}: {error}") from error
            self.relaxed = policy != "always"

    # --- blocked callers

    def patience(self, waiter: Waiter) -> float | None:
        """Seconds a parked caller may sleep before it calls `wake`; None = until it is served."""
        if self.clock.manual:
            return None  # until `ticked`
        at = waiter.deadline
        if waiter.ask_at is not None:
            at = waiter.ask_at if at is None else min(at, waiter.ask_at)
        seconds = None if at is None else max(0.0, at - self.monotonic())
        if waiter.claim_at is not None:
            # One ms more: its clock and ours round differently, and too early would be a turn for nothing.
            claim = max(0, waiter.claim_at - self.time_ns() // 1_000_000 + 1) / 1000
            seconds = claim if seconds is None else min(seconds, claim)
        return seconds

    def ticked(self) -> None:
        """A clock that is moved by hand was moved: all who wait look at it."""
        if self._end is None:
            with self.lock:
                for waiter in self.waiting.waiters():
                    waiter.owner.nudge()

    def wake(self, waiter: Waiter) -> None:
        """A parked caller woke: is it served, too late, or may something be claimable by now?"""
        caller: Caller = waiter.owner
        if caller.done:
            return
        with self.lock:
            if caller.done:
                return
            if self.trouble is not None:
                self.mend()
            # First what is due: who wakes late is not to miss what came in time.
            if waiter.ask_at is not None and self.monotonic() >= waiter.ask_at:
                waiter.ask_at = None
                self.begin(waiter.db, False)
                self.waiting.signal(waiter.keys)
                self.serve()
            elif waiter.claim_at is not None:
                self.begin(waiter.db, False)
                self.waiting.claims_due(self.now)
                if self.waiting.signalled:
                    self.serve()
            late = waiter.deadline is not None and self.monotonic() >= waiter.deadline
            if late and not caller.done:
                self.waiting.remove(waiter)
                caller.deliver(NULL_ARRAY, self.claim())

    def dismiss(self, waiter: Waiter) -> None:
        """A parked caller is to wait no longer: it is answered as if its time were up. If it was served already, it
        keeps that answer.
        """
        if self._end is None:
            with self.lock:
                if not waiter.owner.done:
                    self.waiting.remove(waiter)
                    waiter.owner.deliver(NULL_ARRAY, self.claim())

    def leave(self, waiter: Waiter) -> None:
        """A parked caller goes away. If it was served already, what it got stays delivered (and pending)."""
        waiter.owner.gone = True  # before anything that a further interrupt could break
        if self._end is None:
            with self.lock:
                if not waiter.owner.done:
                    self.waiting.remove(waiter)

    def forbid(self, waiter: Waiter, error: CommandError) -> None:
        """A parked caller gets this error when it is served, and nothing else; unless it was served already."""
        with self.lock:
            self.waiting.ask_always(waiter)
            waiter.work = lambda ctx: error

    def allow(self, waiter: Waiter) -> None:
        """Take `forbid` back."""
        with self.lock:
            waiter.work = None

    def desert(self, thread: int) -> None:
        """An interrupt struck a thread after its call was parked, and perhaps before it waited: nobody waits there."""
        if self._end is None:
            with self.lock:
                for waiter in self.waiting.waiters():
                    if waiter.owner.thread == thread:
                        self.waiting.remove(waiter)

    # --- the steps of a unit: inside the lock

    def begin(self, db: int, may_block: bool) -> Context:
        """The context of a new unit at a new `now`. Keys whose time has passed go first, as units of their own."""
        now = self.time_ns() // 1_000_000
        if now != self.now:
            self._tick(now)
        ctx = self.ctx
        ctx.db, ctx.now, ctx.may_block = db, self.now, may_block
        ctx.effects = []
        while ctx.now >= self.state.next_expiry:
            for damage in expire_due(ctx, EXPIRE_KEYS):
                _logger.warning("what is to expire cannot be read, and stays: %s", damage)
            if not ctx.effects:
                break
            due = sum(len(effect[2]) for effect in ctx.effects)
            try:
                self.commit(ctx.effects)
            except OutOfSpace:
                # Nothing has changed, and reads go on: to them such a key is missing anyhow.
                ctx.effects = []
                break
            self.expired_keys += due
            ctx.effects = []
        return ctx

    def _only_due(self, effects: list[Effect]) -> bool:
        """Whether nothing is to be deleted but keys whose time has passed: whoever reads may know that unlogged."""
        databases, now = self.state.databases, self.now
        return all(
            effect[0] == DEL
            and all(databases[effect[1]].keys.expire_at(key) < now for key in effect[2])
            for effect in effects
        )

    def _tick(self, wall: int) -> int:
        """[lock] What `now` is when the wall clock shows that: no less than what time passed since it was ahead."""
        ms, at = self._base
        mono = self.monotonic()
        running = ms + int((mono - at) * 1000)
        if wall >= running:
            self._base = wall, mono
        else:  # it was set back
            wall = running
        if wall > self.now:
            self.now = wall
        return self.now

    def decide(self, ctx: Context, args: list[bytes]) -> Reply:
        """One command decided; a CommandError is its reply."""
        try:
            return self.decide_words(ctx, args)
        except CommandError as error:
            return error
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error

    def pack(self, effects: list[Effect]) -> int:
        """Pack the logged effects of one unit, the last one marked. How many there were."""
        logged = [effect for effect in effects if effect[0] < VOLATILE]
        if logged:
            last = logged[-1]
            logged[-1] = (last[0] | END, *last[1:])
            for effect in logged:
                self.packer.pack(effect)
        return len(logged)

    def apply(self, effects: list[Effect]) -> None:
        """Change the state. From here on until `Log.add` is done, memory is ahead of the log."""
        state = self.state
        if state.changes.cold is not None:
            self.ready(effects)
        if self.watches.keys or self.waiting.keys or self.listener:
            for effect in effects:
                self.observe(effect)
                APPLY[effect[0]](state, effect)
        else:
            for effect in effects:
                APPLY[effect[0]](state, effect)

    def commit(self, effects: list[Effect], flush: bool = True) -> None:
        """One unit; one frame, or without `flush` a part of the next."""
        state = self.state
        if state.changes.cold is not None:
            self.ready(effects)
        if len(effects) == 1:  # most units are like this
            self._commit_one(effects[0], flush)
            return
        packer = self.packer
        packer.reset()  # before, not after: what an interrupt left in it must never reach the log
        count = self.pack(effects)
        body = packer.bytes()
        log = self.log
        if count:
            self.reserve(log, len(body))
        adding = False
        observed = self.watches.keys or self.waiting.keys or self.listener
        try:
            for effect in effects:  # as `apply`, one call less
                if observed:
                    self.observe(effect)
                APPLY[effect[0]](state, effect)
            adding = True
            if count:
                log.add(body, count, self.now, flush and (self.relaxed or not log.syncing))
        except BaseException as error:
            raise self.broken(error, adding)

    def _commit_one(self, effect: Effect, flush: bool) -> None:
        """`commit` of one effect, which is ready."""
        kind = effect[0]
        logged = kind < VOLATILE
        log = self.log
        if logged:
            effect = (kind | END,) + effect[1:]  # as `pack`
            body: bytes = self.pack_one(effect)
            size = len(body)
            if log.offset + size > log.room:  # as `reserve`
                self.reserve(log, size)
        adding = False
        try:
            if self.watches.keys or self.listener or kind in SIGNALS and self.waiting.keys:
                self.observe(effect)
            APPLY[kind](self.state, effect)
            adding = True
            if logged:
                log.add(body, 1, self.now, flush and (self.relaxed or not log.syncing))
        except BaseException as error:
            raise self.broken(error, adding)

    def reserve(self, log: Log, nbytes: int) -> None:
        """See that the log has room. Raises what `unreserved` makes of it: nothing has changed."""
        try:
            log.reserve(nbytes)
        except BaseException as error:
            raise self.unreserved(error)

    def ready(self, effects: list[Effect]) -> None:
        """Before effects are applied: bring into memory what they change. Raises StoreDamaged: nothing has changed."""
        try:
            prepare(self.state, effects)
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error

    def observe(self, effect: Effect) -> None:
        """Before an effect is applied: tell who watches, and remember whom to serve after the unit."""
        if self.watches.keys:
            self.watches.touch(touches(effect, self.state, self.watches.keys))
        if self.waiting.keys and effect[0] & OPCODE in SIGNALS:
            self.waiting.signal(signals(effect, self.state, self.waiting.keys))
        if self.listener is not None:
            self.listener(effect, self.state, self.now)

    def _park(
        self,
        db: int,
        park: Park,
        caller: Callable[[], Caller] | None,
        work: Callable[[Context], Reply] | None = None,
    ) -> Waiter:
        assert caller is not None  # without one nothing blocks
        waiter = Waiter(park, db, caller(), work)
        self._wait(waiter)
        return waiter

    def _wait(self, waiter: Waiter) -> None:
        """It begins to wait, with all its time before it."""
        seconds = waiter.timeout_ms / 1000
        waiter.deadline = self.monotonic() + seconds if seconds else None
        self.waiting.park(waiter)

    def serve(self, flush: bool = True) -> None:
        """Decide the calls again that signalled keys may have made ready: FIFO, each a unit of its own.

        What fails here fails for the waiter alone; only an interrupt goes on to the one who woke it.
        """
        interrupt: BaseException | None = None
        try:
            for waiter in self.waiting.visits(self.state, self.idle):
                before = self.log.next_lsn
                try:
                    self._visit(waiter, waiter.owner, flush)
                except BaseException as error:
                    if not isinstance(error, Exception):
                        interrupt = error
                    if not waiter.owner.done:
                        self.interrupted(waiter, error, before)
                    if self.trouble is not None:
                        # The state that `visits` looks at is no more. Rebuilding asks everyone again.
                        self.mend_for_others()
                        break
        except BaseException:
            # Between two visits. Which keys were still to pass is forgotten, so all of them are, by the next call.
            self.waiting.signal(list(self.waiting.keys))
            raise
        if interrupt is not None:
            raise interrupt

    def idle(self, waiters: Sequence[Waiter], at: int, alike: bool) -> int:
        """How many waiters from `at` on, where one has a `reader`, are consumers of its group that find nothing new.

        They are seen now, which is all that deciding their commands would come to. `alike`: all of them are of that
        group; then once in a millisecond is enough, as those who came since are seen as well.
        """
        first = waiters[at]
        assert first.reader is not None
        name = first.reader[0]
        place = db, key = first.keys[0]
        try:
            group = nothing_new(self.state, db, key, name)
        except CorruptBlock:
            return 0  # who decides is told
        if group is None:
            return 0
        if alike and group.all_seen == (self.now, place):
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
            APPLY[SEEN](self.state, (SEEN, db, key, name, tuple(seen), self.now))  # is never logged
            if alike and len(seen) == len(waiters) - at:
                group.all_seen = self.now, place
        return len(seen)

    def _visit(self, waiter: Waiter, caller: Caller, flush: bool) -> None:
        if caller.gone or caller.done:
            return
        ctx = self.ctx
        ctx.db, ctx.now, ctx.may_block = waiter.db, self.now, True
        ctx.effects = []
        before = self.log.next_lsn
        try:
            reply = self._decide_again(ctx, waiter)
        except CommandError as error:
            if waiter.work is not None:
                raise
            reply = error
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error
        if ctx.effects:
            self.commit(ctx.effects, flush)
        if reply is waiter:
            self.waiting.park(waiter)
        elif reply.__class__ is Park:
            waiter.again(reply)
            self.waiting.park(waiter)
            if waiter.claim_at is not None or waiter.ask_at is not None:
                caller.nudge()  # its timer may stand at another time
        else:
            after = self.log.next_lsn
            caller.deliver(reply, (self.log, after - 1, after != before))

    def _decide_again(self, ctx: Context, waiter: Waiter) -> Reply:
        """Decide the call of one who waits, or has waited for the same before. Itself: it is to wait as it did."""
        reader, work = waiter.reader, waiter.work
        if reader is not None:
            group, consumer, count = reader
            if count is not None:
                reply = read_new(ctx, waiter.keys[0][1], group, consumer, count)
                if reply is not None:
                    return waiter if reply is NULL_ARRAY else reply
        return self.decide_words(ctx, waiter.args) if work is None else work(ctx)

    def interrupted(self, waiter: Waiter, error: BaseException, before: int) -> None:
        """A visit broke off; `before` was the next LSN then. Another thread's interrupt is no end of the wait."""
        if isinstance(error, Exception):
            waiter.owner.fail(error)
        elif self.trouble is None and self.log.next_lsn == before:
            self.waiting.park(waiter)
            self.waiting.signal(waiter.keys)
        else:
            waiter.owner.fail(OutcomeUnknown(f"{UNKNOWN} ({error!r})"))

    def mend_for_others(self) -> None:
        """`mend` in a call that is done itself. If it fails, that is news for the next one."""
        try:
            self.mend()
        except TidelogError:
            pass

    # --- trouble

    def broken(self, error: BaseException, adding: bool, what: str = "") -> BaseException:
        """Memory may be ahead of the log. What to raise: the truth about the call that was under way."""
        self.trouble = RELOAD
        if adding:
            text = what or UNKNOWN
        else:
            text = what or NOTHING
        if not isinstance(error, Exception):
            error.add_note(f"tidelog: {text}")
            return error
        told: TidelogError
        if isinstance(error, aof.LogPoisoned):
            told = OutcomeUnknown(str(error)) if adding else StorePoisoned(str(error))
        else:
            told = (OutcomeUnknown if adding else NotStored)(f"{text} ({error!r})")
        told.__cause__ = error
        return told

    def unreserved(self, error: BaseException) -> BaseException:
        """What to raise when `Log.reserve` did not return: nothing of the call has changed anything."""
        if self.log.in_doubt:
            self.trouble = RELOAD  # it broke off between two segments
        if not isinstance(error, Exception):
            error.add_note(f"tidelog: {NOTHING}")
            return error
        told = refused(error)
        if told is not error:
            told.__cause__ = error
        return told

    def mend(self) -> None:
        """[lock] Before state is touched: rebuild memory from the log, or say why this store is of no more use."""
        if self._end is not None:
            raise self._end()
        try:
            state = self._recover(self)
        except (aof.AofError, CorruptBlock, OSError) as error:
            text = f"memory could not be rebuilt from the log: {error}"
            if isinstance(error, aof.NoSpace) or getattr(error, "errno", 0) in OUT_OF_SPACE:
                raise OutOfSpace(f"{text}; it is tried again with the next call") from error
            raise StorePoisoned(text) from error
        self.state = state
        self.ctx = Context(self.state, self.settings)
        self.reloads += 1
        if self.queues is not None:
            self.queues.reloaded()
        self.trouble = None
        # What the lost units promised to watchers and waiters is unknown: a transaction tries again, and all who
        # are parked are asked.
        self.watches.touch(list(self.watches.keys))
        if self.waiting.keys:
            self.waiting.signal(list(self.waiting.keys))
            self.serve()

    def end(self, reason: Callable[[], TidelogError]) -> None:
        """[lock] Every later call raises; everyone parked is told now."""
        self._end = reason
        self.trouble = "ended"
        for waiter in self.waiting.waiters():
            self.waiting.remove(waiter)
            waiter.owner.fail(reason())
        if self.queues is not None:
            self.queues.ended()

    def check_open(self) -> None:
        """Raises StoreClosed, with why, if the store has ended."""
        if self._end is not None:
            raise self._end()

    @property
    def ended(self) -> bool:
        return self._end is not None


NOTHING = "nothing of this call was stored"
UNKNOWN = "whether it was stored is not known: read to find out"


def refused(error: Exception) -> Exception:
    """What to raise when `Log.reserve` refused: nothing has changed."""
    match error:
        case aof.NoSpace():
            return OutOfSpace(str(error))
        case aof.NoThread():
            return NotStored(f"{NOTHING}: {error}")
        case aof.UnitTooLarge():
            return UnitTooLarge(str(error))
        case aof.LogPoisoned():
            return StorePoisoned(str(error))
        case aof.LogClosed():
            return StoreClosed(str(error))
        case OSError():
            return NotStored(f"{NOTHING}: {error}")
    return error


def unheld(error: aof.AofError, wrote: bool) -> TidelogError:
    """What to raise when an LSN does not reach the caller's level any more."""
    if isinstance(error, aof.LogClosed):
        return StoreClosed(str(error))
    return OutcomeUnknown(str(error)) if wrote else StorePoisoned(str(error))
