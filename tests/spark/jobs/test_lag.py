"""Lag over snapshots, compared with XINFO GROUPS at the moment of each snapshot."""

from __future__ import annotations

from typing import Any

from tests.spark.jobs.conftest import Tables
from tests.spark.jobs.made import Told

from tidelog.spark.jobs.lag import lag_over_snapshots


def test_lag_over_snapshots(told: Told, tables: Tables) -> None:
    expected = set()
    before: dict[bytes, tuple[Any, Any]] = {}
    for path, lsn, groups in told.groups:
        for name, (lag, pending, entries_read) in groups.items():
            behind = None if lag is None else lag + pending
            change = read = added = None
            if name in before:
                lag_before, read_before = before[name]
                if None not in (lag, lag_before):
                    change = lag - lag_before
                if None not in (entries_read, read_before):
                    read = entries_read - read_before
                if change is not None and read is not None:
                    added = read + change
            before[name] = lag, entries_read
            expected.add((0, b"orders", name, path, lsn, lag, pending, behind, change, read, added))
    assert len(expected) == 6
    rows = lag_over_snapshots(tables("groups", snapshot="all")).collect()
    assert {tuple(bytes(v) if isinstance(v, bytearray) else v for v in r) for r in rows} == expected
