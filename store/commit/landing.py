"""Landing: how units become state and log. Only this module reserves room, applies effects and appends.

Under the store's lock a unit is

    decided     effects and a reply; nothing has changed
    packed      one msgpack record per effect; the last logged one is marked
    readied     cold pending entries that the effects change are read into memory
    reserved    the segment has room; a full disk, a unit too large, and one that adds data to a store at its quota
                are refused here, nothing has changed
    applied     memory changes; from here to the end of `Log.add`, memory is ahead of the log
    appended    the frame is in the segment, or gathered for the next group commit

`Landing.land` does that for one unit. `Gathering` does it for many commands that share a frame: each is applied before
the next one is decided, and all are appended together.

If an error or an interrupt strikes while memory is ahead, `broken` says what became of the unit and sets `trouble`:
the next call rebuilds memory from the log before it does anything else (`rebuild`). If `reserve` fails, nothing has
changed, and `unreserved` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgpack

from tidelog.aof import errors as aof
from tidelog.aof.log import Log
from tidelog.disk.real import OUT_OF_SPACE
from tidelog.engine.api import (
    APPLY,
    DEL,
    END,
    OPCODE,
    SIGNALS,
    VOLATILE,
    Context,
    Effect,
    Settings,
    State,
    Waiting,
    Watches,
    expire_due,
    prepare,
    signals,
    touches,
)
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.store.clock import Clock
from tidelog.store.commit.adding import only_adds
from tidelog.store.commit.durability import Promise
from tidelog.store.errors import (
    FULL,
    NotStored,
    OutcomeUnknown,
    OutOfSpace,
    StoreClosed,
    StoreDamaged,
    StoreFull,
    StorePoisoned,
    TidelogError,
    UnitTooLarge,
    from_command,
)

EXPIRE_KEYS: Final = 1000  # keys that one unit deletes when they expire
RELOAD: Final = "memory may be ahead of the log"
NOTHING: Final = "the call stored nothing"
READONLY: Final = b"READONLY You can't write against a read only replica."
SUSPENDED: Final = b"READONLY This store takes no writes while it hands over to a follower (FAILOVER). Try again later."
UNKNOWN: Final = "it is unknown whether the call was stored; read the data to find out"

_logger = logging.getLogger("tidelog")


class Landing:
    """The state of one open store, its log, and the way of effects into both. All methods: [lock].

    log        where units are appended; replaced when `rebuild` finds it in doubt
    now        unix ms, sampled once per unit; never decreases
    trouble    why state must not be touched before `rebuild`; None nearly always
    watches    is told of keys whose change breaks a WATCH
    waiting    is told of keys that blocked readers wait for
    listener   is told of each effect before it is applied, at `now`; must not fail. Its unit may still break: then
               `reloads` has increased by the time a call without trouble holds the lock again
    rebuilt    called after memory was rebuilt; must not fail
    over_quota says why units that add data are refused (store/quota.py)
    expiring   expired keys are deleted here; a store that follows another's log leaves that to the writer
    """

    def __init__(
        self,
        log: Log,
        state: State,
        settings: Settings,
        recover: Callable[[Landing], State],
        clock: Clock,
    ) -> None:
        self.log = log
        self.lock = log.lock
        self.state = state
        self.settings = settings
        self.ctx = Context(state, settings)
        self.time_ns, self.monotonic = clock.time_ns, clock.monotonic
        self.now = log.last_now
        self.trouble: str | None = None
        self.watches = Watches()
        self.waiting = Waiting()
        self.listener: Callable[[Effect, State, int], None] | None = None
        self.over_quota: Callable[[], str] = lambda: f"{FULL}it is at its quota"
        self.expiring = True
        self.reloads = 0
        # number of keys deleted because they had expired, since the store was opened
        self.expired_keys = 0
        self.pack_one = msgpack.Packer(autoreset=True).pack
        self.packer = msgpack.Packer(autoreset=False)  # of the unit or `Gathering` under way
        self.rebuilt: list[Callable[[], object]] = []
        self._began_at = self.now, clock.monotonic()
        self._recover = recover
        self._end: Callable[[], TidelogError] | None = None

    # --- before a unit is decided

    def begin(self, db: int, may_block: bool) -> Context:
        """The context of a new unit, at a new `now`. Expired keys are deleted first, as units of their own."""
        now = self.time_ns() // 1_000_000
        if now != self.now:
            now = self.tick(now)
        ctx = self.ctx
        ctx.db, ctx.now, ctx.may_block = db, now, may_block
        ctx.effects = []
        while now >= self.state.next_expiry and self.expiring:
            for damage in expire_due(ctx, EXPIRE_KEYS):
                _logger.warning("an expired key cannot be read and is kept: %s", damage)
            if not ctx.effects:
                break
            due = sum(len(effect[2]) for effect in ctx.effects)
            try:
                self.land(ctx.effects)
            except OutOfSpace:
                # The deletion was not logged, and nothing has changed, so go on. Reads are still right, because they
                # treat an expired key as missing.
                ctx.effects = []
                break
            self.expired_keys += due
            ctx.effects = []
        return ctx

    def tick(self, wall_ms: int) -> int:
        """`now` when the wall clock shows `wall_ms`. If the wall clock was set back, `now` follows the monotonic clock,
        so that expiry and idle times still elapse.
        """
        ms, at = self._began_at
        mono = self.monotonic()
        running = ms + int((mono - at) * 1000)
        if wall_ms >= running:
            self._began_at = wall_ms, mono
        else:  # it was set back
            wall_ms = running
        if wall_ms > self.now:
            self.now = wall_ms
        return self.now

    def time_ms(self) -> int:
        """The time that `tick` would return now. Needs no lock, and changes nothing."""
        ms, at = self._began_at
        running = ms + int((self.monotonic() - at) * 1000)
        return max(self.now, self.time_ns() // 1_000_000, running)

    def run_from(self, ms: int) -> None:
        """The store's time is `ms` now, and runs on from there; `now` follows with the next unit."""
        self._began_at = ms, self.monotonic()

    def follow_clock(self, ms: int, exactly: bool = False) -> None:
        """Another clock shows `ms`, and `now` follows it from here. `exactly`: even if it goes back."""
        if exactly or ms > self.now:
            self.now = ms
        self.run_from(ms)

    # --- one unit

    def land(self, effects: list[Effect], flush: bool = True) -> None:
        """Land one unit: as one frame, or without `flush` as a part of the next one.

        Raises OutOfSpace, StoreFull, UnitTooLarge, StoreDamaged, StorePoisoned: nothing has changed. NotStored,
        OutcomeUnknown: it broke off.
        """
        if len(effects) == 1:  # most units
            effect = effects[0]
            if effect[0] < VOLATILE:
                effect = (effect[0] | END, *effect[1:])
                self.land_packed(self.pack_one(effect), 1, (effect,), flush)
            else:
                self.land_packed(b"", 0, effects, flush)
            return
        packer = self.packer
        # Reset before use and not after it, because bytes that an interrupt left in the packer must never reach the
        # log.
        packer.reset()
        count = pack_unit(packer.pack, effects)
        self.land_packed(packer.bytes(), count, effects, flush)

    def only_due(self, effects: list[Effect]) -> bool:
        """Whether the effects only delete expired keys. To a reader these are missing anyway, so it does not fail if
        there is no room to log that.
        """
        databases, now = self.state.databases, self.now
        return all(
            effect[0] == DEL
            and all(databases[effect[1]].keys.expire_at(key) < now for key in effect[2])
            for effect in effects
        )

    def land_packed(
        self, body: bytes, count: int, effects: Sequence[Effect], flush: bool = True
    ) -> int:
        """Land whole units that are already packed, as `count` records. Returns the LSN of the last one. Raises as
        `land`.

        Volatile effects are in `effects` but not in `body`.
        """
        state, log = self.state, self.log
        if state.changes.cold is not None:
            self.ready(effects)
        size = len(body)
        if log.offset + size > log.room and count:  # inlined `reserve`, saves a call
            self.reserve(size, effects)
        observed = self.waiting.keys or self.watches.keys or self.listener
        appending = False
        try:
            for effect in effects:
                if observed:
                    self.observe(effect)
                APPLY[effect[0]](state, effect)
            appending = True
            return log.add(body, count, self.now, flush) if count else log.next_lsn - 1
        except BaseException as error:
            raise self.broken(error, appending)

    def follow(self, records: Sequence[Effect]) -> None:
        """Apply records that are already in the log; another process is its writer."""
        try:
            self.replay(records)
        except BaseException:  # an interrupt: it is unknown how far it came
            self.trouble = RELOAD
            raise

    def replay(self, records: Sequence[Effect]) -> None:
        """Apply records that are already in the log. After an exception it is unknown how far it came."""
        state, table = self.state, APPLY
        if self.observed:
            for record in records:
                self.observe(record)
                table[record[0]](state, record)
        else:
            for record in records:
                table[record[0]](state, record)

    # --- promises

    def promise(self, before: int) -> Promise:
        """The promise of a call that began when `before` was the log's next LSN: all that was applied until now."""
        after = self.log.next_lsn
        return self.log, after - 1, after != before

    def all_applied(self) -> Promise:
        """The promise of a call that wrote nothing."""
        return self.log, self.log.next_lsn - 1, False

    # --- the steps

    def ready(self, effects: Sequence[Effect]) -> None:
        """Read cold data that the effects change into memory. Raises StoreDamaged: nothing has changed."""
        try:
            prepare(self.state, effects)
        except CorruptBlock as error:
            raise StoreDamaged(str(error)) from error

    def reserve(self, nbytes: int, effects: Sequence[Effect]) -> None:
        """Make sure that the log has room, and the store too. Raises the error of `unreserved`: nothing has changed."""
        try:
            self.log.reserve(nbytes)
            self.heed_quota(nbytes, effects)
        except BaseException as error:
            raise self.unreserved(error)

    def heed_quota(self, nbytes: int, effects: Iterable[Effect]) -> None:
        """At the store's quota, refuse a unit that only adds data: nothing has changed. Raises StoreFull, and what
        `Log.begin_life` raises.
        """
        if self.log.full(nbytes) and only_adds(effects):
            self.log.begin_life()  # with it, the store begins to look for room
            raise StoreFull(self.over_quota())

    def try_again(self) -> None:
        """Check whether the log has room by now for what it last refused. `Log.refusal` then tells."""
        try:
            self.log.try_again()
        except Exception as error:
            self.unreserved(error)

    @property
    def observed(self) -> bool:
        """Whether `observe` has anyone to tell."""
        return bool(self.waiting.keys or self.watches.keys or self.listener)

    def observe(self, effect: Effect) -> None:
        """Before an effect is applied: break the transactions that watch its keys, and note the blocked readers to
        serve after the unit.
        """
        if self.watches.keys:
            self.watches.touch(touches(effect, self.state, self.watches.keys))
        if self.waiting.keys and effect[0] & OPCODE in SIGNALS:
            self.waiting.signal(signals(effect, self.state, self.waiting.keys))
        if self.listener is not None:
            self.listener(effect, self.state, self.now)

    # --- when it breaks

    def broken(self, error: BaseException, appending: bool, what: str = "") -> BaseException:
        """Memory may be ahead of the log. Returns the error to raise: what became of the call under way.

        appending   it broke inside `Log.add`: it is unknown whether the frame is there
        what        how far it came, if that is known
        """
        self.trouble = RELOAD
        text = what or (UNKNOWN if appending else NOTHING)
        if not isinstance(error, Exception):
            error.add_note(f"tidelog: {text}")
            return error
        told: Exception
        if isinstance(error, aof.LogPoisoned):
            told = OutcomeUnknown(str(error)) if appending else StorePoisoned(str(error))
        elif isinstance(error, (aof.NoSpace, aof.UnitTooLarge)) and not (appending or what):
            told = _refused(error)
        else:
            told = (OutcomeUnknown if appending else NotStored)(f"{text} ({error!r})")
        told.__cause__ = error
        return told

    def unreserved(self, error: BaseException) -> BaseException:
        """The error to raise when room could not be reserved: nothing of the call has changed anything."""
        if self.log.in_doubt:
            self.trouble = RELOAD  # it broke off between two segments
        if not isinstance(error, Exception):
            error.add_note(f"tidelog: {NOTHING}")
            return error
        told = _refused(error)
        if told is not error:
            told.__cause__ = error
        return told

    def rebuild(self) -> None:
        """Rebuild memory from the log after trouble. Raises why the store cannot be used, or OutOfSpace.

        It is unknown which watchers and waiters the lost units concerned. So watched transactions try again, and every
        waiter is decided again.
        """
        if self._end is not None:
            raise self._end()
        try:
            state = self._recover(self)
        except (aof.AofError, CorruptBlock, OSError) as error:
            text = "memory could not be rebuilt from the log"
            if isinstance(error, aof.NoSpace) or getattr(error, "errno", 0) in OUT_OF_SPACE:
                raise OutOfSpace(f"{text}; the next call tries again: {error}") from error
            raise StorePoisoned(f"{text}: {error}") from error
        self.renew(state)
        self.reloads += 1
        for told in self.rebuilt:
            told()
        self.watches.touch(list(self.watches.keys))
        self.waiting.signal(list(self.waiting.keys))

    def renew(self, state: State) -> None:
        """Use another state from now on; the log leads to it."""
        self.state = state
        self.ctx = Context(state, self.settings)
        self.trouble = None

    # --- the end

    def end(self, reason: Callable[[], TidelogError]) -> None:
        """Every later call raises `reason()`."""
        self._end = reason
        self.trouble = "ended"

    def check_open(self) -> None:
        """Raise StoreClosed, with the reason, if the store has ended."""
        if self._end is not None:
            raise self._end()

    @property
    def ended(self) -> bool:
        return self._end is not None


def pack_unit(pack: Callable[[Effect], object], effects: Sequence[Effect]) -> int:
    """Pack the logged effects of one unit, the last one marked. Returns how many there were."""
    logged = [effect for effect in effects if effect[0] < VOLATILE]
    if logged:
        last = logged[-1]
        logged[-1] = (last[0] | END, *last[1:])
        for effect in logged:
            pack(effect)
    return len(logged)


def _refused(error: Exception) -> Exception:
    match error:
        case aof.FollowerLog():
            return from_command(CommandError(READONLY))
        case aof.SuspendedLog():
            return from_command(CommandError(SUSPENDED))
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
