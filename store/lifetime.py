"""Lifetime: how a store ends: by `close`, with its process, with its last reference, or in a forked child.

In a forked child the store is dead: its descriptors are closed (the parent keeps the lock), and every call raises. A
process that exits without close has everything acknowledged on disk, and its exit is not delayed. This module changes
no signal handlers, collector settings or other settings of the process.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tidelog.aof import errors as aof
from tidelog.store.commit.attached import Draining
from tidelog.store.commit.callers import ThreadCaller
from tidelog.store.commit.core import Core
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import StoreClosed, StoreDamaged, StorePoisoned

# how long closing a store waits for the jobs that other threads and tasks hold
DRAIN_SECONDS = 30.0

_open_cores: weakref.WeakSet[Core] = weakref.WeakSet()


class Keeper:
    """The resources of a store: its log, its checkpoint, and the lock file."""

    def __init__(self, log: Any, lock: Any, checkpoints: Any = None) -> None:
        self.log = log
        self.lock = lock
        self.checkpoints = checkpoints
        self.core: Callable[[], Core | None] = lambda: None
        self.finalizer: weakref.finalize[[], Core] | None = None  # see `keep`
        self._closing = threading.Lock()
        self._released = False

    def close(self) -> None:
        """Write, sync, release. Raises LogPoisoned after releasing. A second caller waits for the first."""
        with self._closing:
            if self._released:
                return
            try:
                self.log.close()
            finally:
                if self.checkpoints is not None:
                    core = self.core()
                    if core is None or core.ended:
                        self.checkpoints.release()
                    else:
                        # The process is exiting, but its daemon threads may still read rows, so do not unmap the rows.
                        self.checkpoints.give_up()
                if self.lock is not None:
                    # Unlock explicitly. Closing the descriptor might not unlock, because a child that was just forked
                    # may hold it for a moment longer.
                    self.lock.unlock()
                    self.lock.close()
                self._released = True

    def quietly(self) -> None:
        """`close` at the end of the process or with the last reference; there is no caller to raise to."""
        if threading.current_thread().name.startswith("tidelog-"):
            # The garbage collector called this in a thread of a log. That log may be the one to close, and its thread
            # cannot wait for itself.
            threading.Thread(target=self.quietly, name="closing tidelog").start()
            return
        try:
            self.close()
        except (aof.AofError, OSError):
            # harmless: the failed close confirmed no write, and recovery finds all that was written
            pass

    def let_go(self) -> None:
        """Stop releasing the resources with the process or the core's last reference."""
        if self.finalizer is not None:
            self.finalizer.detach()

    def abandon(self) -> None:
        """In a forked child: close the descriptors and write nothing."""
        self.log.abandon()
        if self.lock is not None:
            self.lock.close()


def keep(core: Core, keeper: Keeper) -> None:
    """Release a store's resources when its process ends or its last reference goes."""
    core.keeper = keeper
    keeper.core = weakref.ref(core)
    keeper.finalizer = weakref.finalize(core, keeper.quietly)
    _open_cores.add(core)


def _keeper(core: Core) -> Keeper:
    assert isinstance(core.keeper, Keeper)
    return core.keeper


def close(core: Core, drain: Duration | None = DRAIN_SECONDS) -> int:
    """Wait for the jobs that other threads and tasks hold, then end the store. Returns how many were left.

    Raises DataError (`drain`), and what `end` raises. An interrupt ends the wait; the store is closed anyway.
    """
    limit = patience("drain", drain)
    if core.checkpoints is not None and core.checkpoints.is_this_thread():
        # The garbage collector ran a __del__ in the checkpoint thread, and this thread cannot wait for itself.
        threading.Thread(target=close, args=(core, drain), name="closing tidelog").start()
        return 0
    left = 0
    try:
        if core.queues is not None:
            caller = ThreadCaller()
            waits = core.queues.drain(limit, caller, threading.get_ident())
            if waits is not None:
                left = _drain(waits, caller)
    finally:
        end(core)
    return left


def _drain(drain: Draining, caller: ThreadCaller) -> int:
    try:
        drain.begin()
        while (pause := drain.look()) is not None:
            caller.sleep(pause)
    finally:
        left = drain.end()
    return left


def end(core: Core) -> None:
    """End a store at once. After releasing everything it raises StorePoisoned if records were never confirmed, and
    StoreDamaged if the checkpoint was found damaged."""
    damage = None
    if core.queues is not None and not core.ended:
        core.queues.close()
    if core.checkpoints is not None and not core.ended:
        core.checkpoints.finish()
        damage = core.checkpoints.damage
    with core.lock:
        if core.ended:
            if core.forked:
                raise _forked()
        else:
            core.end(_closed)
    try:
        keeper = _keeper(core)
        keeper.close()
        # Do this last. If an interrupt comes before it, the next close or the end of the process continues the close.
        keeper.let_go()
        _open_cores.discard(core)
    except aof.AofError as error:
        raise StorePoisoned(str(error)) from error
    if damage is not None:
        raise StoreDamaged(
            f"the store is closed, and everything written since it was opened is in its log, but its checkpoint is "
            f"damaged: {damage}"
        ) from damage


def _closed() -> StoreClosed:
    return StoreClosed("the store was closed; open it again")


def _forked() -> StoreClosed:
    return StoreClosed(
        "this store was opened before a fork and belongs to the parent process; open it again in this process"
    )


class _NoLock:
    """Replaces a lock that another thread of the parent may have held at the fork."""

    def __enter__(self) -> None:
        raise _forked()

    def __exit__(self, *error: object) -> None: ...


def _after_fork_in_child() -> None:
    for core in list(_open_cores):
        _open_cores.discard(core)
        keeper = _keeper(core)
        keeper.let_go()
        core.forked = True
        core.lock = _NoLock()
        core.end(_forked)
        keeper.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
