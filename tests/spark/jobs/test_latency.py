"""Latency and redeliveries, by group and consumer, compared with what the store's user did."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC
from typing import TYPE_CHECKING, Any

from tests.spark.jobs.conftest import Tables
from tests.spark.jobs.made import EVENTS, Told, ms_of, rank, unix_ms

from tidelog.spark.jobs.latency import delivery_latency, pending_latency

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quantiles(name: str, values: list[int]) -> dict[str, Any]:
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {f"{name}_{label}": rank(values, share) for label, share in shares.items()}


def test_pending_latency(told: Told, tables: Tables) -> None:
    expected: dict[Any, dict[str, Any]] = {}
    by_consumer: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for (group, id), (consumer, delivered, count) in told.pending.items():
        by_consumer[group, consumer].append((unix_ms(delivered) - ms_of(id), count))
    for key, found in by_consumer.items():
        expected[key] = {
            "pending": len(found),
            "redelivered": sum(count > 1 for _, count in found),
            "deliveries_max": max(count for _, count in found),
            **quantiles("latency_ms", [waited for waited, count in found if count == 1]),
        }
    assert len(expected) == 4 and any(row["redelivered"] for row in expected.values())
    rows = [row.asDict() for row in pending_latency(tables("pending")).collect()]
    told_rows = {(bytes(row.pop("group")), bytes(row.pop("consumer"))): row for row in rows}
    for row in told_rows.values():
        assert (row.pop("db"), bytes(row.pop("stream"))) == (0, b"orders")
    assert told_rows == expected


def test_delivery_latency(spark: SparkSession, told: Told) -> None:
    by_consumer: dict[Any, dict[str, Any]] = defaultdict(lambda: defaultdict(list))
    added: dict[str, int] = {}
    held: dict[Any, Any] = {}
    for _, _, ts, _, event, _, group, consumer, id, count, _, _ in told.events:
        if event == "added":
            added[id] = unix_ms(ts)
        elif event == "acknowledged":
            worker, since = held.pop((group, id))
            by_consumer[group, worker]["handled"].append(unix_ms(ts) - since)
        else:
            mine = by_consumer[group, consumer]
            held[group, id] = consumer, unix_ms(ts)
            mine["ids"].append(id)
            if count == 1:
                mine["waited"].append(unix_ms(ts) - added[id])
    expected = {
        key: {
            "deliveries": len(found["ids"]),
            "redeliveries": len(found["ids"]) - len(found["waited"]),
            "messages": len(set(found["ids"])),
            "timed": len(found["waited"]),
            **quantiles("latency_ms", found["waited"]),
            "acknowledged": len(found["handled"]),
            **quantiles("handled_ms", found["handled"]),
        }
        for key, found in by_consumer.items()
    }
    assert len(expected) == 4
    frame = delivery_latency(spark.createDataFrame(told.events, EVENTS))
    rows = [row.asDict() for row in frame.drop("db", "stream").collect()]
    assert {(bytes(r.pop("group")), bytes(r.pop("consumer"))): r for r in rows} == expected


def test_deliveries_that_are_none(spark: SparkSession, told: Told) -> None:
    """A renewed lease is no redelivery; an entry added before the log begins has no latency; an ID may come again."""
    at = [moment.astimezone(UTC) for moment in sorted({row[2] for row in told.events})[:9]]

    def event(n: int, what: str, id: str, count: int | None = None, **more: Any) -> tuple[Any, ...]:
        group = None if what == "added" else b"g"
        delivered = None if count is None else at[n]
        consumer = None if count is None else b"c"
        return n, True, at[n], 0, what, b"s", group, consumer, id, count, delivered, None

    events = [
        event(0, "delivered", "1-0", 1),  # its adding is not in the log
        event(1, "claimed", "1-0", 1),  # renewed
        event(2, "released", "1-0"),
        event(3, "claimed", "1-0", 2),
        event(4, "acknowledged", "1-0"),
        event(5, "added", "2-0"),
        event(6, "delivered", "2-0", 1),
        event(7, "added", "2-0"),  # the stream was deleted meanwhile
        event(8, "delivered", "2-0", 1),
    ]
    (row,) = delivery_latency(spark.createDataFrame(events, EVENTS)).collect()
    ms = [unix_ms(moment) for moment in at]
    assert (row["deliveries"], row["redeliveries"], row["messages"]) == (5, 1, 2)
    assert (row["timed"], row["latency_ms_max"]) == (2, max(ms[6] - ms[5], ms[8] - ms[7]))
    assert (row["acknowledged"], row["handled_ms_max"]) == (1, ms[4] - ms[3])
