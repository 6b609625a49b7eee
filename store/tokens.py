"""Tokens: a place in the history of a store, as text, so that a program can wait for its own writes elsewhere.

    5f0c4e21-100000000-9ee6e1181d166d61-4711
    |        |         |                |
    |        |         |                LSN of the record, decimal
    |        |         incarnation of the life that wrote it, 16 hexadecimal digits
    |        number of that life (aof/epochs.py), hexadecimal
    the first 8 digits of the store's uuid

A store has what a token names if its log has that life, and the life has not ended before that LSN. The numbers of
lives rise along a history. So a store that has a life with the same number or a later one, and not this one, will never
have it: the write was given up.
"""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

from tidelog.aof.reading.reader import Epoch
from tidelog.store.commit.arrivals import Arrival
from tidelog.store.commit.core import Core
from tidelog.store.errors import DataError, TokenLate, TokenLost

TIMEOUT_S: Final = 10.0  # how long a call waits for a token unless it says so

_FORM: Final = r"([0-9a-f]{8})-(0|[1-9a-f][0-9a-f]{0,15})-([0-9a-f]{16})-(0|[1-9][0-9]{0,19})"
_U64_MAX: Final = (1 << 64) - 1


class Token(NamedTuple):
    """A record of a history. LSN 0 is the beginning, which every store has."""

    store: str
    number: int
    incarnation: int
    lsn: int

    def __str__(self) -> str:
        return f"{self.store}-{self.number:x}-{self.incarnation:016x}-{self.lsn}"


class Verdict(enum.Enum):
    """Whether a store has what a token names."""

    HERE = "it is applied"
    COMING = "it may come"
    LOST = "it was given up"


def parse(text: str | bytes) -> Token:
    """The token in a text. Raises DataError."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    form = re.fullmatch(_FORM, text) if isinstance(text, str) else None
    if form is None or int(form[4]) > _U64_MAX:
        raise DataError(
            "invalid token: pass the text of receipt.token, or of the reply to TIDELOG TOKEN, unchanged"
        )
    return Token(form[1], int(form[2], 16), int(form[3], 16), int(form[4]))


def judge(token: Token, lives: Sequence[Epoch], last: int) -> Verdict:
    """Whether a store with these lives, the oldest first, and records through LSN `last` has what the token names."""
    if not token.lsn:
        return Verdict.HERE
    ended_at = None  # the first LSN of the life behind
    for life in reversed(lives):
        if (life.number, life.incarnation) == (token.number, token.incarnation):
            if ended_at is not None and ended_at <= token.lsn:
                return Verdict.LOST
            return Verdict.HERE if token.lsn <= last else Verdict.COMING
        if life.number < token.number:
            break
        ended_at = life.lsn
    return Verdict.COMING if ended_at is None else Verdict.LOST


def life_of(lives: Sequence[Epoch], lsn: int) -> Epoch | None:
    """The life that wrote the record; None if there is none."""
    return next((life for life in reversed(lives) if life.lsn <= lsn), None)


def first_digits(core: Core) -> str:
    """The digits of the store's uuid in its tokens. Raises DataError."""
    if core.roles is None:
        raise DataError("this store is open read-only; its writer has tokens")
    return core.roles.uuid.hex()[:8]


def look(core: Core, token: Token) -> Verdict:
    """Whether an open store has what a token names. Raises DataError: it is another store's; TokenLost; and the errors
    of `Core.mend`.
    """
    with core.lock:
        if core.trouble is not None:
            core.mend()
        own, last = first_digits(core), core.log.next_lsn - 1
        if own != token.store:
            if core.following is not None and not last:
                return Verdict.COMING  # an empty follower gets the uuid of its leader
            raise DataError(
                f"the token is of the store {token.store}..., and this is the store {own}..."
            )
        lives = [] if core.checkpoints is None else core.checkpoints.epochs
        found = judge(token, lives, last)
        if found is Verdict.LOST:
            raise TokenLost(
                f"LOST LSN {token.lsn} of life {token.number:x} was given up: the history of this store goes on "
                "without it"
            )
        return found


def late(core: Core, token: Token) -> TokenLate:
    """The error when the time is up."""
    return TokenLate(
        f"TIMEOUT this store has LSN {core.log.next_lsn - 1}, and the token is of LSN {token.lsn}"
    )


def wait(core: Core, token: Token, seconds: float) -> None:
    """Wait until what a token names is applied here. Raises TokenLate, and as `look`."""
    until = monotonic() + seconds
    while True:
        gate = threading.Lock()
        gate.acquire()
        arrival = Arrival(token.lsn, gate.release)
        core.arrivals.add(arrival)
        try:
            if look(core, token) is Verdict.HERE:
                return
            if not gate.acquire(True, max(until - monotonic(), 0)):
                raise late(core, token)
        finally:
            core.arrivals.remove(arrival)
