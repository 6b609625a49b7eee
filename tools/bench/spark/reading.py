"""Batch reads: entries per second, beside other sources of the same rows, and their processor time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median

from tidelog.tools.bench.bench import EVERYSEC
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import BATCH
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.spark.planning import Planning, counted
from tidelog.tools.bench.spark.setting import SMALL, STREAMS, Setting, fields, name_of

AGAIN, TUPLES, PAGES = "one batch again and again", "tuples", "redis-py, pages of XRANGE"
TUPLES_EACH, PAGES_EACH = 20, 10  # two baselines are slow, so they read one of so many streams
ONE = 42  # the stream that is read alone

Case = tuple[str, dict[str, str], int]  # source, options, entries


def rows(setting: Setting) -> Iterator[Figure]:
    whole = {"path": str(setting.big())}
    tiny = {"path": str(setting.small())}
    entries, small = setting.entries, setting.streams * SMALL
    cases: dict[str, Case] = {
        "all": ("tidelog", whole, entries),
        "ms": ("tidelog", whole | {"columns": "ms"}, entries),
        "small": ("tidelog", tiny, small),
        AGAIN: ("bench_again", whole | {"entries": str(entries)}, entries),
        TUPLES: _tuples(setting, whole),
    }
    try:
        cases[PAGES] = _pages(setting)
    except FileNotFoundError as error:
        setting.bench.missing["redis-server"] = str(error)
    rates: dict[str, list[float]] = {name: [] for name in cases}
    spent: list[float] = []
    counts: list[float] = []
    for turn in range(setting.runs + 1):
        for name, (source, options, count) in cases.items():
            seconds, cpu = setting.spark.call("noop", source, options)
            if turn:
                rates[name].append(count / seconds)
                spent += [cpu] if name == "all" else []
        found, seconds = setting.spark.call("count", whole | {"streams": name_of(ONE)})
        if found != entries // STREAMS:
            raise RuntimeError(f"one stream has {found} entries, not {entries // STREAMS}")
        counts += [seconds] if turn else []
    of = {name: median(each) for name, each in rates.items()}
    baselines = {name: of[name] for name in (AGAIN, TUPLES, PAGES) if name in of}
    setting.beside.update(baselines)
    shown = f"{setting.shown}, to noop at local[2]"
    bounds = (Bound(0.75, AGAIN), Bound(8, TUPLES), Bound(5, PAGES), Bound(900_000))
    for bound, what in zip(bounds, ("", ", and tuples", ", and redis-py", ", by itself")):
        beside = {bound.of: baselines[bound.of]} if bound.of in baselines else {}
        yield Figure(f"Spark, all columns{what}", "/s", of["all"], beside, (bound,), shown)
    beside = {"all columns": of["all"], AGAIN: of[AGAIN]}
    yield Figure("Spark, columns=ms", "/s", of["ms"], beside, (Bound(2_300_000),), shown)
    yield from _small(setting, of["small"], beside)
    yield from _one(setting, whole["path"], median(counts))
    yield _cpu(setting, cases["all"], median(spent))


def _tuples(setting: Setting, whole: dict[str, str]) -> Case:
    some = [name_of(number) for number in range(0, STREAMS, TUPLES_EACH)]
    count = len(some) * (setting.entries // STREAMS)
    return "bench_tuples", whole | {"streams": json.dumps(some)}, count


def _pages(setting: Setting) -> Case:
    """Fill a redis-server with some of the streams. Raises FileNotFoundError."""
    server = setting.bench.redis_server(EVERYSEC)
    some = [name_of(number) for number in range(0, STREAMS, PAGES_EACH)]
    each = setting.entries // STREAMS
    for name in some:
        server.client.delete(name)
        for start in range(0, each, BATCH):
            pipe = server.client.pipeline(transaction=False)
            for row in fields(min(each - start, BATCH)):
                pipe.xadd(name, row)  # type: ignore[arg-type]
            pipe.execute()
    options = {"port": str(server.port), "streams": json.dumps(some)}
    return "bench_pages", options, len(some) * each


def _small(setting: Setting, rate: float, beside: dict[str, float]) -> Iterator[Figure]:
    shown = f"{setting.streams:,} streams of {SMALL} entries"
    yield Figure("Spark, small streams", "/s", rate, beside, (Bound(400_000),), shown)
    with Fresh(Planning) as planning:
        planning.call("plan", str(setting.big()))  # imports
        of_few = planning.call("plan", str(setting.big()))["seconds"]
        planning.peak()
        before = planning.anonymous()
        found = planning.call("plan", str(setting.small()))
        held = planning.peak() - before
        seconds = min(planning.call("plan", str(setting.small()))["seconds"] for _ in range(3))
        few = {f"{STREAMS} long streams": of_few}
        shown = f"{shown}, {found['parts']} partitions"
        yield Figure(
            "Spark, planning small streams", "s", seconds, few, (Bound(2, most=True),), shown
        )
        yield Figure(
            "Spark, memory of planning, per stream",
            "B",
            held / setting.streams,
            {},
            (Bound(200, most=True),),
            f"growth of RssAnon, {shown}",
        )


def _one(setting: Setting, path: str, seconds: float) -> Iterator[Figure]:
    shown = f"one of {STREAMS}, {setting.shown}"
    yield Figure(
        "Spark, count of one stream", "s", seconds, {}, (Bound(0.5, most=True),), f"{shown}; warm"
    )
    found = counted(path, name_of(ONE))
    yield Figure(
        "Spark, one stream, share of the file that is read",
        "%",
        found.nbytes / found.file_bytes * 100,
        {"its share of the entries": 100 / STREAMS},
        (Bound(3, most=True),),
        f"{shown}; {found.reads} reads",
    )


def _cpu(setting: Setting, case: Case, spent: float) -> Figure:
    """Processor time per entry, beside that of a session with one core."""
    source, options, count = case
    setting.spark.call("restart", "local[1]")
    alone = []
    for turn in range(setting.runs + 1):
        _, cpu = setting.spark.call("noop", source, options)
        alone += [cpu] if turn else []
    setting.spark.call("restart", "local[2]")
    return Figure(
        "Spark, processor time per entry",
        "us",
        spent / count * 1e6,
        {"local[1]": median(alone) / count * 1e6},
        (Bound(1.1, "local[1]", most=True),),
        f"{setting.shown}, all columns; Java and Python together",
    )
