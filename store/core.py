"""Core: one open store, and the one way of work into it.

Everything that reads or changes state holds `lock`, which is the log's. `run` is the way of every call that decides
something: a command, EXEC, a pipeline's frame, a decision of a queue. Under the lock it

    mends       memory is rebuilt first if an earlier call broke while memory was ahead of the log
    begins      `now` is sampled; keys whose time has passed are deleted
    decides     the work answers with effects and a reply, or lands its effects itself
    lands       the effects become state and log, as one unit (store/landing.py)
    parks       a read that has to block becomes a waiter (store/waits.py)
    serves      waiters whose keys the unit made ready are answered
    promises    what has to hold before the reply may leave (store/promise.py)

Waiting for the disk happens without the lock: `durability.hold`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tidelog.aof.errors import NoThread
from tidelog.aof.log import Log, Policy
from tidelog.engine.commands.add import decide_xadd_auto
from tidelog.engine.context import Context
from tidelog.engine.effects import OPCODE, XADD, XADD_NODE, Effect
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.execute import decide
from tidelog.engine.fast_path import fast_path
from tidelog.engine.reply import Park, Reply
from tidelog.engine.state import Settings, State
from tidelog.engine.transaction import Transaction, Watches
from tidelog.engine.waiting import Waiter, Waiting
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.errors import DataError, NotStored, OutOfSpace, StoreDamaged, TidelogError
from tidelog.store.landing import RELOAD, Landing
from tidelog.store.promise import Durability, Promise
from tidelog.store.waiters import Caller
from tidelog.store.waits import Waits, Work

Answer = tuple[Reply, Promise]
NEW_ID: Final = (XADD, XADD_NODE)


class Core:
    """One open store. The faces share it; see `store.sync` and `store.aio`.

    lock          the log's
    landing       state and log, and how units get into them
    waits         calls that are parked
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
        self.root = Path()  # its directory; set by the opener
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
        self.served = False  # a server has it
        self.forked = False
        self.keeper: Any = None  # see store.lifetime
        self.queues: Any = None  # see store.queue.leases
        self.checkpoints: Any = None  # see store.checkpoints
        self.finalizer: Any = None

    # --- what others look at

    @property
    def log(self) -> Log:
        """The log in use; another one after memory was rebuilt from a log in doubt."""
        return self.landing.log

    @property
    def state(self) -> State:
        return self.landing.state

    @property
    def now(self) -> int:
        """Unix ms of the last unit."""
        return self.landing.now

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

    # --- running work: each takes the lock

    def run(
        self,
        db: int,
        work: Callable[..., Reply],
        caller: Callable[[], Caller] | None = None,
        flush: bool = True,
        given: tuple[Any, ...] = (),
    ) -> Answer:
        """Decide and land one unit of work: its reply, and what has to hold before that may leave.

        work     called with the context and `given`; answers with a reply. Its effects are in the context, or it has
                 landed them. A CommandError is the reply: an error tells something about the state too, so it waits
                 like any other
        caller   is answered if the reply is Park: then the reply is the `Waiter` that was parked. Without a caller
                 nothing blocks. A `Waiter` that `work` answers is parked as it was
        flush    False: what is logged is only gathered; a caller of many has the log flush once
        given    further arguments of `work`; with these a parked call is asked again by the words of its Park, else by
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
                assert caller is not None  # without one nothing blocks
                reply = self.waits.park(reply, db, caller(), None if given else work)
            elif reply.__class__ is Waiter:
                self.waits.park_again(reply)
            after = log.next_lsn  # now: serving others may end in another log
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
        """`run` of one command, given as its words. `before`: the waiter that the same command of the same caller was
        parked as, and is no more; a read that repeats itself is decided by that.
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
        """`run` of a decision that is no command of words. Raises CommandError."""
        answer = self.run(db, work, caller)
        if answer[0].__class__ is CommandError:
            raise answer[0]
        return answer

    @fast_path(of="store.core:Core.run", held_by="tests/store/test_fast_paths.py::test_plain_xadds")
    def add(
        self, db: int, key: bytes, row: tuple[bytes, ...], flush: bool = True
    ) -> tuple[Effect, Log, int]:
        """`run` of `XADD key * field value ...`: (effect, log, LSN). Raises CommandError, TidelogError.

        The most frequent call: it makes no words, no context and no reply.
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
                now = landing.begin(db, False).now  # what expired was logged with that
                if now >= state.next_expiry:  # but for what could not be
                    return self._add_slowly(db, key, row)
            try:
                effect = decide_xadd_auto(state, self.settings, db, key, row, now)
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error
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
        """[lock] `add` where that takes more than one effect."""
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
        """[lock] One command of several decided; a CommandError is its reply. Raises StoreDamaged."""
        try:
            return self.decide_words(ctx, args)
        except CommandError as error:
            return error
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error

    def read_again(self, waiter: Waiter) -> bool:
        """Park the caller of an earlier read again, which makes the same one once more, if that finds nothing new.
        False: nothing was done, and `command` decides.
        """
        with self.lock:
            return self.landing.trouble is None and self.waits.finds_nothing(waiter)

    def session(self, db: int, transaction: Transaction, args: list[bytes]) -> Answer:
        """WATCH and UNWATCH, for a transaction that has not begun. Raises CommandError."""
        answer = self.run(db, transaction.submit, given=(args,))
        if answer[0].__class__ is CommandError:
            raise answer[0]
        return answer

    def forget(self, transaction: Transaction) -> None:
        """A transaction's session ends; its watches go."""
        if (transaction.watched or transaction.active) and not self.ended:
            with self.lock:
                transaction.reset()

    def look(self, at: Callable[[State], Any]) -> Answer:
        """Look at the state as it is in memory, without a new `now`. Raises StoreDamaged."""
        landing = self.landing
        with self.lock:
            if landing.trouble is not None:
                self.mend()
            try:
                return at(landing.state), landing.all_applied()
            except CorruptBlock as error:
                raise StoreDamaged(str(error)) from error

    def try_again(self) -> None:
        """See whether the log has room again for what it refused last, so that `Log.refusal` tells without a write."""
        if self.log.refusal() is not None:
            with self.lock:
                if self.trouble is None:
                    self.landing.try_again()

    def refresh(self) -> int:
        """Read-only stores follow their log; this one writes it."""
        raise DataError("this store is the writer; only a read-only one is refreshed")

    # --- parked callers

    def ticked(self) -> None:
        """A clock that is moved by hand was moved: all who wait look at it."""
        if not self.ended:
            with self.lock:
                self.waits.nudge_all()

    def wake(self, waiter: Waiter) -> None:
        """A parked caller woke: is it served, too late, or may something be claimable by now?"""
        if waiter.owner.done:
            return
        with self.lock:
            if waiter.owner.done:
                return
            if self.landing.trouble is not None:
                self.mend()
            self.waits.wake(waiter)

    def dismiss(self, waiter: Waiter) -> None:
        """A parked caller is to wait no longer: it is answered as if its time were up. If it was served already, it
        keeps that answer.
        """
        if not self.ended:
            with self.lock:
                self.waits.dismiss(waiter)

    def leave(self, waiter: Waiter) -> None:
        """A parked caller goes away. If it was served already, what it got stays delivered (and pending)."""
        waiter.owner.gone = True  # before anything that a further interrupt could break
        if not self.ended:
            with self.lock:
                self.waits.leave(waiter)

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
        if not self.ended:
            with self.lock:
                self.waits.desert(thread)

    # --- policy, trouble, the end

    def set_policy(self, policy: Policy) -> None:
        """Another fsync policy from now on. Raises ValueError; NotStored where the system gives it no thread."""
        with self.lock:
            self.landing.check_open()
            try:
                self.log.policy = policy
            except NoThread as error:
                raise NotStored(f"the policy stays {self.log.policy}: {error}") from error
            self.durability.relaxed = policy != "always"

    def press(self, relief: threading.Event | None) -> None:
        """Memory is over its budget: replies to writers wait for `relief`; None: it is within it again."""
        with self.lock:
            self.durability.relief = relief
            self.landing.log.press(relief is not None)

    def doubt(self, reason: str = RELOAD) -> None:
        """[lock] Memory is rebuilt from checkpoint and log before the next call."""
        self.landing.trouble = self.landing.trouble or reason

    def mend(self) -> None:
        """[lock] Before state is touched: rebuild memory from the log, or say why this store is of no more use."""
        self.landing.rebuild()
        if self.landing.waiting.signalled:
            self.waits.serve()

    def end(self, reason: Callable[[], TidelogError]) -> None:
        """[lock] Every later call raises; every parked one fails now."""
        self.landing.end(reason)
        self.waits.end(reason)
        if self.queues is not None:
            self.queues.ended()

    def check_open(self) -> None:
        """Raises StoreClosed, with why, if the store has ended."""
        self.landing.check_open()

    @property
    def ended(self) -> bool:
        return self.landing.ended
