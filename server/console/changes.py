"""Changes: what the console can do, each with the command that a client would use.

One call changes at most JOBS_MAX jobs and tells whether there are more, so that no request takes long. The page then
asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.figures.names import DEAD
from tidelog.server.console.entry import Link

JOBS_MAX: Final = 5_000  # dead jobs that one call changes
PAGE: Final = 100
PURGES: Final = 5  # QUEUE PURGE deletes up to 1,000 jobs each time


def redrive(
    link: Link, db: int, key: bytes, ids: Sequence[bytes] | None, last: bytes
) -> dict[str, Any]:
    """Put dead jobs back into the queue: those with these IDs, or all up to the ID `last` (empty: the newest)."""
    return _dead(link, db, key, b"REDRIVE", ids, last)


def purge_dead(
    link: Link, db: int, key: bytes, ids: Sequence[bytes] | None, last: bytes
) -> dict[str, Any]:
    """Delete dead jobs, chosen as by `redrive`."""
    return _dead(link, db, key, b"PURGE", ids, last)


def purge(link: Link, db: int, key: bytes, group: bytes) -> dict[str, Any]:
    """Delete the jobs of a queue that are not in flight."""
    link.ask(b"SELECT", b"%d" % db)
    done, more = 0, 1
    for _ in range(PURGES):
        dropped, more = link.ask(b"QUEUE", b"PURGE", key, b"GROUP", group)
        done += dropped
        if not more:
            break
    return {"done": done, "more": bool(more), "last": ""}


def _dead(
    link: Link, db: int, key: bytes, verb: bytes, ids: Sequence[bytes] | None, last: bytes
) -> dict[str, Any]:
    link.ask(b"SELECT", b"%d" % db)
    if ids is not None:
        done = link.ask(b"QUEUE", b"DEAD", key, verb, *ids) if ids else 0
        return {"done": done, "more": False, "last": ""}
    if not last:
        # A job that fails again meanwhile dies behind this one, and is not put back a second time.
        newest = link.ask(b"XREVRANGE", key + DEAD, b"+", b"-", b"COUNT", b"1")
        if not newest:
            return {"done": 0, "more": False, "last": ""}
        last = newest[0][0]
    done = 0
    while done < JOBS_MAX:
        found = link.ask(b"XRANGE", key + DEAD, b"-", last, b"COUNT", b"%d" % PAGE)
        if not found:
            return {"done": done, "more": False, "last": ""}
        done += link.ask(b"QUEUE", b"DEAD", key, verb, *(job for job, _ in found))
    return {"done": done, "more": True, "last": last.decode("ascii", "replace")}


def put(
    link: Link, db: int, key: bytes, value: str, delay_ms: int, priority: int, job_key: str
) -> dict[str, Any]:
    """Put a job with this text as its value; `delay_ms` 0: it is due at once, `job_key` empty: it has no key."""
    link.ask(b"SELECT", b"%d" % db)
    words = [b"DELAY", b"%d" % delay_ms] if delay_ms else []
    words += [b"PRIORITY", b"%d" % priority] if priority else []
    words += [b"KEY", job_key.encode("utf-8", "replace")] if job_key else []
    job = link.ask(b"QUEUE", b"PUT", key, value.encode("utf-8", "replace"), *words)
    return {"done": 1, "more": False, "last": "", "id": job.decode()}


def cancel(link: Link, db: int, key: bytes, job: bytes) -> dict[str, Any]:
    """Cancel a job that is not done."""
    link.ask(b"SELECT", b"%d" % db)
    return _one(link.ask(b"QUEUE", b"CANCEL", key, job))


def move(link: Link, db: int, key: bytes, job: bytes, delay_ms: int) -> dict[str, Any]:
    """Make a delayed job due in `delay_ms`; 0: now."""
    link.ask(b"SELECT", b"%d" % db)
    return _one(link.ask(b"QUEUE", b"MOVE", key, job, b"DELAY", b"%d" % delay_ms))


def schedule(link: Link, db: int, name: bytes, verb: bytes) -> dict[str, Any]:
    """PAUSE or RESUME a schedule."""
    link.ask(b"SELECT", b"%d" % db)
    return _one(link.ask(b"QUEUE", b"SCHEDULE", verb, name))


def _one(done: int) -> dict[str, Any]:
    return {"done": done, "more": False, "last": ""}
