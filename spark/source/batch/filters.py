"""Filters that Spark pushes down: what they allow to skip.

They only narrow the selection, and Spark applies all of them again to the rows. So a filter that is not understood, or
understood in part, costs time and never a wrong row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tidelog.engine.ids import MAX, SEQ_MAX
from tidelog.spark.source.batch.columns import Span
from tidelog.spark.source.batch.plan import Selection


def narrowed(selection: Selection, filters: Iterable[Filter]) -> Selection:
    """The selection without what the filters certainly exclude."""
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) == 1:
            selection = _narrow(selection, attribute[0], each)
    return selection


def _narrow(selection: Selection, column: str, each: Filter) -> Selection:
    if column in ("stream", "db"):
        values = _values(each)
        if values is None:
            return selection
        if column == "stream":
            names = frozenset(bytes(value) for value in values if isinstance(value, (bytes, bytearray)))  # fmt: skip
            known = selection.names
            return selection._replace(names=names if known is None else known & names)
        dbs = frozenset(value for value in values if isinstance(value, int))
        return selection._replace(dbs=dbs if selection.dbs is None else selection.dbs & dbs)
    bounds = _bounds(column, each)
    if bounds is None:
        return selection
    start, end = selection.span
    return selection._replace(span=Span(max(start, bounds[0]), min(end, bounds[1])))


def _values(each: Filter) -> tuple[Any, ...] | None:
    """The values that a column may have; None if the filter does not say."""
    if isinstance(each, EqualTo):
        return (each.value,)
    if isinstance(each, In):
        return tuple(each.value)
    return None


def _bounds(column: str, each: Filter) -> tuple[int, int] | None:
    """The least and greatest ID that an entry may have; None if the filter does not say.

    A filter on `id` compares texts, and their order is not that of the IDs, so only equality narrows.
    """
    if column == "id":
        ids = [_id(value) for value in _values(each) or ()]
        known = [entry_id for entry_id in ids if entry_id is not None]
        if not ids or len(known) < len(ids):
            return None
        return min(known), max(known)
    if column not in ("ms", "ts"):
        return None
    values = _values(each)
    if values is not None:
        times = [_ms(column, value) for value in values]
        if not times or None in times:
            return None
        sure = [time for time in times if time is not None]
        return _first(min(sure)), _last(max(sure))
    time = _ms(column, getattr(each, "value", None))
    if time is None:
        return None
    if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
        return _first(time), MAX
    if isinstance(each, (LessThan, LessThanOrEqual)):
        return 0, _last(time)
    return None


def _first(ms: int) -> int:
    return max(ms, 0) << 64


def _last(ms: int) -> int:
    return min(ms << 64 | SEQ_MAX, MAX) if ms >= 0 else 0


def _ms(column: str, value: Any) -> int | None:
    """Unix ms of a value, rounded down."""
    if column == "ms":
        return value if isinstance(value, int) else None
    if isinstance(value, datetime):
        zoned = value if value.tzinfo is not None else value.astimezone(UTC)
        return int(zoned.timestamp() * 1000 // 1)
    return None


def _id(value: Any) -> int | None:
    ms, _, seq = str(value).partition("-")
    if not (ms.isdigit() and seq.isdigit() and int(ms) <= SEQ_MAX and int(seq) <= SEQ_MAX):
        return None
    return int(ms) << 64 | int(seq)
