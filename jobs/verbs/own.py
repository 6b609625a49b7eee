"""The options at the end of a QUEUE command that are not those of the queue, each with its words."""

from __future__ import annotations

from typing import Final

from tidelog.engine import ids
from tidelog.engine.errors import INVALID_ID, SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.jobs.dedup import MODES, WINDOW
from tidelog.jobs.job_options import JobOptions, lifetime
from tidelog.jobs.options import PRIORITY_MAX
from tidelog.jobs.rows import HEADER
from tidelog.jobs.work.later import when

# The number of words after each option; HEADERS says it itself.
FLAG, ONE, TWO, MANY = 0, 1, 2, -1
# The options of one job that say when and in which order it comes.
WHEN: Final = {b"DELAY": ONE, b"AT": ONE, b"TTL": ONE, b"PRIORITY": ONE, b"KEY": ONE}
JOB: Final = {**WHEN, b"DEDUP": ONE, b"MODE": ONE, b"HEADERS": MANY}  # all options of one job

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

    def job(self) -> JobOptions:
        """The options of a job. Raises CommandError."""
        delay, at = self.number(b"DELAY"), self.number(b"AT")
        if delay is not None and at is not None:
            raise CommandError(SYNTAX)
        dedup = self.get(b"DEDUP")
        return JobOptions(
            None if dedup is None else dedup[0],
            self._mode(),
            self.headers(),
            when(None if delay is None else delay / 1000, None)[0],
            at,
            lifetime(self.milliseconds(b"TTL")),
            self._priority(),
            self._key(),
        )

    def _priority(self) -> int:
        found = self.number(b"PRIORITY", 0)
        if found is None or not 0 <= found <= PRIORITY_MAX:
            raise CommandError(b"ERR PRIORITY must be between 0 and %d" % PRIORITY_MAX)
        return found

    def _mode(self) -> str:
        found = self.get(b"MODE")
        mode = WINDOW if found is None else found[0].decode(errors="replace").lower()
        if mode not in MODES or found is not None and b"DEDUP" not in self:
            raise CommandError(b"ERR MODE is WINDOW, UNTIL-DONE or REPLACE, and needs DEDUP")
        return mode

    def _key(self) -> bytes | None:
        found = self.get(b"KEY")
        try:
            key = None if found is None else found[0].decode()
        except UnicodeDecodeError:
            key = ""
        if key == "":
            raise CommandError(b"ERR KEY must be UTF-8, and not empty")
        return None if found is None else found[0]

    def headers(self) -> tuple[bytes, ...]:
        """HEADERS as fields of a job's row."""
        words = self.get(b"HEADERS", ())
        return tuple(word if at % 2 else HEADER + word for at, word in enumerate(words))


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
