"""Looks: what the console shows, as JSON made of the replies of ordinary commands.

Each look is bounded: in the keys that it scans, in the rows that it lists, and in the length of values (shown.py).
Commands that the user may not run on a key leave that key out of a list; a page about the key is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.errors import CommandError
from tidelog.figures.asked import ALIVE_MS, is_helper_told
from tidelog.figures.names import DEAD, HELPERS, LANES, LATER, SCHEDULES, is_job, jobs_of, owner_of
from tidelog.jobs import rows
from tidelog.jobs.codecs import NAMED
from tidelog.jobs.progress import Progress
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.rules import Rule
from tidelog.jobs.verbs.workers import AskWorkers
from tidelog.server.console import shown
from tidelog.server.console.entry import Link
from tidelog.store.errors import DataError

SCANS: Final = 20  # per list
SCANNED: Final = 1000  # keys of one scan
STREAMS_MAX: Final = 200
GROUPS_MAX: Final = 20  # of one stream
CONSUMERS_MAX: Final = 100
ENTRIES: Final = 20
JOBS: Final = 20
TICKS: Final = 3  # of a schedule
GROUP: Final = b"workers"  # that a queue has before a worker came
_INFO: Final = b"server clients memory stats persistence replication keyspace tidelog".split()


class NotThere(Exception):
    """There is no such stream or queue."""


def pairs(reply: Any) -> dict[str, Any]:
    """A reply of names and values in turn as a dict."""
    return {shown.text(name): item for name, item in zip(reply[::2], reply[1::2], strict=True)}


def plain(item: Any) -> Any:
    """A reply as JSON, its bytes as text."""
    if isinstance(item, bytes):
        return shown.text(item)
    return [plain(each) for each in item] if isinstance(item, list) else item


# --- the store


def overview(link: Link) -> dict[str, Any]:
    """The fields of INFO, section by section, as they are."""
    found: dict[str, dict[str, str]] = {}
    for line in shown.text(link.ask(b"INFO", *_INFO)).splitlines():
        if line.startswith("#"):
            section = found.setdefault(line[1:].strip().lower(), {})
        elif line:
            name, _, value = line.partition(":")
            section[name] = value
    return {"info": found}


def now_ms(link: Link) -> int:
    """The server's time in unix ms, by which the page tells how long ago something was."""
    (reply,) = link.ask_all([[b"TIME"]])
    if isinstance(reply, CommandError):
        return time.time_ns() // 1_000_000  # the user may not ask
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


# --- lists


def streams(link: Link, db: int) -> dict[str, Any]:
    """The streams of a database with their figures, without those that queues keep for themselves.

    complete   no key was left out
    """
    scanned, complete = _scan(link, db)
    about = link.ask_all([b"XINFO", b"STREAM", key] for key in scanned)
    told = [
        (key, facts)
        for key, facts in answered(scanned, map(replied, about))
        if not is_helper_told(key, facts["first-entry"], owner_of(key) in scanned)
    ]
    found = [_stream(key, facts) | {"groups": []} for key, facts in told]
    groups = link.ask_all([b"XINFO", b"GROUPS", key] for key, _ in told)
    for row, reply in zip(found, groups, strict=True):
        if not isinstance(reply, CommandError):
            row["groups"] = [_group(pairs(each)) for each in reply[:GROUPS_MAX]]
    return {"streams": found, "complete": complete}


def queues(link: Link, db: int) -> dict[str, Any]:
    """The queues of a database."""
    scanned, complete = _scan(link, db)
    places = _places(link, scanned)
    stats = link.ask_all(
        [b"QUEUE", b"STATS", key, b"MORE", b"GROUP", group] for key, group in places
    )
    streams = {each for key, _ in places for each in jobs_of(key)}.intersection(scanned)
    about = link.ask_all([b"XINFO", b"STREAM", key] for key in streams)
    added = {
        key: facts["entries-added"] for key, facts in answered([*streams], map(replied, about))
    }
    found = [
        _queue(key, group, pairs(told), sum(added.get(each, 0) for each in jobs_of(key)))
        for (key, group), told in zip(places, stats, strict=True)
        if not isinstance(told, CommandError)
    ]
    found.sort(key=lambda row: (row["name"], row["group"]))
    return {"queues": found, "complete": complete}


def _places(link: Link, scanned: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The queues among these streams, each with its groups, by the rule of jobs/names.py."""
    scanned = [key for key in scanned if key != SCHEDULES]
    keys = [key for key in scanned if not key.endswith(HELPERS) and shown.text(key).encode() == key]
    # A queue may have dead, delayed or urgent jobs only.
    ends = {owner_of(key) or b"" for key in scanned if key.endswith((DEAD, LATER, *LANES))}
    places = [(key, GROUP) for key in sorted(ends - {*keys}) if shown.text(key).encode() == key]
    beside = {owner_of(key) for key in scanned}
    alone = [key for key in keys if key not in beside]
    first = link.ask_all([b"XRANGE", key, b"-", b"+", b"COUNT", b"1"] for key in alone)
    told = dict(answered(alone, first))
    keys = [key for key in keys if not told.get(key) or is_job(told[key][0][1])]
    for key, reply in answered(keys, link.ask_all([b"XINFO", b"GROUPS", key] for key in keys)):
        places += [(key, pairs(each)["name"]) for each in reply[:GROUPS_MAX]]
        if not reply and (key in beside or told.get(key)):
            places.append((key, GROUP))
    return places


def workers(link: Link, db: int) -> dict[str, Any]:
    """The workers of the queues of a database, each with the first jobs that it holds.

    idle_ms   since it asked for jobs, got some, or renewed a lease
    """
    scanned, complete = _scan(link, db)
    there = {*scanned}
    places = [
        (key, each, group)
        for key, group in _places(link, scanned)
        for each in jobs_of(key)
        if each in there
    ]
    listed = link.ask_all([b"XINFO", b"CONSUMERS", each, group] for _, each, group in places)
    count = b"%d" % CONSUMERS_MAX
    pending = link.ask_all(
        [b"XPENDING", each, group, b"-", b"+", count] for _, each, group in places
    )
    found: dict[tuple[bytes, bytes, bytes], dict[str, Any]] = {}
    for (key, _, group), members, held in zip(places, listed, pending, strict=True):
        if isinstance(members, CommandError):
            continue
        for facts in map(pairs, members[:CONSUMERS_MAX]):
            row = found.setdefault(
                (facts["name"], key, group),
                {
                    "worker": shown.text(facts["name"]),
                    **place_told(key, group),
                    **{"pending": 0, "hanging": 0, "idle_ms": facts["idle"], "held": []},
                },
            )
            row["pending"] += facts["pending"]
            row["idle_ms"] = min(row["idle_ms"], facts["idle"])
        for job in [] if isinstance(held, CommandError) else held:
            row = found.get((job[1], key, group), {"held": [None] * JOBS})
            if len(row["held"]) < JOBS:
                row["held"].append(pending_told(job))
    asked = list(dict.fromkeys((key, group) for key, _, group in places))
    told = link.ask_all([b"QUEUE", b"WORKERS", key, b"GROUP", group] for key, group in asked)
    for (key, group), reply in zip(asked, told, strict=True):
        for status in [] if isinstance(reply, CommandError) else AskWorkers().result(reply):
            row = found.get((rows.unshown(status.name), key, group), {"held": []})
            row["hanging"] = status.hanging
            for held in row["held"]:
                if (come := status.progress.get(held["id"])) is not None:
                    held["progress"] = progress_told(come)
    ordered = sorted(found.values(), key=lambda row: (row["worker"], row["name"], row["group"]))
    return {"workers": ordered, "alive_ms": ALIVE_MS, "complete": complete}


def progress_told(come: Progress) -> dict[str, Any]:
    """How far a job has come."""
    return {"fraction": come.fraction, "text": come.text}


def schedules(link: Link, db: int) -> dict[str, Any]:
    """The schedules of a database, each with its next ticks in unix ms."""
    link.ask(b"SELECT", b"%d" % db)
    found = []
    for facts in map(pairs, link.ask(b"QUEUE", b"SCHEDULES")):
        told = {name: plain(item) for name, item in facts.items() if name != "value"}
        found.append(
            told
            | {"ref": shown.ref(facts["name"]), "place": place_told(facts["queue"], GROUP)}
            | {"value": shown.value(facts["value"]), "ticks_ms": _ticks(facts)}
        )
    return {"schedules": sorted(found, key=lambda row: str(row["name"]))}


def _ticks(facts: dict[str, Any]) -> list[int]:
    """The next ticks of a schedule; none of a paused one."""
    found: list[int] = []
    at = facts["next_ms"]
    cron, tz = plain(facts["cron"]), plain(facts["tz"])
    rule = Rule(b"", b"", b"", cron, tz, facts["every_ms"] or 0, at or 0, "one")
    while at is not None and len(found) < TICKS:
        found.append(at)
        try:
            at = rule.after(at)
        except DataError:
            break  # a time zone that this machine does not know
    return found


def _scan(link: Link, db: int) -> tuple[list[bytes], bool]:
    """The first STREAMS_MAX streams by name among SCANS * SCANNED keys, and whether these are all."""
    link.ask(b"SELECT", b"%d" % db)
    keys: set[bytes] = set()
    cursor = b"0"
    for _ in range(SCANS):
        reply = link.ask(b"SCAN", cursor, b"TYPE", b"stream", b"COUNT", b"%d" % SCANNED)
        cursor = reply[0]
        keys.update(reply[1])
        if cursor == b"0":
            break
    return sorted(keys)[:STREAMS_MAX], cursor == b"0" and len(keys) <= STREAMS_MAX


def replied(reply: Any) -> Any:
    """A reply of names and values in turn as a dict, unless it is an error."""
    return reply if isinstance(reply, CommandError) else pairs(reply)


def answered(keys: list[bytes], replies: Iterable[Any]) -> list[tuple[bytes, Any]]:
    """The keys whose command did not fail: a key may be gone by now, or not for this user."""
    both = zip(keys, replies, strict=True)
    return [(key, reply) for key, reply in both if not isinstance(reply, CommandError)]


def _stream(key: bytes, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": shown.text(key),
        "ref": shown.ref(key),
        "length": facts["length"],
        "added": facts["entries-added"],
        "last_id": plain(facts["last-generated-id"]),
    }


def _group(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": shown.text(facts["name"]),
        "ref": shown.ref(facts["name"]),
        "consumers": facts["consumers"],
        "pending": facts["pending"],
        "last_id": plain(facts["last-delivered-id"]),
        "read": facts["entries-read"],
        "lag": facts["lag"],
    }


def _queue(key: bytes, group: bytes, stats: dict[str, Any], added: int) -> dict[str, Any]:
    figures = {name: _number(item) for name, item in stats.items() if name not in ("name", "group")}
    for told in ("in_flight", "by_priority"):
        figures[told] = {shown.text(name): n for name, n in _twos(stats[told])}
    return {**place_told(key, group), "added": added, **figures}


def place_told(key: bytes, group: bytes) -> dict[str, str]:
    """A queue and its group as the page shows them, and as it sends them back."""
    return {
        "name": shown.text(key),
        "ref": shown.ref(key),
        "group": shown.text(group),
        "group_ref": shown.ref(group),
    }


def _twos(items: list[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(items[::2], items[1::2], strict=True)


def _number(item: Any) -> Any:
    return float(item) if isinstance(item, bytes) else item


# --- one stream


def stream(link: Link, db: int, key: bytes) -> dict[str, Any]:
    """A stream: its groups with their consumers and oldest pending entries, and its newest entries.

    Raises NotThere, CommandError.
    """
    link.ask(b"SELECT", b"%d" % db)
    facts = pairs(_there(link, b"XINFO", b"STREAM", key))
    groups = [pairs(each) for each in link.ask(b"XINFO", b"GROUPS", key)[:GROUPS_MAX]]
    told = []
    for group in groups:
        name = group["name"]
        listed = link.ask(b"XINFO", b"CONSUMERS", key, name)[:CONSUMERS_MAX]
        oldest = link.ask(b"XPENDING", key, name, b"-", b"+", b"%d" % ENTRIES)
        told.append(
            _group(group)
            | {
                "members": [
                    {word: plain(item) for word, item in pairs(each).items()} for each in listed
                ],
                "oldest": [pending_told(row) for row in oldest],
            }
        )
    newest = link.ask(b"XREVRANGE", key, b"+", b"-", b"COUNT", b"%d" % ENTRIES)
    return _stream(key, facts) | {
        "max_deleted_id": plain(facts["max-deleted-entry-id"]),
        "nodes": facts["radix-tree-keys"],
        "groups": told,
        "entries": [_entry(entry_id, row) for entry_id, row in newest],
    }


def _there(link: Link, *words: bytes) -> Any:
    try:
        return link.ask(*words)
    except CommandError as error:
        if b"no such key" in error.line:
            raise NotThere("there is no such stream; it may have been deleted meanwhile") from None
        raise


def _entry(entry_id: bytes, row: list[bytes]) -> dict[str, Any]:
    return {
        "id": shown.text(entry_id),
        "fields": [[shown.text(name), shown.value(item)] for name, item in _twos(row)],
    }


def pending_told(row: list[Any]) -> dict[str, Any]:
    """A pending entry, as XPENDING lists it."""
    return {
        "id": shown.text(row[0]),
        "consumer": shown.text(row[1]),
        "idle_ms": row[2],
        "deliveries": row[3],
    }


# --- one queue


def queue(link: Link, db: int, key: bytes, group: bytes, before: bytes) -> dict[str, Any]:
    """A queue: its figures, the next jobs, delayed ones, those in hand, failures, and dead jobs, newest first.

    before    the page of dead jobs before this ID; empty: the newest
    Raises NotThere, CommandError.
    """
    link.ask(b"SELECT", b"%d" % db)
    streams = jobs_of(key)
    about = link.ask_all([b"XINFO", b"STREAM", each] for each in streams)
    if isinstance(about[0], CommandError):
        ends = [key + DEAD, key + LATER, *streams[1:]]
        if b"no such key" not in about[0].line or not link.ask(b"EXISTS", *ends):
            _there(link, b"XINFO", b"STREAM", key)
    added = sum(facts["entries-added"] for _, facts in answered(streams, map(replied, about)))
    chosen = (b"GROUP", group)
    stats = pairs(link.ask(b"QUEUE", b"STATS", key, b"MORE", *chosen))
    count = b"%d" % JOBS
    waiting = link.ask(b"QUEUE", b"PEEK", key, b"COUNT", count, *chosen)
    later = link.ask(b"QUEUE", b"PEEK", key, b"COUNT", count, b"SCHEDULED", *chosen)
    failures = link.ask(b"QUEUE", b"FAILURES", key, b"COUNT", count, *chosen)
    until = b"(" + before if before else b"+"
    dead = link.ask(b"XREVRANGE", key + DEAD, until, b"-", b"COUNT", count)
    return {
        **_queue(key, group, stats, added),
        "jobs": [job_told(job, row) for job, row in waiting],
        "later": [job_told(job, row) | {"due_ms": due} for job, row, due in later],
        "held": _held(link, streams, group),
        "latest_failures": [failure_told(each) for each in failures],
        "dead_jobs": [dead_told(job, row) for job, row in dead],
        "dead_more": len(dead) == JOBS,
    }


def _held(link: Link, streams: list[bytes], group: bytes) -> list[dict[str, Any]]:
    """The first jobs that workers hold or that wait for their retry, with their values: those of lane 0, then those of
    the lanes.
    """
    asked = ([b"XPENDING", key, group, b"-", b"+", b"%d" % JOBS] for key in streams)
    told = answered(streams, link.ask_all(asked))
    pending = [(key, row) for key, found in told for row in found][:JOBS]
    entries = link.ask_all([b"XRANGE", key, row[0], row[0]] for key, row in pending)
    return [
        pending_told(row) | job_told(row[0], found[0][1] if found else [])
        for (_, row), found in zip(pending, entries, strict=True)
        if not isinstance(found, CommandError)
    ]


def job_told(job: bytes, row: list[bytes]) -> dict[str, Any]:
    """A job by its row, or the fields of an entry that is none."""
    told = {"id": shown.text(job), "headers": rows.headers_of(row)}
    raw = rows.value_of(row) if row else None
    if raw is None:
        return told | {"value": None, "fields": _entry(job, row)["fields"]}
    return told | {"value": shown.value(raw)}


def failure_told(row: list[Any]) -> dict[str, Any]:
    """A recorded failure, as QUEUE FAILURES lists it."""
    job, at_ms, worker, deliveries, error, trace = map(plain, row)
    return {
        "job": job,
        "at_ms": at_ms,
        "worker": worker,
        "delivery": deliveries,
        "error": error[: shown.CHARS_MAX],
        "traceback": trace[: shown.CHARS_MAX],
    }


def dead_told(job: bytes, row: list[bytes]) -> dict[str, Any]:
    """A dead job by its row."""
    found = DeadJob(ids.parse(job), tuple(row), NAMED["bytes"], "")
    return {
        "id": found.id,
        "original_id": found.original_id,
        "died_ms": ids.parse(job) >> 64,
        "reason": found.reason[: shown.CHARS_MAX],
        "deliveries": found.deliveries,
        "group": found.group,
        "workers": found.workers,
        "headers": found.headers,
        "codec": found.codec,
        "value": shown.value(found.raw, found.codec),
        "failures": [
            {
                "at_ms": rows.milliseconds(failure.at),
                "worker": failure.worker,
                "delivery": failure.deliveries,
                "error": failure.error[: shown.CHARS_MAX],
                "traceback": failure.traceback[: shown.CHARS_MAX],
            }
            for failure in found.errors[:JOBS]
        ],
    }
