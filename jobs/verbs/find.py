"""QUEUE FIND: the jobs with certain facts, slice by slice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self, TypedDict

from tidelog.engine import ids
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.job_options import header_fields
from tidelog.jobs.options import check_names, named, positive
from tidelog.jobs.own import COUNT_MAX, ONE, TWO, Own
from tidelog.jobs.search import SOUGHT, FoundAt, Search, Wanted
from tidelog.jobs.status import JobStatus
from tidelog.jobs.verbs.job import status_told, told_status
from tidelog.jobs.verbs.verb import FIND, LOOKS, Facts, Question
from tidelog.store.errors import DataError

LIMIT: Final = 100
# Of one call of a face: with what a slice costs (jobs/search.py) it looks at 20,000 entries at most, and at more only
# where it can tell without decoding that they are not wanted.
SLICES_MAX: Final = 40


class FindOptions(TypedDict, total=False):
    """The options of `Queue.find`. All facts that are given hold for each job.

    key       the key that they were put with
    header    a header that they have, as "name=text" or (name, text)
    error     a part of the error of a failure that is still recorded
    text      a part of the value, the key, a header (`name: text`), or of an error or traceback; the case of letters
              does not count
    state     "delayed", "waiting", "running", "paused", "dead" or "cancelled"
    since     put at this time or later, a datetime with a time zone
    limit     at most this many; 100 unless given
    after     the `until` of an earlier call: go on from there
    """

    key: str | None
    header: tuple[str, str] | str | None
    error: str | None
    text: str | None
    state: str | None
    since: datetime | None
    limit: int
    after: str | None


@dataclass(frozen=True, slots=True)
class Find(Question):
    """One slice of a search: (the jobs found, a list of JobStatus; how far it looked, None: to the end)."""

    name = b"FIND"
    facts = Facts(
        *(-3, LOOKS, "RO access", "0.2.0", "Find jobs by their facts"),
        (
            "FIND <name> [KEY <key>] [HEADER <name> <text>] [ERROR <text>] [TEXT <text>] [STATE <state>]"
            " [SINCE <unix-ms>] [AFTER <place>] [COUNT <n>]",
            "The jobs with all of these facts, each as JOB tells it, of a part of the queue; before them the place"
            " where that part ends, for AFTER; nil if it is the last one.",
        ),
    )
    options = {
        **dict.fromkeys((b"KEY", b"ERROR", b"TEXT", b"STATE", b"SINCE", b"AFTER", b"COUNT"), ONE),
        b"HEADER": TWO,
    }
    needs = FIND

    wanted: Wanted = Wanted()
    count: int = LIMIT
    after: FoundAt | None = None

    @classmethod
    def of(cls, given: FindOptions) -> Self:
        """The request of a caller. Raises DataError, and TypeError for an unknown name."""
        check_names("find", given, FindOptions.__annotations__)
        after, since, state = given.get("after"), given.get("since"), given.get("state")
        key, header, limit = given.get("key"), given.get("header"), given.get("limit", LIMIT)
        positive("limit", limit)
        found_at = None if after is None else _found_at(after)
        if after is not None and found_at is None:
            raise DataError(f"after must be the `until` of an earlier search, not {after!r}")
        if since is not None and (not isinstance(since, datetime) or since.utcoffset() is None):
            raise DataError(f"since must be a datetime with a time zone, not {since!r}")
        if state is not None and state not in SOUGHT:
            raise DataError(f"state must be {', '.join(SOUGHT)}, not {state!r}")
        for name in ("error", "text"):
            if given.get(name) is not None:
                named(name, given[name])
        wanted = Wanted(
            None if key is None else named("key", key),
            None if header is None else _header(header),
            *(given.get("error"), _lower(given.get("text")), state),
            None if since is None else max(0, rows.milliseconds(since.astimezone(UTC))),
        )
        return cls(wanted, limit, found_at)

    def following(self, after: FoundAt, left: int) -> Self:
        """The request for the next slice, of which `left` jobs are wanted."""
        return replace(self, after=after, count=left)

    def words(self) -> list[bytes]:
        """See `Verb`."""
        wanted = self.wanted
        words = [b"COUNT", b"%d" % min(self.count, COUNT_MAX)]
        if wanted.key is not None:
            words += (b"KEY", wanted.key)
        if wanted.header is not None:
            words += (b"HEADER", *wanted.header)
        if wanted.error is not None:
            words += (b"ERROR", wanted.error.encode())
        if wanted.text is not None:
            words += (b"TEXT", wanted.text.encode())
        if wanted.state is not None:
            words += (b"STATE", wanted.state.encode())
        if wanted.since is not None:
            words += (b"SINCE", b"%d" % wanted.since)
        if self.after is not None:
            words += (b"AFTER", found_at_text(self.after).encode())
        return words

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        header, since = own.get(b"HEADER"), own.number(b"SINCE")
        error, text, state, after = (
            _word(own, name) for name in (b"ERROR", b"TEXT", b"STATE", b"AFTER")
        )
        found_at = None if after is None else _found_at(after)
        if after is not None and found_at is None:
            raise CommandError(b"ERR AFTER is the place that an earlier FIND replied")
        if state is not None and state not in SOUGHT:
            raise CommandError(b"ERR STATE is one of " + ", ".join(SOUGHT).encode())
        wanted = Wanted(
            own[b"KEY"][0] if b"KEY" in own else None,
            None if header is None else (header[0], header[1]),
            *(error, _lower(text), state, None if since is None else max(0, since)),
        )
        return cls(wanted, own.count(LIMIT), found_at)

    def question(self, engine: QueueEngine, timeout_ms: int | None) -> Search:
        """See `Question`. It never waits."""
        return Search(engine, self.wanted, self.count, self.after)

    def reply(self, result: tuple[list[JobStatus], FoundAt | None]) -> Reply:
        """See `Verb`."""
        found, until = result
        return [
            None if until is None else found_at_text(until).encode(),
            list(map(told_status, found)),
        ]

    def result(self, reply: Any) -> Any:
        """See `Verb`."""
        until, found = reply
        return list(map(status_told, found)), None if until is None else _found_at(until.decode())


def found_at_text(found_at: FoundAt) -> str:
    """A place as text: its ID and its rank, `ms-seq-rank`."""
    return f"{rows.text(found_at[0])}-{found_at[1]}"


def _word(own: Own, name: bytes) -> str | None:
    found = own.get(name)
    return None if found is None else rows.shown(found[0])


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _found_at(text: object) -> FoundAt | None:
    """The place of a text; None if it is no place."""
    id, _, rank = text.rpartition("-") if isinstance(text, str) else ("", "", "")
    if not (id.isascii() and "-" in id and rank.isascii() and rank.isdigit() and len(rank) < 3):
        return None
    job = ids.parse_or_none(id.encode())
    return None if job is None else (job, int(rank))


def _header(given: object) -> tuple[bytes, bytes]:
    """The argument `header`, `(name, text)` or `name=text`. Raises DataError."""
    pair = tuple(given.split("=", 1)) if isinstance(given, str) else given
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(w, str) for w in pair):
        raise DataError(f"header must be 'name=text' or a pair (name, text), not {given!r}")
    field, text = header_fields({pair[0]: pair[1]})
    return field.removeprefix(rows.HEADER), text
