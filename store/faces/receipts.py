"""Receipts: the last LSN of a write, and the level it has reached."""

from __future__ import annotations

from tidelog.aof.log import FSYNCED, WRITTEN, Log
from tidelog.store.errors import DataError

LEVELS = {"written": WRITTEN, "fsynced": FSYNCED}


def level_number(level: str) -> int:
    """The log's number for a level's name. Raises DataError."""
    if not isinstance(level, str) or level not in LEVELS:
        raise DataError(f"level must be one of: {', '.join(LEVELS)}")
    return LEVELS[level]


class Receipt:
    """The receipt of a write.

    Attributes:
        lsn: Number in the log (LSN) of the write's last record.
    """

    __slots__ = ("lsn", "_log")

    def __init__(self, log: Log, lsn: int) -> None:
        self._log = log
        self.lsn = lsn

    @property
    def level(self) -> str:
        """The level reached by now: `fsynced`, `written`, or `applied` (in memory, on its way to the kernel)."""
        log = self._log
        if self.lsn <= log.synced_lsn:
            return "fsynced"
        return "written" if self.lsn <= log.written_lsn else "applied"

    def __repr__(self) -> str:
        return f"Receipt(lsn={self.lsn}, level={self.level!r})"
