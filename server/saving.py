"""Saving: the work of SAVE, BGSAVE, BGREWRITEAOF and SHUTDOWN, and the outcome of the last one.

Durability does not need it: every change is in the log before its reply, and the store folds the log into its
checkpoint by its own rules. These commands do it now:

    SAVE            folds the log; the client waits for it, all others go on
    BGSAVE          folds the log in the background. If the store keeps a number of snapshots (`keep-snapshots`), it
                    also publishes a snapshot of the checkpoint and deletes the oldest ones. Without that limit (0) it
                    publishes none: a BGSAVE from a crontab would fill the disk with copies of everything
    BGREWRITEAOF    folds the log in the background. The log's records are then in the checkpoint, so segments beyond
                    the retention are deleted, which is the purpose of a rewrite

The work runs in daemon threads, so that neither the loop nor the end of the process waits for it. The store makes one
checkpoint at a time. As in Redis, one BGSAVE or BGREWRITEAOF runs at a time, and one of each may be scheduled after it.
Only the event loop's thread uses this module. Source: spec 16.4; Redis 7.0 (rdb.c, aof.c, server.c).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.aof.errors import NoThread
from tidelog.engine.errors import CommandError
from tidelog.store import threads
from tidelog.store.commit.attached import Folding
from tidelog.store.commit.core import Core
from tidelog.store.errors import CheckpointFailed, TidelogError

if TYPE_CHECKING:
    from tidelog.snapshot.portable import Snapshot

SAVE: Final = "save"
REWRITE: Final = "rewrite"

NOT_HERE: Final = b"ERR this store is open read-only: its writer makes checkpoints and snapshots"
SHUTDOWN_FAILED: Final = b"ERR Errors trying to SHUTDOWN. Check logs."

T = TypeVar("T")

_logger = logging.getLogger("tidelog.server")


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a new daemon thread. Called in the loop's thread. Cancelling the future does not stop the work.

    The future's error is CheckpointFailed if the system gives no thread.
    """
    return threads.in_thread(work, "run this command", "tidelog-saving", _no_thread)


def _no_thread(error: NoThread) -> CheckpointFailed:
    return CheckpointFailed(str(error))


class Saving:
    """See the module docstring.

    running             SAVE or REWRITE while a BGSAVE or a BGREWRITEAOF runs; "" = neither
    save_scheduled      a BGSAVE is scheduled after it; rewrite_scheduled: a BGREWRITEAOF is
    failed              SAVE or REWRITE -> error of the last run of that kind; missing = it succeeded

    Create it in the loop's thread. `shutdown` shuts the server down. `followers` waits for followers, until the future
    is done.
    """

    def __init__(
        self,
        core: Core,
        shutdown: Callable[[], Coroutine[Any, Any, None]],
        followers: Callable[[asyncio.Future[None]], Awaitable[None]],
    ) -> None:
        self.running = ""
        self.save_scheduled = self.rewrite_scheduled = False
        self.failed: dict[str, str] = {}
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._shutdown, self._followers = shutdown, followers
        self._last_save = core.time_ns() // 1_000_000_000
        self._one = asyncio.Lock()  # one thread, however many clients call SAVE
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._aborts: set[asyncio.Future[None]] = set()

    @property
    def last_save(self) -> int:
        """LASTSAVE: unix seconds of the last checkpoint, or of the last save request that had nothing to fold.
        Before the first one, the time when the server started.
        """
        checkpoints = self._core.checkpoints
        meta = None if checkpoints is None else checkpoints.meta
        return max(self._last_save, 0 if meta is None else meta.taken // 1000)

    async def save(self) -> None:
        """Fold the log into the checkpoint. Raises CheckpointFailed, StoreClosed; CommandError in a read-only store."""
        checkpoints = self._checkpoints()
        async with self._one:
            await in_thread(checkpoints.fold)
        self._saved()

    async def snapshot(self) -> Snapshot:
        """Fold the log and publish a snapshot.

        Raises CheckpointFailed, StoreClosed; CommandError in a read-only store.
        """
        made = await in_thread(self._checkpoints().snapshot)
        self._saved()
        return made

    def begin(self, kind: str) -> None:
        """Begin a BGSAVE or a BGREWRITEAOF while none is running. Raises CommandError."""
        self._checkpoints()
        self.running = kind
        self._task = self._loop.create_task(self._background(kind))

    async def _background(self, kind: str) -> None:
        try:
            checkpoints = self._checkpoints()
            if kind == SAVE and checkpoints.options.keep_snapshots:
                _logger.info("published snapshot %s", (await self.snapshot()).path)
            else:
                await self.save()
            self.failed.pop(kind, None)
        except TidelogError as error:
            self.failed[kind] = str(error)
            _logger.warning("background %s failed: %s", kind, error)
        finally:
            self.running = ""
        if self.rewrite_scheduled:
            self.rewrite_scheduled = False
            self.begin(REWRITE)
        elif self.save_scheduled:
            self.save_scheduled = False
            self.begin(SAVE)

    def _saved(self) -> None:
        self._last_save = self._core.time_ns() // 1_000_000_000

    def _checkpoints(self) -> Folding:
        found = self._core.checkpoints
        if found is None:
            raise CommandError(NOT_HERE)
        return found

    # --- SHUTDOWN

    async def shutdown(self, save: bool, force: bool, *, abortable: bool = True) -> None:
        """Shut the server down; `save`: fold the log first. Returns only when the connection is about to be closed.

        Raises CommandError if it was aborted, or if folding failed without `force`; the server then goes on.
        """
        abort: asyncio.Future[None] = self._loop.create_future()
        if abortable:
            self._aborts.add(abort)
        try:
            if save and self._core.checkpoints is not None:
                await self._save_before(force, abort)
            await self._followers(abort)
            _raise_if_aborted(abort)
        finally:
            self._aborts.discard(abort)
        if self._leaving is None:
            _logger.info("stopping")
            self._leaving = self._loop.create_task(self._shutdown())
        await asyncio.shield(self._leaving)

    async def _save_before(self, force: bool, abort: asyncio.Future[None]) -> None:
        saved = self._loop.create_task(self.save())
        try:
            await asyncio.wait((saved, abort), return_when=asyncio.FIRST_COMPLETED)
            _raise_if_aborted(abort)
            try:
                saved.result()
            except TidelogError as error:
                _logger.error("SHUTDOWN: the checkpoint failed: %s", error)
                if not force:
                    raise CommandError(SHUTDOWN_FAILED) from error
        finally:
            saved.cancel()

    def abort(self) -> bool:
        """SHUTDOWN ABORT. False if there is nothing to abort, or if it is too late."""
        waiting = [abort for abort in self._aborts if not abort.done()]
        for each in waiting:
            each.set_result(None)
        return bool(waiting)

    @property
    def leaving(self) -> bool:
        """Whether the server is shutting down irrevocably."""
        return self._leaving is not None


def _raise_if_aborted(abort: asyncio.Future[None]) -> None:
    if abort.done():
        _logger.warning("the shutdown was aborted")
        raise CommandError(SHUTDOWN_FAILED)
