"""Jobs: one job by its ID, and the search for jobs, as JSON made of the replies of ordinary commands.

A job has no index but its ID, so the search reads the streams of the queue, a bounded number of entries for each
request; the page asks again from where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.errors import CommandError
from tidelog.figures.names import DEAD, DUE, FAILURES, LATER, due_ms, jobs_of
from tidelog.jobs import rows
from tidelog.server.console import shown
from tidelog.server.console.entry import Link
from tidelog.server.console.looks import (
    JOBS,
    NotThere,
    answered,
    dead_told,
    failure_told,
    job_told,
    now_ms,
    pairs,
    pending_told,
    place_told,
)

SEARCHED: Final = 5_000  # entries that one search reads
SEARCHED_BYTES: Final = 32 << 20
PAGE: Final = 50
FOUND: Final = 20
BEFORE, BEHIND = 40, 80  # characters around what was found


def job(link: Link, db: int, key: bytes, group: bytes, wanted: bytes) -> dict[str, Any]:
    """A job: where it is now, its value, its failures, and its result.

    status    waiting, held, paused, scheduled, dead, done, or gone
    Raises NotThere, CommandError.
    """
    link.ask(b"SELECT", b"%d" % db)
    told = _at(link, key, group, wanted) or _later(link, key, wanted) or _dead(link, key, wanted)
    told = told or _after_delay(link, key, group, wanted)
    failures = link.ask(
        *(b"QUEUE", b"FAILURES", key, b"JOB", wanted, b"COUNT", b"%d" % JOBS, b"GROUP", group)
    )
    first = str((told or {}).get("first", shown.text(wanted))).encode()
    outcome = link.ask(b"QUEUE", b"RESULT", key, first, b"GROUP", group)
    if outcome and outcome[0] == b"DEAD" and (told is None or told["status"] == "done"):
        told = _dead(link, key, outcome[1]) or told
    if told is None and not failures and (not outcome or outcome[0] != b"DONE"):
        raise NotThere(
            "there is no such job: it may be done and deleted, or cancelled, or never have been put"
        )
    return {
        **place_told(key, group),
        "id": shown.text(wanted),
        "status": "done" if outcome and outcome[0] == b"DONE" else "gone",
        **(told or {}),
        "result": shown.value(outcome[1]) if outcome and outcome[0] == b"DONE" else None,
        "latest_failures": [failure_told(each) for each in failures],
    }


def _at(link: Link, key: bytes, group: bytes, wanted: bytes) -> dict[str, Any] | None:
    """A job in one of the streams of its queue."""
    streams = jobs_of(key)
    found = link.ask_all([b"XRANGE", each, wanted, wanted] for each in streams)
    for stream, entries in answered(streams, found):
        if entries:
            break
    else:
        return None
    row = entries[0][1]
    told = job_told(wanted, row) | {"first": shown.text(rows.origin_of(row) or wanted)}
    told |= {"key": rows.shown_key(row), "priority": streams.index(stream)}
    pending, groups = link.ask_all(
        ([b"XPENDING", stream, group, wanted, wanted, b"1"], [b"XINFO", b"GROUPS", stream])
    )
    if isinstance(pending, list) and pending:
        held = pending_told(pending[0])
        return told | held | {"status": "held" if held["consumer"] else "paused"}
    last = next((g["last-delivered-id"] for g in map(pairs, groups) if g["name"] == group), b"0-0")
    return told | {"status": "waiting" if ids.parse(wanted) > ids.parse(last) else "done"}


def _later(link: Link, key: bytes, wanted: bytes) -> dict[str, Any] | None:
    """A job that is delayed."""
    entries, pending = link.ask_all(
        (
            [b"XRANGE", key + LATER, wanted, wanted],
            [b"XPENDING", key + LATER, DUE, wanted, wanted, b"1"],
        )
    )
    if isinstance(pending, CommandError) or not entries or not pending:
        return None
    row = entries[0][1]
    return job_told(wanted, row) | {
        "status": "scheduled",
        "due_ms": due_ms(now_ms(link) - pending[0][2]),
        "key": rows.shown_key(row),
        "priority": rows.priority_of(row),
    }


def _dead(link: Link, key: bytes, wanted: bytes) -> dict[str, Any] | None:
    """A dead job, by its ID as one."""
    entries = link.ask(b"XRANGE", key + DEAD, wanted, wanted)
    return dead_told(*entries[0]) | {"status": "dead"} if entries else None


def _after_delay(link: Link, key: bytes, group: bytes, wanted: bytes) -> dict[str, Any] | None:
    """A job that was delayed and has another ID now, if it is among the first SEARCHED ones of its queue."""
    size = 0
    for looked, (_, _, entry, row) in enumerate(_entries(link, jobs_of(key), 0, b"-"), 1):
        if rows.origin_of(row) == wanted:
            return _at(link, key, group, entry)
        size += sum(map(len, row))
        if looked == SEARCHED or size >= SEARCHED_BYTES:
            break
    return None


# --- search


def search(link: Link, db: int, key: bytes, text: str, part: str, after: str) -> dict[str, Any]:
    """Jobs of a queue with a text in their value, key, headers or errors; a part of these, if `part` names one.

    after     where an earlier search ended; empty: begin
    looked    entries that this one has read, of `total`
    next      where it ended; empty: nothing is left
    Raises CommandError.
    """
    link.ask(b"SELECT", b"%d" % db)
    streams = [*jobs_of(key), key + LATER, key + DEAD, key + FAILURES]
    number, _, last = after.partition(":")
    at = int(number) if number.isdigit() and int(number) < len(streams) else 0
    start = b"(" + last.encode() if last and ids.parse_or_none(last.encode()) is not None else b"-"
    lengths = link.ask_all([b"XLEN", each] for each in streams)
    total = sum(length for length in lengths if isinstance(length, int))
    needle = text.lower()
    found: list[dict[str, Any]] = []
    looked = size = 0
    ended = ""
    for at, stream, entry, row in _entries(link, streams, at, start):
        looked, size = looked + 1, size + sum(map(len, row))
        hit = _hit(stream, key, row, needle, part) if needle else None
        if hit is not None:
            found.append(_found(stream, key, entry, row) | hit)
        if len(found) == FOUND or looked == SEARCHED or size >= SEARCHED_BYTES:
            ended = f"{at}:{shown.text(entry)}"
            break
    return {"found": found, "looked": looked, "total": total, "next": ended}


def _entries(
    link: Link, streams: list[bytes], at: int, start: bytes
) -> Iterator[tuple[int, bytes, bytes, list[bytes]]]:
    """(number of the stream, its key, ID, row) of the entries of streams, from `start` in the stream `at` on."""
    for number in range(at, len(streams)):
        begin = start if number == at else b"-"
        while page := link.ask(b"XRANGE", streams[number], begin, b"+", b"COUNT", b"%d" % PAGE):
            for entry, row in page:
                yield number, streams[number], entry, row
            begin = b"(" + page[-1][0]


def _hit(
    stream: bytes, key: bytes, row: list[bytes], needle: str, part: str
) -> dict[str, Any] | None:
    """The first part of a row that has the text, and what stands around it."""
    for name, text in _texts(row, failure=stream == key + FAILURES):
        if part in ("", name):
            at = text.lower().find(needle)
            if at >= 0:
                excerpt = text[max(0, at - BEFORE) : at + len(needle) + BEHIND]
                return {"part": name, "excerpt": excerpt}
    return None


def _texts(row: list[bytes], *, failure: bool) -> Iterator[tuple[str, str]]:
    fields = rows.fields_of(row)
    if failure:
        yield "error", shown.text(fields.get(b"error", b""))
        yield "error", shown.text(fields.get(b"traceback", b""))
        return
    value = shown.text(rows.value_of(row) or b"")
    yield "value", value
    if "\\u" in value:  # JSON that escapes letters
        try:
            yield "value", json.dumps(json.loads(value), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    yield "key", rows.shown_key(row) or ""
    for name, text in rows.headers_of(row).items():
        yield "header", f"{name}: {text}"
    if b"reason" in fields:
        yield "error", shown.text(fields[b"reason"])
        yield "error", shown.text(fields.get(b"errors", b""))


def _found(stream: bytes, key: bytes, entry: bytes, row: list[bytes]) -> dict[str, Any]:
    where = {key + LATER: "scheduled", key + DEAD: "dead", key + FAILURES: "failures"}
    of = rows.fields_of(row).get(b"job", entry) if stream == key + FAILURES else entry
    return {"where": where.get(stream, "jobs"), "id": shown.text(of)}
