"""Checkpoint: how what changed in a state gets into its file of rows, while commands go on.

    freeze, position      [lock] by the caller: the state at P, and P
    take_some             [lock] a slice of what changed is copied, over and over
    rows                  what was copied is packed and put into one LMDB transaction
    sync                  the log is on the disk through P: what a checkpoint holds is never ahead of the log
    the row META, commit
    extend                the file reaches to its last page
    renew, settle         [lock] by the caller, in one step

Nobody sees anything before the commit. Whatever fails before it leaves the file as it was, and the caller thaws.

This runs beside threads that answer commands, and they share the interpreter: work is done in turns of TURN_S, with
a sleep after each, and the lock is held for TAKE_S at a time.

A thread that never sleeps keeps the interpreter for its switch interval, 5 ms, whenever it gets it, and it gets it
whenever LMDB is called, for that gives the interpreter up. Beside one a turn is LONG_TURN_S, half of the interval, and
the lock is held throughout if that thread was seen at it lately: it waits for the lock then, and takes nothing else
meanwhile. If this one slept most of such a turn, as on a slow disk or beside yet another thread, it does without for a
while, the longer the more often that happens, since whoever else wants the lock has to wait.
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
from tidelog.snapshot.environment import ColdRows, Environment, Writing
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.meta import Meta

TURN_S: Final = 0.0005  # how long others may have to wait for the interpreter
# The same beside a thread that never sleeps, which shows in a rest that took LONG_REST_S or more.
LONG_TURN_S: Final = 0.0025
REST_S: Final = 0.0001
LONG_REST_S: Final = 0.004
TAKE_S: Final = 0.00025  # how long others may have to wait for the lock
LOOK_ROWS: Final = 4  # between two looks at the clock
TAKE_MIN: Final = 1  # streams and keys that are copied in one go
TAKE_MAX: Final = 512
DELETE_ROWS: Final = 32
DELETE_ROWS_HELD: Final = 2  # with the lock held
HELD_TURNS: Final = 8  # with the lock, after somebody was found at it
FREE_TURNS_MAX: Final = 64  # without the lock, after turns that held it for nothing
LARGE_BYTES: Final = 4096  # a row that takes as long as several

Progress = Callable[[int], object]
"""Called now and then with how many rows were put or deleted so far."""


class Cancelled(Exception):
    """The checkpoint was given up because its caller wanted that. Nothing was written."""


class Frozen(Protocol):
    """What this needs of an `engine.freeze.Frozen`."""

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
    """Write a frozen state into its file and commit. On return it is on the disk, and `rows` still show the old one.

    rows        what the store reads. Looked at for which commit it shows, under the lock, and not touched
    meta        what to say of it; its position is where `frozen` was frozen
    lock        the store's, which is free. Held for a turn at most. None: nobody is beside, and nobody needs turns
    sync        returns when the log is on the disk through the position, or raises
    cancelled   asked between turns; true: give it up

    Begins and ends in the calling thread. Raises CheckpointError, CorruptBlock (a row that has to be changed cannot be
    read), Cancelled, and what `sync` raises: then nothing was written.
    """
    with lock or contextlib.nullcontext():
        seen = rows.number()
    if environment.committed() != seen:
        # Rows of another moment than the state rests on: what is packed now would not fit them.
        raise CheckpointError(
            f"{environment.path} holds a newer checkpoint than this store reads; close the store and open it again"
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
    # A short file is healthy, and extended when it is opened.
    with contextlib.suppress(OSError, AofError):
        environment.extend()
        environment.remember()


class _Filling:
    """One pass of a frozen state into a write transaction."""

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
        self._look = LOOK_ROWS  # rows until the next look at the clock
        self._end = time.perf_counter() + TURN_S  # of the turn
        self._holds = False  # the lock
        self._held_from = self._held_cpu = 0.0  # when that began, by the wall and by this thread
        self._held_turns = 0  # to come, since somebody was found at the lock
        self._free_turns = 0  # to come, whatever the others do
        self._free_next = 1  # after the next turn that holds the lock for nothing

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
        """Whether somebody has the lock now, or had it when one of the last turns began."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self._held_turns = max(self._held_turns - 1, 0)
        else:
            self._held_turns = HELD_TURNS
        return self._held_turns > 0

    def _let_go(self) -> None:
        """Give the lock back. If it was held for nothing, do without it for some turns."""
        self._lock.release()
        self._holds = False
        worked = time.thread_time() - self._held_cpu
        if worked >= (time.perf_counter() - self._held_from) / 2:
            self._free_next = 1
        else:
            self._held_turns = 0
            self._free_turns = self._free_next
            self._free_next = min(2 * self._free_next, FREE_TURNS_MAX)
