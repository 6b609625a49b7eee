"""Given: the options at the end of a QUEUE command, and what all of these commands need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.jobs.dedup import MODES, WINDOW
from tidelog.jobs.job_options import JobOptions, lifetime
from tidelog.jobs.options import PRIORITY_MAX
from tidelog.jobs.rows import HEADER
from tidelog.jobs.work.later import Due, when
from tidelog.server.jobs import OPTIONS, QUEUES_MAX, Served
from tidelog.server.once import Once
from tidelog.server.session import Session
from tidelog.store.commit.core import Answer

COUNT_MAX: Final = 10_000  # of what a reply lists
WRONG_COUNT: Final = b"ERR COUNT must be between 1 and %d"
_NOT_TEXT: Final = b"ERR the name of a worker must be UTF-8, and not empty"

# The number of words after each option; HEADERS says it itself.
FLAG, ONE, TWO, MANY = 0, 1, 2, -1
# The options of one job that say when and in which order it comes.
WHEN: Final = {b"DELAY": ONE, b"AT": ONE, b"TTL": ONE, b"PRIORITY": ONE, b"KEY": ONE}
# Parsed options are kept unless they are as long as this, or have one of these, whose values seldom come again.
_KEPT_BYTES_MAX: Final = 256
_UNKEPT: Final = frozenset((b"DEDUP", b"HEADERS", b"AT", b"KEY", b"RESULT"))


class Given(NamedTuple):
    """The options of one command: those of the queue, and its own with their words."""

    queue: Served
    own: dict[bytes, list[bytes]]

    def number(self, name: bytes, otherwise: int | None = None) -> int | None:
        """The value of an option that is an integer."""
        found = self.own.get(name)
        return otherwise if found is None else int64(found[0])

    def milliseconds(self, name: bytes) -> float | None:
        """The value of an option in milliseconds, above 0, as seconds; None if it was not given."""
        found = self.number(name)
        if found is not None and found <= 0:
            raise CommandError(b"ERR %b must be greater than 0" % name)
        return None if found is None else found / 1000

    def count(self, otherwise: int, most: int = COUNT_MAX) -> int:
        """COUNT."""
        found = self.number(b"COUNT", otherwise)
        if found is None or not 1 <= found <= most:
            raise CommandError(WRONG_COUNT % most)
        return found

    def job(self) -> JobOptions:
        """The options of a job. Raises CommandError."""
        own, delay, at = self.own, self.number(b"DELAY"), self.number(b"AT")
        if delay is not None and at is not None:
            raise CommandError(SYNTAX)
        dedup = own.get(b"DEDUP")
        return JobOptions(
            None if dedup is None else dedup[0],
            self._mode(),
            tuple(headers_of(own.get(b"HEADERS", ()))),
            when(None if delay is None else delay / 1000, None)[0],
            at,
            lifetime(self.milliseconds(b"TTL")),
            self._priority(),
            self._key(),
        )

    def due(self, job: JobOptions) -> Due | None:
        """When a job with these options is due; None = at once."""
        return job.due(self.queue.engine.core.clocks().wall) if job.is_timed else None

    def _priority(self) -> int:
        found = self.number(b"PRIORITY", 0)
        if found is None or not 0 <= found <= PRIORITY_MAX:
            raise CommandError(b"ERR PRIORITY must be between 0 and %d" % PRIORITY_MAX)
        return found

    def _mode(self) -> str:
        found = self.own.get(b"MODE")
        mode = WINDOW if found is None else found[0].decode(errors="replace").lower()
        if mode not in MODES or found is not None and b"DEDUP" not in self.own:
            raise CommandError(b"ERR MODE is WINDOW, UNTIL-DONE or REPLACE, and needs DEDUP")
        return mode

    def _key(self) -> bytes | None:
        found = self.own.get(b"KEY")
        try:
            key = None if found is None else found[0].decode()
        except UnicodeDecodeError:
            key = ""
        if key == "":
            raise CommandError(b"ERR KEY must be UTF-8, and not empty")
        return None if found is None else found[0]

    def once(self, session: Session) -> Once | None:
        """ONCE, of the session's user."""
        found = self.own.get(b"ONCE")
        return None if found is None else Once(session.user, *found)


def given_of(session: Session, name: bytes, words: list[bytes], own: dict[bytes, int]) -> Given:
    """Parse the options at the end of a command. Raises CommandError."""
    shared: list[bytes] = []
    found: dict[bytes, list[bytes]] = {}
    at, end = 0, len(words)
    while at < end:
        option = words[at].upper()
        size = ONE if option in OPTIONS else own.get(option)
        if size is None:
            raise CommandError(SYNTAX)
        at += 1
        if size == MANY:
            size = 2 * int64(words[at]) if at < end else end
            at += 1
            if size < 0:
                raise CommandError(SYNTAX)
        if at + size > end:
            raise CommandError(SYNTAX)
        if option in OPTIONS:
            shared += (option, words[at])
        else:
            found[option] = words[at : at + size]
        at += size
    desk = session.server.desk
    return Given(desk.queue(session.core, session.db, name, tuple(shared)), found)


def given_again(
    session: Session, verb: bytes, name: bytes, words: list[bytes], own: dict[bytes, int]
) -> Given:
    """As `given_of`, for a command that a client repeats with the same options, apart from those of a last ONCE."""
    once = words[-2:] if len(words) > 2 and words[-3] == b"ONCE" else None
    kept = session.server.desk.given
    key = (verb, session.db, once is None, name, *(words if once is None else words[:-2]))
    known = kept.get(key)
    if known is not None:
        queue, options = known
        return Given(queue, options if once is None else {**options, b"ONCE": once})
    given = given_of(session, name, words, own)
    options = dict(given.own)
    if once is not None:
        # The word in that place may also be the value of another option. It is not if ONCE was given, and only there.
        if options.pop(b"ONCE", None) is None or b"ONCE" in map(bytes.upper, words[:-3]):
            return given
    if _UNKEPT.isdisjoint(options) and sum(map(len, words)) < _KEPT_BYTES_MAX:
        if len(kept) >= QUEUES_MAX:
            kept.clear()
        kept[key] = given.queue, options
    return given


def worker_of(word: bytes) -> bytes:
    try:
        if word.decode():
            return word
    except UnicodeDecodeError:
        pass
    raise CommandError(_NOT_TEXT)


def told(session: Session, answer: Answer) -> Any:
    """The result of an answer; the reply waits for its promise."""
    found, promise = answer
    session.rest_on(promise)
    return found


def check_writable(session: Session) -> None:
    refusal = session.core.refusal
    if refusal is not None:
        raise CommandError(refusal)


def headers_of(words: Iterable[bytes]) -> list[bytes]:
    row: list[bytes] = []
    for at, word in enumerate(words):
        row.append(word if at % 2 else HEADER + word)
    return row


def checked(session: Session, answer: Answer) -> Reply:
    reply = told(session, answer)
    if isinstance(reply, CommandError):
        raise reply
    return reply
