"""The hottest streams and fields, compared with XRANGE of the live store."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.spark.jobs.conftest import Tables
from tests.spark.jobs.made import Told

from tidelog.spark.jobs.hot import hot_fields, hot_streams


def test_hot_streams_and_fields(told: Told, tables: Tables) -> None:
    sizes: Counter[bytes] = Counter()
    times: Counter[bytes] = Counter()
    longest: dict[bytes, int] = {}
    for _, _, fields in told.entries:
        for name, value in fields.items():
            sizes[name] += len(name) + len(value)
            times[name] += 1
            longest[name] = max(longest.get(name, 0), len(value))
    entries = tables("entries")
    (row,) = hot_streams(entries).collect()
    total = sum(sizes.values())
    assert bytes(row["stream"]) == b"orders" and row["share"] == 1.0
    assert (row["entries"], row["fields"], row["bytes"]) == (
        len(told.entries),
        sum(times.values()),
        total,
    )
    rows = hot_fields(entries).collect()
    assert [bytes(row["name"]) for row in rows] == [name for name, _ in sizes.most_common()]
    for row in rows:
        name = bytes(row["name"])
        assert (row["times"], row["bytes"], row["longest"]) == (
            times[name],
            sizes[name],
            longest[name],
        )
        assert row["share"] == pytest.approx(sizes[name] / total)
