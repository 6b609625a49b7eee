"""Spark: entries per second of the batch source at local[2], beside other sources of the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import tidelog
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.processes.fresh import Fresh

STREAMS, BIG, SMALL_STREAMS, SMALL = 100, 2_000_000, 100_000, 10
TUPLES, PAGES = 20, 10  # slow baselines: "tuples" reads every 20th stream, "pages" every 10th
TIMES = 5


def rows(bench: Bench) -> Iterator[Figure]:
    from tidelog.tools.bench.processes.spark_reads import SparkReads

    big = bench.scaled(BIG)
    each = big // STREAMS
    many = bench.once(f"{big}-in-{STREAMS}-streams", lambda path: _store(path, STREAMS, each))
    small = bench.scaled(SMALL_STREAMS)
    tiny = bench.once(f"{small}-small-streams", lambda path: _store(path, small, SMALL))
    server = bench.redis_server(EVERYSEC)
    some = [_name(number) for number in range(0, STREAMS, PAGES)]
    client = server.client
    for name in some:
        for _ in range(each // 1000):
            pipe = client.pipeline(transaction=False)
            for fields in _fields(1000):
                pipe.xadd(name, fields)  # type: ignore[arg-type]
            pipe.execute()
    whole = {"path": str(many)}
    tuples = whole | {"streams": json.dumps([_name(at) for at in range(0, STREAMS, TUPLES)])}
    pages = {"port": str(server.port), "streams": json.dumps(some)}
    cases = {
        "all": ("tidelog", whole, big),
        "one batch again and again": ("bench_again", whole | {"entries": str(big)}, big),
        "tuples": ("bench_tuples", tuples, each * STREAMS // TUPLES),
        "redis-py, pages of XRANGE": ("bench_pages", pages, each * len(some)),
        "ms": ("tidelog", whole | {"columns": "ms"}, big),
        "small": ("tidelog", {"path": str(tiny)}, small * SMALL),
    }
    with Fresh(SparkReads) as spark:
        rates: dict[str, list[float]] = {name: [] for name in cases}
        counts = []
        for turn in range(TIMES + 1):
            for name, (source, options, count) in cases.items():
                rate = count / spark.call("noop", source, options)
                if turn:  # the first one compiles
                    rates[name].append(rate)
            counts.append(spark.call("count", whole | {"streams": _name(42)})[1])
        spark.call("close")
    of = {name: median(found) for name, found in rates.items()}
    baselines = {
        name: of[name]
        for name in ("one batch again and again", "tuples", "redis-py, pages of XRANGE")
    }
    shown = f"{big:,} entries in {STREAMS} streams"
    yield Figure(
        "Spark, all columns",
        "/s",
        of["all"],
        baselines,
        (Bound(0.75, of="one batch again and again"),),
        f"{shown}, to noop at local[2]",
    )
    yield Figure("Spark, columns=ms", "/s", of["ms"], note=shown)
    yield Figure(
        "Spark, small streams",
        "/s",
        of["small"],
        {"one batch again and again": of["one batch again and again"]},
        note=f"{small:,} streams of {SMALL} entries",
    )
    yield Figure(
        "Spark, count of one stream",
        "s",
        median(counts[1:]),
        {},
        (Bound(0.5, most=True),),
        f"one of {STREAMS}, {shown}",
    )


def _name(number: int) -> str:
    return f"stream-{number:06d}"


def _fields(count: int) -> list[dict[str, str]]:
    return [
        {"user": f"{at:06d}", "payload": f"{at * 7919:032x}", "tag": f"{at * 104729:030x}"}
        for at in range(count)
    ]


def _store(directory: Path, streams: int, each: int) -> Path:
    """A store with a snapshot: `streams` streams of `each` entries of three fields, about 70 bytes of values."""
    path = directory / "store"
    with tidelog.open(path, fsync="no", save=(), checkpoint_bytes=0) as db:
        for number in range(streams):
            left = each
            while left:
                db.xadd_many(_name(number), _fields(min(left, 1000)))
                left -= min(left, 1000)
        db.snapshot()
    return path
