"""Poison messages, compared with XPENDING of the live store."""

from __future__ import annotations

from tests.spark.jobs.conftest import Tables
from tests.spark.jobs.made import Told, ms_of, unix_ms

from tidelog.spark.jobs.poison import poison, poison_by_group

LEAST = 3


def test_poison(told: Told, tables: Tables) -> None:
    expected = [
        (group, id, consumer, count, ms_of(id), unix_ms(delivered), id not in told.deleted)
        for (group, id), (consumer, delivered, count) in told.pending.items()
        if count >= LEAST
    ]
    assert len(expected) > 3 and {row[-1] for row in expected} == {True, False}
    pending = tables("pending").cache()
    rows = poison(pending, LEAST).collect()
    found = [
        (
            *(bytes(row["group"]), row["id"], bytes(row["consumer"]), row["delivery_count"]),
            *(unix_ms(row["added_at"]), unix_ms(row["delivered_at"]), row["exists"]),
        )
        for row in rows
    ]
    assert sorted(found) == sorted(expected)
    order = [(-row[3], ms_of(row[1])) for row in found]
    assert order == sorted(order)
    by_group = {bytes(row["group"]): row for row in poison_by_group(pending, LEAST).collect()}
    pending.unpersist()
    for group in {row[0] for row in expected}:
        mine = [row for row in expected if row[0] == group]
        told_row = by_group.pop(group)
        assert told_row["messages"] == len(mine)
        assert told_row["deleted"] == sum(not row[-1] for row in mine)
        assert told_row["delivery_count_max"] == max(row[3] for row in mine)
        oldest = min(mine, key=lambda row: tuple(map(int, row[1].split("-"))))
        assert told_row["oldest_id"] == oldest[1]
        assert unix_ms(told_row["oldest_added_at"]) == oldest[4]
    assert not by_group
