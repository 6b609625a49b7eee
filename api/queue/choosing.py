"""Which dead jobs: the arguments of the methods that look through them, checked, for all faces."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.jobs.rows import DeadJob
from tidelog.jobs.verbs.dead import dead_number
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError

Where = Callable[[DeadJob], bool]
Ids = str | Iterable[str] | None
Jobs = list[DeadJob]  # an alias, because `list` is a method below
Texts = list[str]


def chooser(where: Where | None, older_than: Duration | None, now: float) -> Where:
    """One condition from `where` and `older_than` (seconds). Raises DataError."""
    age = None if older_than is None else seconds("older_than", older_than, zero=True)
    if where is not None and not callable(where):
        raise DataError(
            f"the argument where must be a function that takes a dead job, not {where!r}"
        )

    def chosen(job: DeadJob) -> bool:
        if age is not None and now - job.died_at.timestamp() < age:
            return False
        return where is None or bool(where(job))

    return chosen


def at_most(count: int | None) -> None:
    """Check the `count` of `list`. Raises DataError."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise DataError(f"count must be an integer of at least 0, or None, not {count!r}")


def listed_ids(given: Ids) -> list[str] | None:
    """The IDs that the caller gave, None for all. Raises DataError."""
    if given is None:
        return None
    if not isinstance(given, Iterable):
        raise DataError(f"ids must be one ID or several IDs, not {given!r}")
    found = [given] if isinstance(given, str) else list(given)
    for id in found:
        dead_number(id)
    return found
