"""Given: the options at the end of a QUEUE command, and what all of these commands need."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final, NamedTuple

from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.jobs.option_words import OPTIONS
from tidelog.jobs.own import MANY, ONE, Own
from tidelog.server.jobs import QUEUES_MAX, Served
from tidelog.server.once import Once
from tidelog.server.reserved import queue_refusal
from tidelog.server.session import Session
from tidelog.store.commit.core import Answer

_NOT_TEXT: Final = b"ERR the name of a worker must be UTF-8, and not empty"

# Parsed options are kept unless they are as long as this, or have one of these, whose values seldom come again.
_KEPT_BYTES_MAX: Final = 256
_UNKEPT: Final = frozenset((b"DEDUP", b"HEADERS", b"AT", b"KEY", b"RESULT"))


class Given(NamedTuple):
    """The options of one command: those of the queue, and its own with their words."""

    queue: Served
    own: Own

    def once(self, session: Session) -> Once | None:
        """ONCE, of the session's user."""
        found = self.own.get(b"ONCE")
        return None if found is None else Once(session.user, *found)


def options_in(
    words: list[bytes], own: Mapping[bytes, int], others: Set[bytes] = frozenset()
) -> tuple[Own, list[bytes]]:
    """The options at the end of a command, and with their names those of `others`. Raises CommandError."""
    shared: list[bytes] = []
    found = Own()
    at, end = 0, len(words)
    while at < end:
        option = words[at].upper()
        size = ONE if option in others else own.get(option)
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
        if option in others:
            shared += (option, words[at])
        else:
            found[option] = words[at : at + size]
        at += size
    return found, shared


def given_of(session: Session, name: bytes, words: list[bytes], own: Mapping[bytes, int]) -> Given:
    """Parse the options at the end of a command about a queue. Raises CommandError."""
    found, shared = options_in(words, own, OPTIONS)
    desk = session.server.desk
    return Given(desk.queue(session.core, session.db, name, tuple(shared)), found)


def given_again(
    verb: bytes, session: Session, name: bytes, words: list[bytes], own: Mapping[bytes, int]
) -> Given:
    """As `given_of`, for a command that a client repeats with the same options, apart from those of a last ONCE."""
    once = words[-2:] if len(words) > 2 and words[-3] == b"ONCE" else None
    kept = session.server.desk.given
    key = (verb, session.db, once is None, name, *(words if once is None else words[:-2]))
    known = kept.get(key)
    if known is not None:
        queue, options = known
        return Given(queue, options if once is None else Own({**options, b"ONCE": once}))
    given = given_of(session, name, words, own)
    options = Own(given.own)
    if once is not None:
        # The word in that place may also be the value of another option. It is not if ONCE was given, and only there.
        if options.pop(b"ONCE", None) is None or b"ONCE" in map(bytes.upper, words[:-3]):
            return given
    if _UNKEPT.isdisjoint(options):
        keep(kept, key, (given.queue, options), words)
    return given


def keep(kept: dict[Any, Any], key: Any, value: Any, words: list[bytes]) -> None:
    """Keep what was made of words, unless they are long."""
    if sum(map(len, words)) < _KEPT_BYTES_MAX:
        if len(kept) >= QUEUES_MAX:
            kept.clear()
        kept[key] = value


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


def check_put(session: Session, words: list[bytes]) -> None:
    """Raise CommandError unless the user may put a job: `words` are the name of a queue, the value and options."""
    put = session.server.commands.table.commands[b"queue|put"]
    refusal = session.server.acl.refusal(session.user, put, [b"QUEUE", b"PUT", *words])
    refusal = refusal or queue_refusal(words[0])
    if refusal is not None:
        raise refusal


def check_writable(session: Session) -> None:
    refusal = session.core.refusal
    if refusal is not None:
        raise CommandError(refusal)


def checked(session: Session, answer: Answer) -> Reply:
    reply = told(session, answer)
    if isinstance(reply, CommandError):
        raise reply
    return reply
