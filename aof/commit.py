"""Group commit: one fsync for all who wait, threads and event-loop clients alike.

Alone, a caller syncs itself: a thread's wake-up costs about as much as the fsync of a fast disk. In
company the syncer thread does, so that the next fsync starts at once. It wakes only the first of those
whose records are now on the disk; each, on waking, wakes the next (the chain), because waking sixteen
threads costs the syncer more than the fsync. A lost link would hang all behind it, so a waiter that is
interrupted still passes the chain on, and one that has its answer waits for the chain no longer than DOUBT_S.

Who leads: `_leading` is True while somebody, caller or syncer, runs rounds. It is only an economy:
rounds of two leaders exclude each other in the `sync` they call. An interrupt may leave it True with nobody
leading: so who has waited for long has the syncer run a round, which costs a useless one where an fsync is slow.

After a failed sync the failure is recorded first; then the chain runs, and every waiter finds it.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.threads import start

Callback = Callable[[LogPoisoned | None], object]

EVERY_S: Final = 1.0
PARK_S: Final = 2.0
DOUBT_S: Final = (
    1.0  # after which a waiter doubts that somebody leads, and that the chain is coming
)
_PARKED_POLL_S: Final = 0.02

_logger = logging.getLogger("tidelog")


class _Waiter:
    """One thread's place in a round, used once. `lock` is held; whoever releases it lets the thread go on."""

    __slots__ = ("lock", "lsn", "next", "go", "enlisted")

    def __init__(self, lsn: int) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.lsn = lsn
        self.next: _Waiter | None = None
        self.go = False  # set before `lock` is released: the chain has come to this waiter
        self.enlisted = False  # in a queue or a chain, so others may hang behind it


def bare(error: BaseException) -> BaseException:
    """The same error to keep: without its traceback, whose frames would keep alive whoever met it."""
    try:
        found = copy.copy(error)
    except Exception:  # its class is not made from what it holds
        found = RuntimeError(repr(error))
    return found


def _pass_on(waiter: _Waiter | None) -> None:
    """Let a waiter go on. Twice is as good as once, so an interrupted link can simply be passed on again."""
    if waiter is not None:
        waiter.go = True
        if waiter.lock.locked():
            try:
                waiter.lock.release()
            except RuntimeError:  # by another thread, since the line above
                pass


class GroupCommit:
    """Rounds of `sync()`, which puts everything written so far on the disk and returns its last LSN.

    `sync` may be called by any thread, excludes itself, and raises if nothing is certain any more.
    """

    def __init__(self, sync: Callable[[], int], synced: int) -> None:
        self.synced = synced
        self.failure: BaseException | None = None
        self._sync = sync
        self._gate = threading.Lock()
        self._leading = False
        self._waiters: list[_Waiter] = []
        self._subscribers: list[tuple[int, Callback]] = []
        self._requested = False
        self._stopping = False
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread: threading.Thread | None = None

    def wait(self, lsn: int) -> None:
        """Return when all records through `lsn` are on the disk. Raises LogPoisoned: outcome unknown."""
        if self.synced >= lsn:
            return
        lead = False
        waiter: _Waiter | None = None
        try:
            with self._gate:
                if self.failure is not None or self._stopping:
                    pass
                elif not self._leading:
                    lead = self._leading = True
                else:
                    waiter = _Waiter(lsn)
                    self._waiters.append(waiter)
                    waiter.enlisted = True
            if lead:
                self._round()
            elif waiter is not None:
                while not waiter.lock.acquire(timeout=DOUBT_S):
                    with self._gate:
                        if waiter not in self._waiters:
                            break  # in a chain, so it has its answer: a link of that was lost
                        self._signal()
                _pass_on(waiter.next)
        except BaseException:
            if waiter is not None:
                self._resign(waiter)
            raise
        finally:
            if lead:
                self._hand_over()
        if self.synced < lsn:
            raise self.error()

    def subscribe(self, lsn: int, callback: Callback) -> None:
        """Call `callback(None)` once all through `lsn` is on the disk, `callback(error)` if that fails.

        From the syncer thread, or at once if it is decided already. Subscriptions with equal callbacks
        that one round serves are one call: an event loop subscribes one bound method for all its
        clients, and that costs one `call_soon_threadsafe`.
        """
        lead = False
        with self._gate:
            decided = self.synced >= lsn or self.failure is not None or self._stopping
            if not decided:
                self._subscribers.append((lsn, callback))
                lead = not self._lead_elsewhere()
                self._leading = True
        if decided:
            callback(None if self.synced >= lsn else self.error())
        elif lead:
            try:
                self._round()
            finally:
                self._hand_over()

    def lead(self) -> bool:
        """Run one round here and now, if nobody is at it. Whether that was done; `failure` tells how it ended."""
        with self._gate:
            if self._leading or self.failure is not None or self._stopping:
                return False
            self._leading = True
        try:
            self._round()
        finally:
            self._hand_over()
        return True

    def request(self) -> None:
        """Have the syncer thread run a round soon; do not wait. Without one, whoever waits next does it."""
        with self._gate:
            if self.failure is None and not self._stopping:
                self._requested = True
                self._lead_elsewhere()

    def fail(self, failure: BaseException) -> None:
        """From here on nothing is acknowledged; everyone who waits is told."""
        if self.failure is None:
            self.failure = bare(failure)
        self._release()

    def error(self) -> LogPoisoned:
        if self.failure is None:
            return LogPoisoned("the log was closed before this was on the disk; outcome unknown")
        error = LogPoisoned(
            f"outcome unknown: {str(self.failure) or repr(self.failure)}. Read to find out; if that is refused "
            "as well, close the store and open it again to see what the disk has"
        )
        error.__cause__ = self.failure
        return error

    def stop(self) -> None:
        """End the thread; a last round may be in flight and is waited for. Waiters get an error."""
        with self._gate:
            self._stopping = True
            thread = self._thread
            self._signal()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._release()

    def retire(self, failure: BaseException) -> None:
        """As `stop`, for one who holds a lock that the thread may be waiting for: it is not waited for."""
        self.failure = self.failure or bare(failure)
        with self._gate:
            self._stopping = True
            self._signal()
        self._release()

    def _resign(self, waiter: _Waiter) -> None:
        """Do the duty of a waiter whose thread was interrupted: leave the queue, or pass the chain on."""
        with self._gate:
            if waiter in self._waiters:
                self._waiters.remove(waiter)  # in no chain yet: nobody is behind it
                return
            if not waiter.enlisted:
                return
        until = time.monotonic() + DOUBT_S
        while not waiter.go and time.monotonic() < until:  # the chain is running towards it
            time.sleep(0.0001)
        _pass_on(waiter.next)

    def _lead_elsewhere(self) -> bool:
        """[gate] See that somebody runs a round, and not the calling thread. False if nobody can."""
        if not self._leading:
            self._leading = self._signal()
        return self._leading

    def _signal(self) -> bool:
        """[gate] Wake the syncer thread, starting it the first time. Twice is as good as once.

        False if the system gives no thread: then callers sync for themselves.
        """
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name="tidelog-sync", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread  # an interrupt before this costs a second thread, and no answer
        if self._wake.locked():
            self._wake.release()
        return True

    def _hand_over(self) -> None:
        """A caller stops leading: to the syncer if somebody waits, else to nobody."""
        try:
            while not self._resign_lead():
                self._round()
        except BaseException:
            while not self._resign_lead():
                self._round()
            raise

    def _resign_lead(self) -> bool:
        """False if somebody waits and there is no syncer to go on."""
        with self._gate:
            if self._waiters or self._subscribers or self._requested:
                return self._signal()
            self._leading = False
            return True

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            while True:
                if not self._stopping:
                    self._round()
                with self._gate:
                    if self._stopping:
                        self._signal()  # another one, of a start that was interrupted
                        return
                    if not (self._waiters or self._subscribers or self._requested):
                        self._leading = False
                        break

    def _round(self) -> None:
        self._requested = False
        if self.failure is None:
            try:
                self.synced = max(self.synced, self._sync())
            except Exception as failure:
                # At once, before anything that an interrupt could come between: a second fsync
                # would succeed and lie, so it must not be forgotten that this one failed.
                self.failure = failure
                self.failure = bare(failure)
        if self._waiters or self._subscribers:
            self._release()

    def _release(self) -> None:
        """Let go all who have their answer: a link from each to the next, then the first."""
        with self._gate:
            everyone = self.failure is not None or self._stopping
            synced = self.synced
            chain = [w for w in self._waiters if everyone or w.lsn <= synced]
            served = [s for s in self._subscribers if everyone or s[0] <= synced]
            for waiter, behind in zip(chain, chain[1:]):
                waiter.next = behind
            if chain:
                self._waiters = [w for w in self._waiters if not (everyone or w.lsn <= synced)]
                _pass_on(chain[0])
            if served:
                self._subscribers = [s for s in self._subscribers if s not in served]
        outcomes: dict[tuple[Callback, bool], None] = {}
        for lsn, callback in served:
            outcomes[callback, lsn <= synced] = None
        for callback, good in outcomes:
            try:
                callback(None if good else self.error())
            except Exception:  # a client's mistake must not stop the syncer
                _logger.exception("a durability callback failed")


class EverySecond:
    """The `everysec` policy: a thread that asks for a sync when something is one second old.

    `oldest()` is the `time.monotonic()` of the oldest record not yet on the disk, or None. If that
    gets two seconds old, because an fsync is slow, `park(True)` has replies wait for the disk.

    Raises NoThread.
    """

    def __init__(
        self,
        commit: GroupCommit,
        oldest: Callable[[], float | None],
        park: Callable[[bool], object],
    ) -> None:
        self._commit = commit
        self._oldest = oldest
        self._park = park
        # No Event: an interrupt can leave its lock taken, and `stop` would hang.
        self._going = threading.Lock()
        self._going.acquire()
        self._thread = threading.Thread(target=self._run, name="tidelog-everysec", daemon=True)
        start(self._thread, "sync the log every second")

    def stop(self) -> None:
        if self._going.locked():
            try:
                self._going.release()
            except RuntimeError:  # by another thread, since the line above
                pass
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._park(False)

    def _run(self) -> None:
        pause = EVERY_S
        while not self._going.acquire(timeout=pause):
            pause = self.tick(time.monotonic())

    def tick(self, now: float) -> float:
        """Do what is due at `now`. Return the seconds until the next look."""
        oldest = self._oldest()
        if oldest is None:
            self._park(False)
            return EVERY_S
        age = now - oldest
        self._park(age >= PARK_S)
        if age < EVERY_S:
            return EVERY_S - age
        self._commit.request()
        return PARK_S - age if age < PARK_S else _PARKED_POLL_S
