"""The IDs and filters that select dead jobs, for `dead ls`, `dead redrive` and `dead purge`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from tidelog.api.queue.dead import Dead
from tidelog.jobs.rows import DeadJob
from tidelog.tools.failed import NotThere
from tidelog.tools.queue.store import now_ns
from tidelog.tools.queue.value import one_line
from tidelog.tools.times import duration

AGE_MAX_S: Final = 36_525 * 86_400.0  # a century is enough, and a date that long ago is still valid
_LISTED: Final = 10
_ID: Final = re.compile(r"\d{1,20}-\d{1,20}")


class Filter(NamedTuple):
    """The conditions on a dead job; None: any. A text may be a part, and its case does not matter."""

    reason: str | None
    error: str | None
    died_before: datetime | None

    def __bool__(self) -> bool:
        return any(part is not None for part in self)

    def takes(self, job: DeadJob) -> bool:
        return (
            (self.died_before is None or job.died_at < self.died_before)
            and (self.reason is None or has(job.reason, self.reason))
            and (self.error is None or any(has(e.error, self.error) for e in job.errors))
        )


def has(text: str, part: str) -> bool:
    return part.casefold() in text.casefold()


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command whose function takes a `wanted: Filter`."""

    @click.option("--reason", metavar="TEXT", help="Only jobs whose reason contains this text.")
    @click.option(
        "--error", metavar="TEXT", help="Only jobs with an error that contains this text."
    )
    @duration(
        "--older-than", "age", most=AGE_MAX_S, help="Only jobs that died longer ago than this."
    )
    @wraps(function)
    def with_filter(
        *args: Any, reason: str | None, error: str | None, age: float | None, **kwargs: Any
    ) -> Any:
        now = datetime.fromtimestamp(now_ns() / 1e9, UTC)
        before = None if age is None else now - timedelta(seconds=age)
        return function(*args, wanted=Filter(reason, error, before), **kwargs)

    return with_filter


def dead_jobs(dead: Dead, ids: Iterable[str], wanted: Filter) -> Iterator[DeadJob]:
    """The dead jobs of these IDs (none: all) that the filter takes, oldest first.

    Raises NotThere where an ID is no dead job's. The ID that it had as a job will not do: another dead job may have it.
    """
    names = list(dict.fromkeys(ids))
    return filter(wanted.takes, by_ids(dead, names) if names else iter(dead))


def by_ids(dead: Dead, names: list[str]) -> list[DeadJob]:
    found = {name: dead.get(name) if _ID.fullmatch(name) else None for name in names}
    lost = {name for name, job in found.items() if job is None}
    if lost:
        known = [f"{job.original_id} is now {job.id}" for job in dead if job.original_id in lost]
        hint = f" ({listed(known)})" if known else ""
        raise NotThere(
            f"there is no dead job {listed([name for name in names if name in lost])}{hint};"
            " list the dead jobs with: tidelog queue dead ls"
        )
    jobs = [job for job in found.values() if job is not None]
    return sorted(jobs, key=lambda job: tuple(map(int, job.id.split("-"))))


def listed(texts: list[str]) -> str:
    """As many of them as an error bears."""
    return ", ".join(map(one_line, texts[:_LISTED])) + (", ..." if len(texts) > _LISTED else "")


def matching(dead: Dead, name: str) -> list[DeadJob]:
    """The dead jobs that have this ID, or had it as jobs. Raises NotThere."""
    found = [job for job in dead if name in (job.id, job.original_id)]
    return found or by_ids(dead, [name])
