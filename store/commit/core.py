"""Core: one open store, and the only way to run work in it.

All code that reads or changes state holds `lock`, which is the log's lock. Every call that decides something goes
through `run`: a command, EXEC, a frame of a pipeline, a decision of a queue. Under the lock, `run`

    mends       rebuilds memory first if an earlier call broke while memory was ahead of the log
    begins      samples `now` and deletes expired keys
    decides     calls the work, which returns effects and a reply, or lands its effects itself
    lands       makes the effects state and log, as one unit (store/commit/landing.py)
    parks       turns a read that has to block into a waiter (store/commit/blocked.py)
    serves      answers waiters whose keys the unit made ready
    promises    returns what must hold on disk before the reply may leave (store/commit/durability.py)

Waiting for the disk happens without the lock: `durability.fulfil`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tidelog.aof.errors import NoThread
from tidelog.aof.log import Log, Policy
from tidelog.engine.api import (
    OPCODE,
    XADD,
    XADD_NODE,
    Context,
    Effect,
    Settings,
    State,
    Transaction,
    Waiter,
    Waiting,
    Watches,
    decide,
    decide_xadd_auto,
)
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.fast_path import fast_path
from tidelog.engine.reply import Park, Reply
from tidelog.store.acks import Acks
from tidelog.store.clock import SYSTEM, Clock, Times, times
from tidelog.store.commit.arrivals import Arrivals
from tidelog.store.commit.attached import Changing, Folding, Leasing, Linking, Receiving
from tidelog.store.commit.blocked import Waits, Work
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.durability import Durability, Promise
from tidelog.store.commit.landing import RELOAD, Landing
from tidelog.store.errors import DataError, NotStored, OutOfSpace, StoreDamaged, TidelogError

Answer = tuple[Reply, Promise]
NEW_ID: Final = (XADD, XADD_NODE)


class Core:
    """One open store. The faces share it; see `api.sync` and `api.aio`.

    lock          the log's lock
    landing       state and log, and how units get into them
    waits         blocked calls
    durability    whether replies may leave
    decide        decides the words of a command; a read-only store has its own
    """

    def __init__(
        self,
        log: Log,
        state: State,
        settings: Settings,
        recover: Callable[[Landing], State],
        clock: Clock = SYSTEM,
        decide: Callable[[Context, list[bytes]], Reply] = decide,
    ) -> None:
        self.root = Path()  # the store's directory; set by the opener
        self.lock: Any = log.lock
        self.decide_words = decide
        self.landing = Landing(log, state, settings, recover, clock)
        self.waits = Waits(self.landing, decide, clock)
        self.durability = Durability(log.policy != "always")
        self.settings = settings
        self.clock = clock
        self.time_ns, self.monotonic = clock.time_ns, clock.monotonic
        clock.ticked(self.ticked)
        self.opened_at = self.landing.now, clock.monotonic()
        self.served = False  # whether a server serves it
        # host and port that this server announces, for a link that the owner's program made
        self.served_at: Callable[[], tuple[str, int]] | None = None
        self.forked = False
        self.keeper: object = None  # a `store.lifetime.Keeper`, set when the store is open
        self.queues: Leasing | None = None
        self.checkpoints: Folding | None = None  # None if the store is open for reading only
        self.roles: Changing | None = None  # likewise
        self.following: Receiving | None = None  # None if the store leads
        # the error of each write, READONLY or SUSPENDED; None while the store takes writes
        self.refusal: bytes | None = None
        self.link: Linking | None = None  # to the leader that it follows
        self.acks = Acks(self.landing)  # of its followers
        self.arrivals = Arrivals()  # calls that wait until records are applied here
        self.landing.rebuilt.append(self.arrivals.tell)  # perhaps with other records

    # --- properties

    @property
    def log(self) -> Log:
        """The log in use. Replaced when memory was rebuilt from a log in doubt."""
        return self.landing.log

    @property
    def state(self) -> State:
        return self.landing.state

    @property
    def now(self) -> int:
        """Unix ms of the last unit."""
        return self.landing.now

    def clocks(self, now: int | None = None) -> Times:
        """The store's time and the wall clock's. `now`: the store's time, where a unit has sampled it."""
        store = self.landing.time_ms() if now is None else now
        return times(store, self.clock.time_ns() // 1_000_000)

    @property
    def waiting(self) -> Waiting:
        return self.landing.waiting

    @property
    def watches(self) -> Watches:
        return self.landing.watches

    @property
    def trouble(self) -> str | None:
        """Why memory must be rebuilt before state is touched; None nearly always."""
        return self.landing.trouble

    @property
    def reloads(self) -> int:
        """How often memory was rebuilt."""
        return self.landing.reloads

    # --- running work; each method takes the lock

    def run(
        self,
        db: int,
        work: Callable[..., Reply],
        caller: Callable[[], Caller] | None = None,
        flush: bool = True,
        given: tuple[Any, ...] = (),
    ) -> Answer:
        """Decide and land one unit of work. Returns its reply and the promise that must hold before the reply leaves.

        work     called with the context and `given`; returns a reply. Its effects are in the context, or it has landed
                 them itself. A CommandError becomes the reply: an error depends on the state too, so it waits like any
                 reply
        caller   makes the `Caller` to answer if the reply is Park; the parked `Waiter` is then returned as the reply.
                 Without it nothing blocks. If `work` returns a `Waiter`, that is parked again as it was
        flush    False: the log only gathers the records; the caller of many units flushes once
        given    further arguments of `work`. If given, a parked call is decided again by the words of its Park, else by
                 `work`

        Raises TidelogError.
        """
        landing = self.landing
        with self.lock:
            if landing.trouble is not None:
                self.mend()
            log = landing.log
            before = log.next_lsn
            ctx = landing.begin(db, caller is not None)
            try:
                reply = work(ctx, *given)
            except CommandError as error:
                ctx.effects = []
                reply = error
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error
            if ctx.effects:
                try:
                    landing.land(ctx.effects, flush)
                except OutOfSpace:
                    if not landing.only_due(ctx.effects):
                        raise
            if reply.__class__ is Park:
                assert caller is not None  # nothing blocks without one
                reply = self.waits.park(reply, db, caller(), None if given else work)
            elif reply.__class__ is Waiter:
                self.waits.park_again(reply)
            after = log.next_lsn  # before serving, which may end in another log
            if landing.waiting.signalled:
                self.waits.serve(flush)
            return reply, (log, after - 1, after != before)

    def command(
        self,
        db: int,
        args: list[bytes],
        caller: Callable[[], Caller] | None = None,
        flush: bool = True,
        before: Waiter | None = None,
    ) -> Answer:
        """`run` one command, given as its words.

        before   the waiter of the caller's previous call, if that was the same command; a repeated read then skips
                 argument parsing
        """
        if before is not None:
            return self.run(db, self.waits.decide_again, caller, flush, (before,))
        return self.run(db, self.decide_words, caller, flush, (args,))

    def decided(
        self,
        db: int,
        work: Work,
        caller: Callable[[], Caller] | None = None,
    ) -> Answer:
        """`run` a decision that is not a command. Raises CommandError."""
        if self.refusal is not None:
            raise CommandError(self.refusal)
        answer = self.run(db, work, caller)
        if answer[0].__class__ is CommandError:
            raise answer[0]
        return answer

    @fast_path(
        of="store.commit.core:Core.run", held_by="tests/store/test_fast_paths.py::test_plain_xadds"
    )
    def add(
        self, db: int, key: bytes, row: tuple[bytes, ...], flush: bool = True
    ) -> tuple[Effect, Log, int]:
        """`run` of `XADD key * field value ...`: (effect, log, LSN). Raises CommandError, TidelogError.

        The most frequent call, so it builds no words, no context and no reply.
        """
        landing = self.landing
        with self.lock:
            if landing.trouble is not None:
                self.mend()
            now = landing.time_ns() // 1_000_000
            if now != landing.now:
                now = landing.tick(now)
            state = landing.state
            if now >= state.next_expiry:
                now = landing.begin(db, False).now  # deletes expired keys, as units
                if now >= state.next_expiry:  # some could not be deleted
                    return self._add_slowly(db, key, row)
            try:
                effect = decide_xadd_auto(state, self.settings, db, key, row, now)
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error
            except CommandError:
                if self.refusal is not None:
                    raise CommandError(self.refusal) from None
                raise
            if effect is None:
                return self._add_slowly(db, key, row)
            waiting = landing.waiting
            served = self.waits.takers(db, key, 1) if waiting.keys else None
            lsn = landing.land_packed(landing.pack_one(effect), 1, (effect,), flush)
            log = landing.log
            if waiting.signalled:
                if served is not None:
                    entry = effect[3] << 64 | effect[4], row
                    self.waits.hand_out(db, key, served, (entry,), flush)
                else:
                    self.waits.serve(flush)
            return effect, log, lsn

    def _add_slowly(self, db: int, key: bytes, row: tuple[bytes, ...]) -> tuple[Effect, Log, int]:
        """[lock] `add` if it needs more than one effect."""
        landing = self.landing
        ctx = landing.begin(db, False)
        reply = self.decide(ctx, [b"XADD", key, b"*", *row])
        if reply.__class__ is CommandError:
            raise reply
        effects = ctx.effects
        landing.land(effects)
        log, lsn = landing.log, landing.log.next_lsn - 1
        if landing.waiting.signalled:
            self.waits.serve()
        return next(e for e in effects if e[0] & OPCODE in NEW_ID), log, lsn

    def decide(self, ctx: Context, args: list[bytes]) -> Reply:
        """[lock] Decide one command of several. A CommandError becomes its reply. Raises StoreDamaged."""
        try:
            return self.decide_words(ctx, args)
        except CommandError as error:
            return error
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error

    def read_again(self, waiter: Waiter) -> bool:
        """Park the caller of a repeated read again if it finds nothing new. False: nothing was done; call `command`."""
        with self.lock:
            return self.landing.trouble is None and self.waits.finds_nothing(waiter)

    def session(self, db: int, transaction: Transaction, args: list[bytes]) -> Answer:
        """Run WATCH or UNWATCH for a transaction that has not begun. Raises CommandError."""
        answer = self.run(db, transaction.submit, given=(args,))
        if answer[0].__class__ is CommandError:
            raise answer[0]
        return answer

    def forget(self, transaction: Transaction) -> None:
        """End a transaction's session and drop its watches."""
        if (transaction.watched or transaction.active) and not self.ended:
            with self.lock:
                transaction.reset()

    def look(self, at: Callable[[State], Any]) -> Answer:
        """Look at the state in memory, without sampling `now`. Raises StoreDamaged."""
        landing = self.landing
        with self.lock:
            if landing.trouble is not None:
                self.mend()
            try:
                return at(landing.state), landing.all_applied()
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error

    def try_again(self) -> None:
        """Check whether the log has room again for what it last refused. `Log.refusal` then tells, without a write."""
        if self.log.refusal() is not None:
            with self.lock:
                if self.trouble is None:
                    self.landing.try_again()

    def refresh(self) -> int:
        """Only a read-only store can follow the log. Raises DataError, because this one writes it."""
        raise DataError(
            "refresh() is only for a store opened with read_only=True; this one is the writer and always current"
        )

    # --- blocked callers

    def ticked(self) -> None:
        """A manual clock was moved: all blocked callers look at it."""
        if not self.ended:
            with self.lock:
                self.waits.nudge_all()

    def wake(self, waiter: Waiter) -> None:
        """A blocked caller woke: serve it if something is due at its timers, or answer it if its time is up."""
        if waiter.owner.done:
            return
        with self.lock:
            if waiter.owner.done:
                return
            if self.landing.trouble is not None:
                self.mend()
            self.waits.wake(waiter)

    def dismiss(self, waiter: Waiter) -> None:
        """End a caller's wait, as if its time were up. If it was served already, it keeps that answer."""
        if not self.ended:
            with self.lock:
                self.waits.dismiss(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a blocked caller that goes away. If it was served already, its entries stay delivered (and
        pending).
        """
        waiter.owner.gone = True  # first: a further interrupt could strike below
        if not self.ended:
            with self.lock:
                self.waits.leave(waiter)

    def forbid(self, waiter: Waiter, error: CommandError) -> None:
        """When a blocked caller is served, give it this error instead, unless it was served already."""
        with self.lock:
            self.waiting.ask_always(waiter)
            waiter.work = lambda ctx: error

    def allow(self, waiter: Waiter) -> None:
        """Undo `forbid`."""
        with self.lock:
            waiter.work = None

    def desert(self, thread: int) -> None:
        """Remove the waiters of an interrupted thread: the interrupt may have struck between parking and waiting."""
        if not self.ended:
            with self.lock:
                self.waits.desert(thread)

    # --- policy, trouble, end

    def set_policy(self, policy: Policy) -> None:
        """Set the fsync policy. Raises ValueError, and NotStored if the system gives the policy no thread."""
        with self.lock:
            self.landing.check_open()
            try:
                self.log.policy = policy
            except NoThread as error:
                raise NotStored(
                    f"the fsync policy could not be changed and stays {self.log.policy}: {error}"
                ) from error
            self.durability.relaxed = policy != "always"

    def press(self, relief: threading.Event | None) -> None:
        """Memory is over its budget: replies to writers wait for `relief`. None: it is within the budget again."""
        with self.lock:
            self.durability.relief = relief
            self.landing.log.press(relief is not None)

    def doubt(self, reason: str = RELOAD) -> None:
        """[lock] Have memory rebuilt from checkpoint and log before the next call."""
        self.landing.trouble = self.landing.trouble or reason

    def mend(self) -> None:
        """[lock] Before state is touched: rebuild memory from the log, or raise why the store cannot be used."""
        self.landing.rebuild()
        if self.landing.waiting.signalled:
            self.waits.serve()

    def end(self, reason: Callable[[], TidelogError]) -> None:
        """[lock] End the store: every later call raises, and every blocked one fails now."""
        self.landing.end(reason)
        self.waits.end(reason)
        self.acks.end()
        self.arrivals.tell()
        if self.queues is not None:
            self.queues.nudge()

    def check_open(self) -> None:
        """Raise StoreClosed, with the reason, if the store has ended."""
        self.landing.check_open()

    @property
    def ended(self) -> bool:
        return self.landing.ended
