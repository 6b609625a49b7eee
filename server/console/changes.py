"""Changes: what the console can do, each with the command that a client would use.

One call changes at most JOBS_MAX jobs and tells whether there are more, so that no request takes long. The page then
asks again. The database of the link is selected before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.figures.names import DEAD
from tidelog.server.console.entry import Link

JOBS_MAX: Final = 5_000  # dead jobs that one call changes
PAGE: Final = 100
PURGES: Final = 5  # QUEUE PURGE deletes up to 1,000 jobs each time


def purge(link: Link, key: bytes, group: bytes) -> dict[str, Any]:
    """Delete the jobs of a queue that are not in flight."""
    done, more = 0, 1
    for _ in range(PURGES):
        dropped, more = link.ask(b"QUEUE", b"PURGE", key, b"GROUP", group)
        done += dropped
        if not more:
            break
    return _told(done, bool(more))


def dead(
    link: Link, key: bytes, verb: bytes, ids: Sequence[bytes] | None, last: bytes
) -> dict[str, Any]:
    """REDRIVE or PURGE dead jobs: those with these IDs, or all up to the ID `last` (empty: the newest)."""
    if ids is not None:
        return _told(link.ask(b"QUEUE", b"DEAD", key, verb, *ids) if ids else 0)
    if not last:
        # A job that fails again meanwhile dies behind this one, and is not put back a second time.
        newest = link.ask(b"XREVRANGE", key + DEAD, b"+", b"-", b"COUNT", b"1")
        if not newest:
            return _told(0)
        last = newest[0][0]
    done = 0
    while done < JOBS_MAX:
        found = link.ask(b"XRANGE", key + DEAD, b"-", last, b"COUNT", b"%d" % PAGE)
        if not found:
            return _told(done)
        done += link.ask(b"QUEUE", b"DEAD", key, verb, *(job for job, _ in found))
    return _told(done, True, last)


def put(
    link: Link, key: bytes, value: str, delay_ms: int, priority: int, job_key: str
) -> dict[str, Any]:
    """Put a job with this text as its value; `delay_ms` 0: it is due at once, `job_key` empty: it has no key."""
    words = [b"DELAY", b"%d" % delay_ms] if delay_ms else []
    words += [b"PRIORITY", b"%d" % priority] if priority else []
    words += [b"KEY", job_key.encode("utf-8", "replace")] if job_key else []
    job = link.ask(b"QUEUE", b"PUT", key, value.encode("utf-8", "replace"), *words)
    return _told(1) | {"id": job.decode()}


def cancel(link: Link, key: bytes, job: bytes) -> dict[str, Any]:
    """Cancel a job that is not done."""
    return _told(link.ask(b"QUEUE", b"CANCEL", key, job))


def move(link: Link, key: bytes, job: bytes, delay_ms: int) -> dict[str, Any]:
    """Make a delayed job due in `delay_ms`; 0: now."""
    return _told(link.ask(b"QUEUE", b"MOVE", key, job, b"DELAY", b"%d" % delay_ms))


def schedule(link: Link, name: bytes, verb: bytes) -> dict[str, Any]:
    """PAUSE or RESUME a schedule."""
    return _told(link.ask(b"QUEUE", b"SCHEDULE", verb, name))


def _told(done: int, more: bool = False, last: bytes = b"") -> dict[str, Any]:
    return {"done": done, "more": more, "last": last.decode("ascii", "replace")}
