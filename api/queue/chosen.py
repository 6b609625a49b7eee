"""Chosen: what a caller does with dead jobs, for threads, of an open store and of a shared one.

Generated from achosen.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidelog.api.queue.choosing import Jobs, Texts, Where, at_most, chooser
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.verbs.dead import PAGE, ChangeDead, dead_number


def first_chosen(jobs: Iterable[DeadJob], count: int | None, where: Where | None) -> Jobs:
    """The first `count` jobs for which `where` is true; None = all. Raises DataError before it takes a job."""
    chosen = chooser(where, None, 0)
    at_most(count)
    found: Jobs = []
    for job in jobs:
        if count is not None and len(found) >= count:
            break
        if chosen(job):
            found.append(job)
    return found


def named_pages(get: Callable[[str], Any], ids: Texts) -> Iterator[Jobs]:
    """The jobs with these IDs that `get` finds, page by page."""
    found = [get(id) for id in dict.fromkeys(ids)]
    jobs: Jobs = [job for job in found if job is not None]
    for at in range(0, len(jobs), PAGE):
        yield jobs[at : at + PAGE]


def changed(
    ask: Callable[[ChangeDead], Any],
    pages: Iterable[Jobs],
    chosen: Where,
    change: type[ChangeDead] | None,
) -> int:
    """Change the chosen jobs of these pages; None = only count them. Returns how many."""
    total = 0
    for page in pages:
        wanted = tuple(dead_number(job.id) for job in page if chosen(job))
        if change is None or not wanted:
            total += len(wanted)
        else:
            total += ask(change(wanted))
    return total
