"""Memory of Spark's Python workers: of reads, exports and streams, and with large entries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import tidelog
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.spark.setting import BY_HAND, Setting

MOST_MB = 400.0
LARGE_MB, LARGE = 32, 6  # entries of so many 2 ** 20 bytes
TIMES = 4  # of the largest entry, added to the limit
IDLE = "a worker that reads one small stream"


def rows(setting: Setting) -> Iterator[Figure]:
    spark, place = setting.spark, setting.bench.fresh("spark-memory")
    big = setting.big()

    def noop(path: Path, **options: str) -> float:
        spark.call("noop", "tidelog", {"path": str(path), **options})
        return _peak(setting)

    spark.call("restart", "local[2]")
    beside = {IDLE: noop(setting.small(), streams="stream-000000")}
    bound = (Bound(MOST_MB, most=True),)
    shown = f"largest resident set, {setting.shown}"
    yield Figure("Spark, memory of a worker, reading", "MB", noop(big), beside, bound, shown)
    spark.call("restart", "local[2]")
    spark.call("export", big, place / "to", None)
    yield Figure("Spark, memory of a worker, exporting", "MB", _peak(setting), beside, bound, shown)
    large = place / "large"
    with tidelog.open(large, **BY_HAND) as db:
        for number in range(LARGE):
            db.xadd("large", {"body": bytes([number]) * (LARGE_MB << 20)})
        db.snapshot()
    spark.call("restart", "local[2]")
    limit = MOST_MB + TIMES * (LARGE_MB << 20) / 1e6
    yield Figure(
        "Spark, memory of a worker, large entries",
        "MB",
        noop(large),
        beside,
        (Bound(limit, most=True),),
        f"{LARGE} entries of {LARGE_MB} MiB; target: {MOST_MB:g} MB and {TIMES} times an entry",
    )
    shutil.rmtree(place)


def _peak(setting: Setting) -> float:
    """MB of the largest resident set of a worker of this session."""
    found = setting.spark.call("workers_peak")
    if not found:
        raise RuntimeError("the session has no Python worker")
    return float(max(found)) / 1e6
