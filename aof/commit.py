"""Group commit: one fsync serves all waiters, threads and event-loop clients alike.

A lone caller syncs in its own thread, because waking another thread costs about as much as the fsync of a
fast disk. With several callers the syncer thread does it, so that the next fsync starts at once.

After a round the syncer wakes only the first waiter whose records are now on the disk, and each waiter wakes
the next one (the chain). Waking sixteen threads would cost the syncer more than the fsync. A lost link would
hang every waiter behind it, so an interrupted waiter still passes the chain on, and a waiter that has its
answer waits at most DOUBT_S for the chain.

`_leading` is True while a caller or the syncer runs rounds. It only saves work: the `sync` of two leaders
excludes itself. An interrupt may leave `_leading` True with no leader, so a waiter that has waited DOUBT_S
asks the syncer for a round. Where fsyncs are slow, that round is sometimes useless.

After a failed sync the failure is recorded first. Then the chain runs, and every waiter sees the failure.
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
# After this time a waiter suspects that no thread syncs, or that an interrupted thread did not wake it.
DOUBT_S: Final = 1.0
_PARKED_POLL_S: Final = 0.02

_logger = logging.getLogger("tidelog")


class _Waiter:
    """One thread that waits for a round; used once. The thread blocks on `lock` until it is released."""

    __slots__ = ("lock", "lsn", "next", "go", "enlisted")

    def __init__(self, lsn: int) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.lsn = lsn
        self.next: _Waiter | None = None
        self.go = False  # True once this waiter is woken; set before `lock` is released
        self.enlisted = False  # in the queue, or in a chain where each waiter wakes the next


def bare(error: BaseException) -> BaseException:
    """A copy of the error without its traceback, whose frames would keep the caller's objects alive."""
    try:
        found = copy.copy(error)
    except Exception:  # its class cannot be built from its `args`
        found = RuntimeError(repr(error))
    return found


def _pass_on(waiter: _Waiter | None) -> None:
    """Let a waiter go on. Idempotent, so an interrupted link can be passed on again."""
    if waiter is not None:
        waiter.go = True
        if waiter.lock.locked():
            try:
                waiter.lock.release()
            except RuntimeError:  # another thread released the lock after the check of `locked()`
                pass


class GroupCommit:
    """Runs rounds of `sync()`, which makes everything written so far durable and returns its last LSN.

    Any thread may call `sync`. It excludes itself, and raises once durability can no longer be guaranteed.
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
        """Return when all records through `lsn` are on the disk. Raises LogPoisoned if the outcome is unknown."""
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
                            # the sync for this waiter is over, but the waiter before it in the chain did not wake it
                            break
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
        """Call `callback(None)` once all records through `lsn` are on the disk, `callback(LogPoisoned)` if that fails.

        If the outcome is already known, the callback runs at once; otherwise it runs in the thread that leads
        the round. Equal callbacks that one round serves are called once: an event loop subscribes one bound
        method for all its clients, and pays for one `call_soon_threadsafe`.
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
        """Run one round in the calling thread unless there is a leader. Returns whether it ran; `failure` says if
        it failed."""
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
        """Ask the syncer thread for a round and return at once. If no thread can start, the next waiter runs it."""
        with self._gate:
            if self.failure is None and not self._stopping:
                self._requested = True
                self._lead_elsewhere()

    def fail(self, failure: BaseException) -> None:
        """Record the failure and release all waiters with an error. Nothing is acknowledged from now on."""
        if self.failure is None:
            self.failure = bare(failure)
        self._release()

    def error(self) -> LogPoisoned:
        if self.failure is None:
            return LogPoisoned(
                "outcome unknown: the log was closed before the write was confirmed to be on the disk. Open the store "
                "again and read the data to find out"
            )
        error = LogPoisoned(
            f"outcome unknown: {str(self.failure) or repr(self.failure)}. Read the data to find out; if the read "
            "fails too, close the store and open it again"
        )
        error.__cause__ = self.failure
        return error

    def stop(self) -> None:
        """Stop the thread after the round in flight, if any, and wait for it. Remaining waiters get an error."""
        with self._gate:
            self._stopping = True
            thread = self._thread
            self._signal()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._release()

    def retire(self, failure: BaseException) -> None:
        """As `stop` with a failure, but without joining the thread, which may wait for a lock that the caller holds."""
        self.failure = self.failure or bare(failure)
        with self._gate:
            self._stopping = True
            self._signal()
        self._release()

    def _resign(self, waiter: _Waiter) -> None:
        """Clean up for a waiter whose thread was interrupted: leave the queue, or pass the chain on."""
        with self._gate:
            if waiter in self._waiters:
                self._waiters.remove(waiter)  # in no chain yet: no waiter is behind it
                return
            if not waiter.enlisted:
                return
        until = time.monotonic() + DOUBT_S
        while not waiter.go and time.monotonic() < until:  # the chain is on its way
            time.sleep(0.0001)
        _pass_on(waiter.next)

    def _lead_elsewhere(self) -> bool:
        """[gate] Make sure that another thread runs a round. False if none can: the caller must."""
        if not self._leading:
            self._leading = self._signal()
        return self._leading

    def _signal(self) -> bool:
        """[gate] Wake the syncer thread; the first call starts it. Idempotent.

        False if the system gives no thread: callers then sync in their own threads.
        """
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name="tidelog-sync", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            # if an interrupt comes before this line, a second thread starts; that is harmless
            self._thread = thread
        if self._wake.locked():
            self._wake.release()
        return True

    def _hand_over(self) -> None:
        """Stop leading. If there is more to do, the syncer leads from here; without one, this thread goes on."""
        try:
            while not self._resign_lead():
                self._round()
        except BaseException:
            while not self._resign_lead():
                self._round()
            raise

    def _resign_lead(self) -> bool:
        """Pass the lead to the syncer if there is work, else give it up. False if there is work and no syncer."""
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
                        # if an interrupted start left a second syncer, wake it, so that it stops too
                        self._signal()
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
                # Set `failure` before anything else. If an interrupt came before that, a later fsync would report
                # success for lost data.
                self.failure = failure
                self.failure = bare(failure)
        if self._waiters or self._subscribers:
            self._release()

    def _release(self) -> None:
        """Release everyone whose outcome is known: link the waiters, wake the first, call the callbacks."""
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
            except Exception:  # a faulty callback must not stop the syncer
                _logger.exception("a durability callback failed")


class EverySecond:
    """The `everysec` policy: a thread that requests a sync once the oldest unsynced record is one second old.

    `oldest()` returns the `time.monotonic()` of the oldest record not yet on the disk, or None. When that
    record is two seconds old, because an fsync is slow, `park(True)` makes replies wait for the disk.

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
        # A lock and not an Event: an interrupt can leave the lock inside an Event taken, and then `stop` would hang.
        self._going = threading.Lock()
        self._going.acquire()
        self._thread = threading.Thread(target=self._run, name="tidelog-everysec", daemon=True)
        start(self._thread, "sync the log every second")

    def stop(self) -> None:
        if self._going.locked():
            try:
                self._going.release()
            except RuntimeError:  # another thread released the lock after the check of `locked()`
                pass
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._park(False)

    def _run(self) -> None:
        pause = EVERY_S
        while not self._going.acquire(timeout=pause):
            pause = self.tick(time.monotonic())

    def tick(self, now: float) -> float:
        """Do what is due at `now` (`time.monotonic()`). Returns the seconds until the next check."""
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
