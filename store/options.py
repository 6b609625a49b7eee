"""Options of an open, and their checks. They are not stored."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from tidelog.aof.bookmarks import KEEP_BYTES
from tidelog.aof.log import POLICIES, SEGMENT_BYTES
from tidelog.store.errors import DataError

SEGMENT_BYTES_MIN: Final = 4096
SEGMENT_BYTES_MAX: Final = 1 << 40
CHECKPOINT_BYTES: Final = 64 << 20
# Redis's defaults, as (seconds, changes): make a checkpoint after this time if there were at least this many changes.
SAVE: Final = ((3600.0, 1), (300.0, 100), (60.0, 10_000))
MEMORY_BUDGET_MIN: Final = 1 << 20
MAXDISK_MIN: Final = 1 << 20
RETAIN_BYTES: Final = 64 << 20
# How long the dead jobs of a queue are kept, and how many, in a store that was created with these limits: since 0.2.
KEEP_DEAD_SECONDS: Final = 30 * 86_400.0
KEEP_DEAD_JOBS: Final = 100_000

if TYPE_CHECKING:
    from tidelog.disk.interface import Disk
    from tidelog.store.clock import Clock
    from tidelog.store.durations import Duration

Rules = tuple[tuple[float, int], ...]


class KeepDead(NamedTuple):
    """Limits for the dead jobs of each queue: their age in seconds, and their number; 0 = no limit."""

    seconds: float
    jobs: int


class Options(NamedTuple):
    """How a store is kept; `tidelog.open` describes each option.

    save            rules (seconds, changes), the longest time first
    memory_budget   bytes, None = nothing is evicted
    maxdisk         bytes, None = no quota
    retain_seconds  None = segments are retained by bytes alone
    snapshot_every  seconds, None = no automatic snapshots
    keep_dead_seconds, keep_dead_jobs
                    0 = no limit, None = as the store was created
    """

    fsync: str = "always"
    read_only: bool = False
    segment_bytes: int = SEGMENT_BYTES
    checkpoint_bytes: int = CHECKPOINT_BYTES
    save: Rules = SAVE
    memory_budget: int | None = None
    retain_bytes: int = RETAIN_BYTES
    retain_seconds: float | None = None
    keep_snapshots: int = 0
    snapshot_every: float | None = None
    retain_bookmark_bytes: int = KEEP_BYTES
    maxdisk: int | None = None
    keep_dead_seconds: float | None = None
    keep_dead_jobs: int | None = None

    def keep_dead(self, limited: bool) -> KeepDead:
        """The limits in force. limited: whether the store was created with some."""
        seconds, jobs = self.keep_dead_seconds, self.keep_dead_jobs
        return KeepDead(
            (KEEP_DEAD_SECONDS if limited else 0.0) if seconds is None else seconds,
            (KEEP_DEAD_JOBS if limited else 0) if jobs is None else jobs,
        )


class StoreOptions(TypedDict, total=False):
    """The options of `tidelog.open` other than `decode_responses`, for overloads. `tidelog.open` describes them."""

    fsync: str
    read_only: bool
    memory_budget: int | None
    maxdisk: int | None
    checkpoint_bytes: int
    save: Iterable[tuple[float, int]]
    snapshot_every: float | timedelta | None
    keep_snapshots: int
    retain_bytes: int
    retain_seconds: float | timedelta | None
    retain_bookmark_bytes: int
    keep_dead_seconds: float | timedelta | None
    keep_dead_jobs: int | None
    segment_bytes: int
    lock_timeout: Duration
    disk: Disk | None
    clock: Clock


class ConnectOptions(TypedDict, total=False):
    """The options of `tidelog.connect` other than `decode_responses`, for overloads."""

    fsync: str | None
    timeout: Duration
    tls_ca: str | os.PathLike[str] | None
    tls_cert: str | os.PathLike[str] | None
    tls_key: str | os.PathLike[str] | None
    start: bool


def make_options(**given: Any) -> Options:
    """The options of an open, checked. Raises DataError, which names the invalid option."""
    given["save"] = _rules(given.get("save", SAVE))
    for name in ("retain_seconds", "snapshot_every"):
        given[name] = _seconds(name, given.get(name))
    given["keep_dead_seconds"] = _seconds(
        "keep_dead_seconds", given.get("keep_dead_seconds"), zero=True
    )
    options = Options(**given)
    if options.fsync not in POLICIES:
        raise DataError(f"fsync must be one of: {', '.join(POLICIES)}")
    _whole("segment_bytes", options.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    _whole("checkpoint_bytes", options.checkpoint_bytes, 0)
    _whole("retain_bytes", options.retain_bytes, 0)
    _whole("retain_bookmark_bytes", options.retain_bookmark_bytes, 0)
    _whole("keep_snapshots", options.keep_snapshots, 0)
    if options.memory_budget is not None:
        _whole("memory_budget", options.memory_budget, MEMORY_BUDGET_MIN)
    if options.maxdisk is not None:
        _whole("maxdisk", options.maxdisk, MAXDISK_MIN)
    if options.keep_dead_jobs is not None:
        _whole("keep_dead_jobs", options.keep_dead_jobs, 0)
    return options


def _whole(name: str, value: Any, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        bounds = f"of at least {low}"
    elif high is not None and value > high:
        bounds = f"from {low} to {high}"
    else:
        return
    if high is not None:
        bounds = f"from {low} to {high}"
    raise DataError(f"{name} must be an integer {bounds}, not {value!r}")


def _seconds(name: str, value: Any, zero: bool = False) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not (seconds > 0 or zero and seconds == 0):
        least = "of at least 0" if zero else "above 0"
        raise DataError(f"{name} must be a number of seconds {least} or a timedelta, not {value!r}")
    if seconds > 1e12 or math.isnan(seconds):
        raise DataError(f"{name} must be at most 1,000,000,000,000 seconds, not {value!r}")
    return float(seconds)


def _rules(save: Any) -> Rules:
    """The rules of `save`: pairs, or an empty iterable for no rules."""
    rules: list[tuple[float, int]] = []
    if not isinstance(save, Iterable) or isinstance(save, (str, bytes)):
        raise DataError(f"save must be pairs of (seconds, changes), not {save!r}")
    for pair in save:
        try:
            seconds, changes = pair
        except (TypeError, ValueError):
            raise DataError(f"save must be pairs of (seconds, changes), not {pair!r}") from None
        found = _seconds("the seconds of save", seconds)
        _whole("the changes of save", changes, 1)
        assert found is not None
        rules.append((found, changes))
    return tuple(sorted(rules, reverse=True))
