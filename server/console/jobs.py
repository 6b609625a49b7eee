"""Jobs: one job by its ID, and the search for jobs, as JSON made of the replies of QUEUE JOB, FIND and FAILURES."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidelog.engine.errors import CommandError
from tidelog.figures import names
from tidelog.jobs import rows
from tidelog.jobs.status import DEAD, RUNNING, JobStatus, texts
from tidelog.jobs.verbs import failures
from tidelog.jobs.verbs.job import status_told
from tidelog.server.console import shown
from tidelog.server.console.entry import Link
from tidelog.server.console.looks import (
    JOBS,
    NotThere,
    dead_told,
    failure_told,
    job_told,
    place_told,
    progress_told,
)

GONE: Final = "gone"  # the state of a job of which only failures are left
SLICES: Final = 50  # that one search looks at; jobs/search.py says how much that is
FOUND: Final = 20
FAILURES: Final = 1_000  # that one search looks at
BEFORE, BEHIND = 40, 80  # characters around what was found


def job(link: Link, db: int, key: bytes, group: bytes, wanted: bytes) -> dict[str, Any]:
    """A job, by the ID that `put` returned or another one that it has now: its state, value, failures and result.

    Raises NotThere, CommandError.
    """
    link.ask(b"SELECT", b"%d" % db)
    place, chosen = place_told(key, group), (b"GROUP", group)
    status = _status(link.ask(b"QUEUE", b"JOB", key, wanted, *chosen))
    if status is None and (dead := link.ask(b"XRANGE", key + names.DEAD, wanted, wanted)):
        return {**place, "state": DEAD, **dead_told(*dead[0]), "latest_failures": []}
    first = rows.origin_of(status.row) if status is not None and status.row else None
    if first not in (None, wanted):  # its result has the first ID
        status = _status(link.ask(b"QUEUE", b"JOB", key, first, *chosen)) or status
    told = {"id": shown.text(wanted), "state": GONE} if status is None else _told(status)
    asked = (b"JOB", str(told["id"]).encode(), b"COUNT", b"%d" % JOBS)
    failed = link.ask(b"QUEUE", b"FAILURES", key, *asked, *chosen)
    if status is None and not failed:
        raise NotThere(
            "there is no such job: it may be done and deleted, or cancelled, or never have been put"
        )
    if status is not None and status.state == RUNNING:
        lane, present = names.jobs_of(key)[status.priority], asked[1]
        (pending,) = link.ask_all([[b"XPENDING", lane, group, present, present, b"1"]])
        if isinstance(pending, list) and pending:
            told["idle_ms"] = pending[0][2]
    return {**place, **told, "latest_failures": [failure_told(each) for each in failed]}


def _status(reply: Any) -> JobStatus | None:
    return None if reply is None else status_told(reply)


def _told(status: JobStatus) -> dict[str, Any]:
    present = (status.present_id or status.id).encode()
    told: dict[str, Any] = {"id": shown.text(present), "first": status.id, "state": status.state}
    if status.state == DEAD:
        return told | dead_told(present, list(status.row))
    if status.row:
        told |= job_told(present, list(status.row))
    if status.due_at is not None:
        told["due_ms"] = rows.milliseconds(status.due_at)
    told |= {"key": status.key, "priority": status.priority}
    told |= {"consumer": status.worker, "deliveries": status.deliveries}
    if status.progress is not None:
        told["progress"] = progress_told(status.progress)
    raw = status.result_raw
    return told | {"result": None if raw is None else shown.value(raw)}


# --- search


def search(
    link: Link, db: int, key: bytes, group: bytes, text: str, part: str, after: str
) -> dict[str, Any]:
    """Jobs of a queue with a text in their value, key, headers or errors; a part of these, if `part` names one.

    after     where an earlier search ended; empty: begin, with jobs that failed so and that are done or were put anew
    next      where it ended; empty: nothing is left
    Raises CommandError.
    """
    needle, chosen = text.lower(), (b"GROUP", group)
    found: list[dict[str, Any]] = []
    place: bytes | None = after.encode("utf-8", "replace")
    link.ask(b"SELECT", b"%d" % db)
    if needle and not after and part in ("", "error"):
        found += _failed(link, key, chosen, needle, part)
    looked = (*chosen, b"TEXT", text.encode("utf-8", "replace"), b"COUNT", b"%d" % FOUND)
    for _ in range(SLICES if needle else 0):
        begin = (b"AFTER", place) if place else ()
        place, replies = link.ask(b"QUEUE", b"FIND", key, *looked, *begin)
        hits = (_hit(status_told(reply), needle, part) for reply in replies)
        found += (hit for hit in hits if hit is not None)
        if place is None or len(found) >= FOUND:
            break
    return {"found": found, "next": shown.text(place or b"")}


def _failed(
    link: Link, key: bytes, chosen: tuple[bytes, ...], needle: str, part: str
) -> Iterator[dict[str, Any]]:
    """Jobs with the text in a recorded failure which QUEUE FIND does not find by it."""
    replies = link.ask(b"QUEUE", b"FAILURES", key, b"COUNT", b"%d" % FAILURES, *chosen)
    hits: dict[str, dict[str, Any]] = {}
    for failure in map(failures.failure_told, replies):
        hit = _hit(JobStatus(failure.job_id, GONE, failures=(failure,)), needle, part)
        if hit is not None and len(hits) < FOUND:
            hits.setdefault(failure.job_id, hit)
    asked = link.ask_all([b"QUEUE", b"JOB", key, id.encode(), *chosen] for id in hits)
    for hit, reply in zip(hits.values(), asked, strict=True):
        status = None if isinstance(reply, CommandError) else _status(reply)
        if status is None:
            yield hit
        elif _hit(status, needle, part) is None:
            yield hit | {"state": status.state}


def _hit(status: JobStatus, needle: str, part: str) -> dict[str, Any] | None:
    """A job, the first part of it that has the text, and what stands around it."""
    for name, text in texts(status):
        at = text.lower().find(needle)
        if at >= 0 and part in ("", name):
            excerpt = text[max(0, at - BEFORE) : at + len(needle) + BEHIND]
            told = {"id": status.present_id or status.id, "state": status.state}
            return told | {"part": name, "excerpt": excerpt}
    return None
