"""Durability: what must hold on the disk before a reply may leave, and whether it holds.

A promise names a log, an LSN in it, and whether the call wrote up to there. It names the log because a rebuilt store
has a new one, in which the LSN of a lost unit may belong to another unit. A read has a promise too, on the last unit
that it could have seen, so that no caller acts on data that a power cut can still lose.

Only `Durability` decides. Threads call `fulfil`. Event loops call `fulfilled`, or `through` once for many replies, and
subscribe to the log for the rest (api/aio.py, server/turns.py).
"""

from __future__ import annotations

import threading
from time import sleep
from typing import Final

from tidelog.aof.errors import AofError, LogClosed
from tidelog.aof.log import FSYNCED, WRITTEN, Log
from tidelog.store.errors import OutcomeUnknown, StoreClosed, StorePoisoned, TidelogError

Promise = tuple[Log, int, bool]  # (log, LSN, whether the call wrote)

# stands for the level that the fsync policy promises; the other levels are WRITTEN and FSYNCED
BY_POLICY: Final = 0
# How often a waiting writer checks whether memory is within its budget again.
RELIEF_S: Final = 0.01


class Durability:
    """Which LSNs of a store's log hold which level.

    relaxed   the policy is not `always`, so it promises WRITTEN
    relief    set when memory is within its budget again; until then replies to writers wait. None nearly always
    """

    def __init__(self, relaxed: bool) -> None:
        self.relaxed = relaxed
        self.relief: threading.Event | None = None

    def level(self) -> int:
        """The level that a reply promises unless its caller asks for another one."""
        return WRITTEN if self.relaxed else FSYNCED

    def through(self, log: Log, level: int = BY_POLICY) -> int:
        """The last LSN of `log` that holds `level` now; 0 if none does."""
        if level == WRITTEN or (not level and self.relaxed):
            return 0 if log.parked else log.written_lsn
        return log.synced_lsn if self.relief is None else 0

    def fulfilled(self, promise: Promise, level: int = BY_POLICY) -> bool:
        """Whether a reply may leave now."""
        log, lsn, wrote = promise
        return lsn <= self.through(log, level) or (
            # Synced data satisfies every level. But the reply to a write also waits until memory is within its budget.
            lsn <= log.synced_lsn and not (wrote and self.relief is not None)
        )

    def fulfil(self, promise: Promise, level: int) -> None:
        """Wait until a promise is fulfilled at `level`. Raises OutcomeUnknown (a write), StorePoisoned (a read),
        StoreClosed.
        """
        if self.fulfilled(promise, level):
            return
        log, lsn, wrote = promise
        try:
            log.wait(lsn, level or self.level())
        except AofError as error:
            raise unfulfilled(error, wrote) from error
        relief = self.relief
        if wrote:
            while relief is not None and relief is self.relief:
                # Do not call `relief.wait()`: an interrupt inside it can leave the lock of the Event taken, and then
                # `relief.set()` would hang.
                sleep(RELIEF_S)


def unfulfilled(error: AofError, wrote: bool) -> TidelogError:
    """The error for an LSN that can no longer reach the caller's level."""
    if isinstance(error, LogClosed):
        return StoreClosed(str(error))
    return OutcomeUnknown(str(error)) if wrote else StorePoisoned(str(error))
