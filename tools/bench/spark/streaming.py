"""Streaming reads: how late an entry is, how fast a backlog is read, and what an idle query costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import tidelog
from tidelog.tools.bench.bench import EVERYSEC
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import BATCH
from tidelog.tools.bench.spark.setting import BY_HAND, Setting, fields, name_of

BACKLOG = 1_000_000
KEPT_BYTES = 1 << 30  # the checkpoint at the end of the load releases no log of the backlog
LATE, QUICK_LATE = 100, 30  # entries whose latency is measured
PAUSES_S = 0.2, 0.6  # between two of them, at random
WARM = 5  # entries before them
IDLE_S, QUICK_IDLE_S = 15.0, 5.0
IDLE_MS = 30.0  # 3% of a core
SETTLED_S = 1.0
AT_ONCE = "batches of 1,000"


def rows(setting: Setting) -> Iterator[Figure]:
    yield from _backlog(setting)
    yield from _late(setting)


# --- backlogs


def _backlog(setting: Setting) -> Iterator[Figure]:
    count = setting.bench.scaled(BACKLOG)
    kinds: dict[str, tuple[Callable[[Any, int], None], float]] = {
        "single XADDs": (_one_by_one, 250_000),
        AT_ONCE: (_in_batches, 400_000),
    }
    for name, (add, target) in kinds.items():
        path = setting.bench.fresh("spark-log") / "store"
        with tidelog.open(path, **BY_HAND, retain_bytes=KEPT_BYTES) as db:
            add(db, count)
        rates = []
        for turn in range(setting.runs + 1):
            checkpoint = setting.bench.fresh("spark-query")
            found, seconds = setting.spark.call("backlog", path, checkpoint)
            if found != count:
                raise RuntimeError(f"the query read {found} entries of {count}")
            rates += [count / seconds] if turn else []
        yield Figure(
            f"Spark, backlog of {name}",
            "/s",
            median(rates),
            setting.beside,
            (Bound(target),),
            f"{count:,} entries of the log, to noop at local[2], without the start of the query",
        )


def _one_by_one(db: Any, count: int) -> None:
    some = fields(BATCH)
    for number in range(count // BATCH):
        name = name_of(number % 10)
        for row in some:
            db.xadd(name, row)


def _in_batches(db: Any, count: int) -> None:
    some = fields(BATCH)
    for number in range(count // BATCH):
        db.xadd_many(name_of(number % 10), some)


# --- latency, and idle queries


def _late(setting: Setting) -> Iterator[Figure]:
    quick = setting.bench.quick
    count, idle_s = (QUICK_LATE, QUICK_IDLE_S) if quick else (LATE, IDLE_S)
    path, checkpoint = setting.bench.fresh("spark-late") / "store", setting.bench.fresh("query")
    spark = setting.spark
    time.sleep(SETTLED_S)
    alone = spark.call("idle", idle_s)
    with tidelog.open(path, fsync=EVERYSEC) as db:
        spark.call("listen", path, checkpoint)
        _say(db)
        spark.call("heard", 1)  # the query has begun
        late = sorted(_latencies(db, setting, count))
        logs = median(spark.call("own_logs"))
        time.sleep(SETTLED_S)
        idle = spark.call("idle", idle_s)
        spark.call("end")
    low, high = PAUSES_S
    shown = f"{count} entries, {low:g} to {high:g} s apart; collect() in foreachBatch included"
    beside = {"Spark's own two logs": logs}
    figures = {"median": (median(late), 0.3), "p99": (late[int(0.99 * (count - 1))], 0.6)}
    for name, (seconds, most) in figures.items():
        bounds = (Bound(most, most=True),)
        yield Figure(f"Spark, XADD to foreachBatch, {name}", "s", seconds, beside, bounds, shown)
    yield Figure(
        "Spark, processor time of an idle query",
        "ms/s",
        idle,
        {"a session without a query": alone},
        (Bound(IDLE_MS, most=True),),
        "Java and Python together",
    )


def _latencies(db: Any, setting: Setting, count: int) -> list[float]:
    chance = random.Random(count)
    for _ in range(WARM + count):
        time.sleep(chance.uniform(*PAUSES_S))
        _say(db)
    found: list[float] = setting.spark.call("heard", 1 + WARM + count)
    return found[1 + WARM :]


def _say(db: Any) -> None:
    db.xadd("late", {"sent": time.monotonic_ns()})
