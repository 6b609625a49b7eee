"""Checkpoint: write the changes of a state into its file of rows while commands keep running.

    freeze, position      [lock] by the caller: freeze the state at P, and note P
    take_some             [lock] copy a slice of the changes; repeated
    rows                  pack the copied slice and put its rows into one LMDB transaction
    sync                  fsync the log through P, so a checkpoint is never ahead of the log
    the row META, commit
    extend                extend the file to its last page
    renew, settle         [lock] by the caller, in one step

Nothing is visible before the commit. If anything fails before it, the file is unchanged and the caller thaws the state.

This thread shares the interpreter with threads that answer commands. It works in turns of TURN_S, sleeps after each
turn, and holds the lock for TAKE_S at a time.

LMDB calls release the GIL. A thread that never sleeps then takes it and keeps it for the switch interval, 5 ms. Next to
such a thread, turns are LONG_TURN_S long, half the interval. If that thread was recently seen at the lock, this thread
holds the lock for the whole turn: the other thread then blocks on the lock instead of taking the GIL. If this thread
used the processor for less than half of such a turn (slow disk, or a third thread), it runs the next turns without the
lock, because other threads that want it would wait for nothing. Their number doubles if this happens again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from tidelog.aof.errors import AofError
from tidelog.engine.cold import ColdStore
from tidelog.engine.rowkeys import META, Operation
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.rows.environment import ColdRows, Environment, Writing
from tidelog.snapshot.rows.meta import Meta

TURN_S: Final = 0.0005  # longest turn: other threads wait at most this long for the interpreter
# The longest turn if some other thread never sleeps. A rest that takes LONG_REST_S or more shows that there is one.
LONG_TURN_S: Final = 0.0025
REST_S: Final = 0.0001
LONG_REST_S: Final = 0.004
# how long this thread aims to hold the lock at a time; other threads wait about this long for it
TAKE_S: Final = 0.00025
LOOK_ROWS: Final = 4  # rows between two clock reads
TAKE_MIN: Final = 1  # streams and keys copied per slice
TAKE_MAX: Final = 512
DELETE_ROWS: Final = 32
DELETE_ROWS_HELD: Final = 2  # with the lock held
# After a check found that another thread holds the lock, this thread holds it for this many turns.
HELD_TURNS: Final = 8
# greatest number of turns in a row without the lock; see the module docstring
FREE_TURNS_MAX: Final = 64
LARGE_BYTES: Final = 4096  # a row this large takes as long as several

Progress = Callable[[int], object]
"""Called now and then with how many rows were put or deleted so far."""


class Cancelled(Exception):
    """The caller cancelled the checkpoint. Nothing was written."""


class Frozen(Protocol):
    """The part of `engine.freeze.Frozen` that a checkpoint needs."""

    def take_some(self, limit: int) -> int: ...

    def rows(self, read: ColdStore) -> Any: ...


def write_checkpoint(
    environment: Environment,
    rows: ColdRows,
    frozen: Frozen,
    meta: Meta,
    *,
    lock: threading.Lock | None,
    sync: Callable[[], object],
    cancelled: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> None:
    """Write a frozen state into its file and commit. On return it is durable; `rows` still shows the previous commit.

    rows        the store's rows. Only their commit number is read, under the lock
    meta        the content of the row META; its position is where `frozen` was frozen
    lock        the store's lock, not held by the caller. Held for one turn at most. None: no other threads, no rests
    sync        returns once the log is fsynced through the position, or raises
    cancelled   called between turns; true cancels the checkpoint
    progress    called between turns with the number of rows put or deleted so far

    Runs entirely in the calling thread. Raises CheckpointError, CorruptBlock (a row that must be changed cannot be
    read), Cancelled, and whatever `sync` raises. If it raises, nothing was written.
    """
    with lock or contextlib.nullcontext():
        seen = rows.number()
    if environment.committed() != seen:
        # The state was loaded from a different commit, so its changes do not fit the rows that the file has now.
        raise CheckpointError(
            f"{environment.path} was replaced by a newer checkpoint after this store read it; close the store and "
            "open it again"
        )
    read = ColdRows(environment)
    try:
        writing = environment.write()
        try:
            _Filling(writing, read, lock, cancelled, progress).fill(frozen)
            sync()
            if cancelled():
                raise Cancelled
            writing.put(META, meta._replace(sums=writing.sums()).pack())
            writing.commit()
        finally:
            writing.abort()
    finally:
        read.close()
    # If these steps fail, no harm is done: a file that is too short is valid, and the next open extends it.
    with contextlib.suppress(OSError, AofError):
        environment.extend()
        environment.remember()


class _Filling:
    """Writes one frozen state into one write transaction."""

    def __init__(
        self,
        writing: Writing,
        read: ColdRows,
        lock: threading.Lock | None,
        cancelled: Callable[[], bool],
        progress: Progress | None,
    ) -> None:
        self._writing = writing
        self._read = read
        self._alone = lock is None
        self._lock = lock or threading.Lock()
        self._cancelled = cancelled
        self._progress = progress
        self._done = 0
        self._look = LOOK_ROWS  # rows until the next clock read
        self._end = time.perf_counter() + TURN_S  # when the turn ends
        self._holds = False  # whether this thread holds the lock
        # when this thread last took the lock: the wall clock, and the processor time of this thread
        self._held_from = self._held_cpu = 0.0
        # how many of the next turns hold the lock, because a check found that another thread held it
        self._held_turns = 0
        # how many of the next turns do not take the lock, even if other threads use it
        self._free_turns = 0
        # the next value of `_free_turns`, set after a turn that holds the lock but mostly waits
        self._free_next = 1

    def fill(self, frozen: Frozen) -> None:
        try:
            self._fill(frozen)
        finally:
            if self._holds:
                self._lock.release()

    def _fill(self, frozen: Frozen) -> None:
        limit = TAKE_MIN
        left = 1
        clock = time.perf_counter
        while left:
            with contextlib.nullcontext() if self._holds else self._lock:
                began = clock()
                left = frozen.take_some(limit)
                took = clock() - began
            if took > TAKE_S:
                limit = max(limit // 2, TAKE_MIN)
            elif took < TAKE_S / 2:
                limit = min(limit * 2, TAKE_MAX)
            self._yield()
            for operation in frozen.rows(self._read):
                self._do(operation)

    def _do(self, operation: Operation) -> None:
        if operation[0] == "rest":
            self._yield()
            return
        writing = self._writing
        if operation[0] == "put":
            writing.put(operation[1], operation[2])
        elif operation[0] == "delete":
            writing.delete(operation[1])
        else:
            while True:
                limit = DELETE_ROWS_HELD if self._holds else DELETE_ROWS
                if operation[0] == "delete_range":
                    more = writing.delete_range(operation[1], operation[2], limit)
                else:
                    more = writing.delete_some(operation[1], limit)
                if not more:
                    break
                self._done += limit
                self._yield()
        self._done += 1
        self._look -= 1
        if self._look <= 0 or self._holds or len(operation[-1]) >= LARGE_BYTES:
            self._look = LOOK_ROWS
            self._yield()

    def _yield(self) -> None:
        if time.perf_counter() >= self._end:
            self._rest()

    def _rest(self) -> None:
        if self._holds:
            self._let_go()
        if self._progress is not None:
            self._progress(self._done)
        if self._cancelled():
            raise Cancelled
        began = time.perf_counter()
        if not self._alone:
            time.sleep(REST_S)
        now = time.perf_counter()
        if now - began < LONG_REST_S:
            self._end = now + TURN_S
            return
        if self._free_turns:
            self._free_turns -= 1
        elif self._is_wanted():
            self._lock.acquire()
            self._holds = True
            self._held_from, self._held_cpu = time.perf_counter(), time.thread_time()
        self._end = time.perf_counter() + LONG_TURN_S

    def _is_wanted(self) -> bool:
        """Whether another thread holds the lock now, or held it in one of the last HELD_TURNS checks."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self._held_turns = max(self._held_turns - 1, 0)
        else:
            self._held_turns = HELD_TURNS
        return self._held_turns > 0

    def _let_go(self) -> None:
        """Release the lock. If this thread mostly waited while it held it, skip the lock for some turns."""
        self._lock.release()
        self._holds = False
        worked = time.thread_time() - self._held_cpu
        if worked >= (time.perf_counter() - self._held_from) / 2:
            self._free_next = 1
        else:
            self._held_turns = 0
            self._free_turns = self._free_next
            self._free_next = min(2 * self._free_next, FREE_TURNS_MAX)
