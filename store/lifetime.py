"""Lifetime: how a store ends: by `close`, with its process, with the last reference, or in a forked child.

After a fork the child's store is dead: its descriptors are closed (the lock stays with the parent) and every call
says to open again. A process that never calls close has everything acknowledged on the disk when it exits, and
is not kept from exiting. Nothing here touches signals, the collector or other settings of the process.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.aof import errors as aof
from tidelog.store.core import Core
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import StoreClosed, StoreDamaged, StorePoisoned
from tidelog.store.waiters import ThreadCaller

if TYPE_CHECKING:
    from tidelog.store.queue.drain import Drain

DRAIN_SECONDS = 30.0  # how long closing a store waits for jobs in the hands of others

_open_cores: weakref.WeakSet[Core] = weakref.WeakSet()


class Keeper:
    """What has to be released with a store: its log, its checkpoint, and the file that holds the lock."""

    def __init__(self, log: Any, lock: Any, checkpoints: Any = None) -> None:
        self.log = log
        self.lock = lock
        self.checkpoints = checkpoints
        self.core: Callable[[], Core | None] = lambda: None
        self._closing = threading.Lock()
        self._released = False

    def close(self) -> None:
        """Write, sync, release. Raises LogPoisoned after releasing. Whoever comes second waits for the first."""
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
                    else:  # the process ends, and its daemon threads may be reading rows
                        self.checkpoints.give_up()
                if self.lock is not None:
                    # Said, since a child that was just forked may hold the descriptor for a moment longer.
                    self.lock.unlock()
                    self.lock.close()
                self._released = True

    def quietly(self) -> None:
        """`close` at the end of the process or with the last reference, where nobody can be told."""
        if threading.current_thread().name.startswith("tidelog-"):
            # The collector came by in a thread of a log, which may be this log's: it cannot wait for itself.
            threading.Thread(target=self.quietly, name="closing tidelog").start()
            return
        try:
            self.close()
        except (aof.AofError, OSError):
            pass  # recovery finds what holds; nothing more was acknowledged

    def abandon(self) -> None:
        """In a forked child: close the descriptors and write nothing."""
        self.log.abandon()
        if self.lock is not None:
            self.lock.close()


def keep(core: Core, keeper: Keeper) -> None:
    """Have a store released with its process or its last reference."""
    core.keeper = keeper
    keeper.core = weakref.ref(core)
    core.finalizer = weakref.finalize(core, keeper.quietly)
    _open_cores.add(core)


def close(core: Core, drain: Duration | None = DRAIN_SECONDS) -> int:
    """End a store, but first wait for the jobs that other threads and tasks have in hand; how many were left then.

    Raises DataError (`drain`), and what `end` raises. An interrupt ends the wait, not the closing.
    """
    limit = patience("drain", drain)
    if core.checkpoints is not None and core.checkpoints.is_this_thread():
        # The collector came by there and ran somebody's __del__.
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


def _drain(drain: Drain, caller: ThreadCaller) -> int:
    try:
        drain.begin()
        while (pause := drain.look()) is not None:
            caller.sleep(pause)
    finally:
        left = drain.end()
    return left


def end(core: Core) -> None:
    """End a store at once. Raises, everything released, StorePoisoned if records were never confirmed; StoreDamaged if
    the checkpoint was found damaged."""
    damage = None
    if core.queues is not None and not core.ended:
        core.queues.close()
    if core.checkpoints is not None and not core.ended:
        core.checkpoints.finish(core)
        damage = core.checkpoints.damage
    with core.lock:
        if core.ended:
            if core.forked:
                raise _forked()
        else:
            core.end(_closed)
    try:
        core.keeper.close()
        # Only now: if an interrupt came before, the next call, or the end of the process, goes on.
        core.finalizer.detach()
        _open_cores.discard(core)
    except aof.AofError as error:
        raise StorePoisoned(str(error)) from error
    if damage is not None:
        raise StoreDamaged(
            f"everything is in the log, and the checkpoint is damaged: {damage}"
        ) from damage


def _closed() -> StoreClosed:
    return StoreClosed("the store was closed; open it again")


def _forked() -> StoreClosed:
    return StoreClosed(
        "this store was opened before a fork and belongs to the parent process; open it again in this one"
    )


class _NoLock:
    """In place of a lock that another thread of the parent may have held when it forked."""

    def __enter__(self) -> None:
        raise _forked()

    def __exit__(self, *error: object) -> None: ...


def _after_fork_in_child() -> None:
    for core in list(_open_cores):
        _open_cores.discard(core)
        core.finalizer.detach()
        core.forked = True
        core.lock = _NoLock()
        core.end(_forked)
        core.keeper.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
