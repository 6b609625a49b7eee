"""Saving: what SAVE, BGSAVE, BGREWRITEAOF and SHUTDOWN set going, and how the last of it ended.

Nothing of it is needed for durability: every change is in the log before it is answered, and the store folds the log
into its checkpoint by its own rules. Whoever asks for it has that done now:

    SAVE            the log is folded; the client waits for it, all others go on
    BGSAVE          the same, and nobody waits. In a store that keeps so and so many snapshots (`keep-snapshots`) a
                    portable snapshot of the checkpoint is published as well, and the oldest ones go. Without that
                    bound (0) there is none: a BGSAVE from a crontab would fill the disk with copies of everything
    BGREWRITEAOF    the same as SAVE in the background: what the log says is in the checkpoint then, so segments behind
                    what is to be retained are released. That is what a rewrite is for

The work is done in daemon threads, so that neither the loop nor the end of the process waits for it. The store does one
checkpoint at a time; here, one BGSAVE or BGREWRITEAOF runs at a time, as in Redis, and one of each may be scheduled
behind it. All of it is used by the event loop's thread alone. Source: spec 16.4; Redis 7.0 (rdb.c, aof.c, server.c).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.engine.errors import CommandError
from tidelog.store.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.server.server import Server
    from tidelog.store.checkpoints import Checkpoints

SAVE: Final = "save"
REWRITE: Final = "rewrite"

NOT_HERE: Final = b"ERR this store is open read-only: its writer makes checkpoints and snapshots"
SHUTDOWN_FAILED: Final = b"ERR Errors trying to SHUTDOWN. Check logs."

T = TypeVar("T")

_logger = logging.getLogger("tidelog.server")


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run something in a daemon thread of its own. Called in the loop's thread; who is cancelled leaves it running."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(answer: Any, error: BaseException | None) -> None:
        if future.done():
            return  # nobody waits any more
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def run() -> None:
        answer: Any = None
        failure: BaseException | None = None
        try:
            answer = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, answer, failure)
        except RuntimeError:
            pass  # the loop has ended

    threading.Thread(target=run, name="tidelog-saving", daemon=True).start()
    return future


class Saving:
    """See the module's text.

    running             SAVE or REWRITE: a BGSAVE or a BGREWRITEAOF is under way; "" = neither
    save_scheduled      a BGSAVE follows it; rewrite_scheduled: a BGREWRITEAOF does
    failed              how the last of each kind ended: SAVE or REWRITE -> why it failed; missing = well
    """

    def __init__(self, server: Server) -> None:
        self.running = ""
        self.save_scheduled = self.rewrite_scheduled = False
        self.failed: dict[str, str] = {}
        self._server = server
        self._core = server.core
        self._last_save = server.core.time_ns() // 1_000_000_000
        self._one = asyncio.Lock()  # one thread, however many clients ask
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._aborts: set[asyncio.Future[None]] = set()

    @property
    def last_save(self) -> int:
        """LASTSAVE: unix seconds of the last checkpoint, or of the last time that one was asked for and there was
        nothing to fold; before the first, when the server was started."""
        checkpoints = self._core.checkpoints
        meta = None if checkpoints is None else checkpoints.meta
        return max(self._last_save, 0 if meta is None else meta.taken // 1000)

    async def save(self) -> None:
        """Fold the log into the checkpoint. Raises CheckpointFailed, StoreClosed; CommandError if that is not ours."""
        checkpoints = self._checkpoints()
        async with self._one:
            await in_thread(checkpoints.fold)
        self._saved()

    def begin(self, kind: str) -> None:
        """Begin a BGSAVE or a BGREWRITEAOF: none is running. Raises CommandError."""
        self._checkpoints()
        self.running = kind
        self._task = self._server.loop.create_task(self._background(kind))

    async def _background(self, kind: str) -> None:
        try:
            checkpoints = self._checkpoints()
            if kind == SAVE and checkpoints.options.keep_snapshots:
                snapshot = await in_thread(checkpoints.snapshot)
                self._saved()
                _logger.info("published snapshot %s", snapshot.path)
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

    def _checkpoints(self) -> Checkpoints:
        found: Checkpoints | None = self._core.checkpoints
        if found is None:
            raise CommandError(NOT_HERE)
        return found

    # --- SHUTDOWN

    async def shutdown(self, save: bool, force: bool) -> None:
        """End the server; `save`: fold the log before. Returns only when the connection is about to be closed.

        Raises CommandError, and the server goes on: it was aborted, or the log could not be folded without `force`.
        """
        if save and self._core.checkpoints is not None:
            await self._save_before(force)
        if self._leaving is None:
            _logger.info("SHUTDOWN: stopping")
            self._leaving = self._server.loop.create_task(self._server.shutdown(False))
        await asyncio.shield(self._leaving)

    async def _save_before(self, force: bool) -> None:
        saved = self._server.loop.create_task(self.save())
        abort: asyncio.Future[None] = self._server.loop.create_future()
        self._aborts.add(abort)
        try:
            await asyncio.wait((saved, abort), return_when=asyncio.FIRST_COMPLETED)
            if abort.done():
                _logger.warning("SHUTDOWN was aborted")
                raise CommandError(SHUTDOWN_FAILED)
            try:
                saved.result()
            except TidelogError as error:
                _logger.error("SHUTDOWN: no checkpoint: %s", error)
                if not force:
                    raise CommandError(SHUTDOWN_FAILED) from error
        finally:
            saved.cancel()
            self._aborts.discard(abort)

    def abort(self) -> bool:
        """SHUTDOWN ABORT. False: there is nothing to abort, or it is too late."""
        waiting = [abort for abort in self._aborts if not abort.done()]
        for each in waiting:
            each.set_result(None)
        return bool(waiting)

    @property
    def leaving(self) -> bool:
        """Whether the server is ending, and that cannot be undone."""
        return self._leaving is not None
