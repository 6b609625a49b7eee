"""Receipts: the last LSN of a write, and the level it has reached. And the levels by name."""

from __future__ import annotations

from typing import Any

from tidelog.aof.log import FSYNCED, WRITTEN
from tidelog.aof.reading.reader import Epoch
from tidelog.store.acks import TIMEOUT_S, Acks, Replicated
from tidelog.store.commit.durability import BY_POLICY, Promise
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError

REPLICATED = "replicated"
# The level of this store that each one asks for. `replicated` asks for followers, too.
LEVELS = {"written": WRITTEN, "fsynced": FSYNCED, REPLICATED: BY_POLICY}


def level_number(level: str) -> int:
    """The log's number for a level's name. Raises DataError."""
    if not isinstance(level, str) or level not in LEVELS:
        raise DataError(f"level must be one of: {', '.join(LEVELS)}")
    return LEVELS[level]


def followers(
    level: str, replicas: Any, fsynced: Any, timeout: Duration | None
) -> Replicated | None:
    """The part of a level that followers have to meet; None if there is none. Raises DataError."""
    if level != REPLICATED:
        if (replicas, fsynced, timeout) != (1, False, None):
            raise DataError(
                f"replicas, fsynced and timeout belong to the level replicated, not to {level}"
            )
        return None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 1:
        raise DataError(f"replicas must be a number of followers, at least 1, not {replicas!r}")
    limit = TIMEOUT_S if timeout is None else seconds("timeout", timeout, zero=True)
    return Replicated(replicas, bool(fsynced), limit)


class Receipt:
    """The receipt of a write.

    Attributes:
        lsn: Number in the log (LSN) of the write's last record.
    """

    __slots__ = ("lsn", "_log", "_acks", "_replicated", "_life")

    def __init__(
        self, acks: Acks, promise: Promise, replicated: bool = False, life: Epoch | None = None
    ) -> None:
        """`life`: of the last record, if the call wrote none."""
        self._log, self.lsn, wrote = promise
        self._acks = acks
        self._replicated = replicated
        # An own write is in the life of its log, whatever becomes of the history since.
        self._life = (self._log.epoch, self._log.incarnation) if wrote else life and life[:2]

    @property
    def token(self) -> str:
        """The place of the write in the history of the store, for `wait_for` of a follower.

        Raises:
            DataError: The store is read-only.
        """
        from tidelog.store.tokens import Token  # imported here: few programs read from followers

        roles = self._acks.roles
        if roles is None:
            raise DataError("this store is open read-only; its writer has tokens")
        number, incarnation = self._life or (0, 0)
        return str(Token(roles.uuid.hex()[:8], number, incarnation, self.lsn if self._life else 0))

    def replicas(self, fsynced: bool = False) -> int:
        """How many connected followers have written and applied it by now.

        Args:
            fsynced: Count those that have synced it to their disks.
        """
        return self._acks.count(self._log, self.lsn, fsynced)

    @property
    def level(self) -> str:
        """The level reached by now.

        `replicated` if the write was made at that level and confirmed; else `fsynced`, `written`, or `applied` (in
        memory, on its way to the kernel).
        """
        if self._replicated:
            return REPLICATED
        log = self._log
        if self.lsn <= log.synced_lsn:
            return "fsynced"
        return "written" if self.lsn <= log.written_lsn else "applied"

    def __repr__(self) -> str:
        return f"Receipt(lsn={self.lsn}, level={self.level!r})"
