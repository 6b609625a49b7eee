"""The options at the end of a QUEUE command that are not those of the queue, each with its words."""

from __future__ import annotations

from typing import Final

from tidelog.engine import ids
from tidelog.engine.errors import INVALID_ID, CommandError
from tidelog.engine.integers import int64

# The number of words after each option; HEADERS says it itself.
FLAG, ONE, TWO, MANY = 0, 1, 2, -1
COUNT_MAX: Final = 10_000  # of what a reply lists
WRONG_COUNT: Final = b"ERR COUNT must be between 1 and %d"


class Own(dict[bytes, list[bytes]]):
    """Option, in upper case -> the words behind it."""

    def number(self, name: bytes, otherwise: int | None = None) -> int | None:
        """The value of an option that is an integer. Raises CommandError."""
        found = self.get(name)
        return otherwise if found is None else int64(found[0])

    def milliseconds(self, name: bytes) -> float | None:
        """The value of an option in milliseconds, above 0, as seconds; None if it is missing. Raises CommandError."""
        found = self.number(name)
        if found is not None and found <= 0:
            raise CommandError(b"ERR %b must be greater than 0" % name)
        return None if found is None else found / 1000

    def count(self, otherwise: int, most: int = COUNT_MAX) -> int:
        """COUNT. Raises CommandError."""
        return checked_count(self.number(b"COUNT", otherwise), most)


def checked_count(count: int | None, most: int = COUNT_MAX) -> int:
    """A number of things to list. Raises CommandError."""
    if count is None or not 1 <= count <= most:
        raise CommandError(WRONG_COUNT % most)
    return count


def job_id(word: bytes) -> int:
    """The ID of a job. Raises CommandError."""
    found = ids.parse_or_none(word)
    if found is None:
        raise CommandError(INVALID_ID)
    return found


def ms_word(length: float) -> bytes:
    """Seconds as milliseconds; at least one, since 0 often means for ever."""
    return b"%d" % max(1, round(length * 1000))
