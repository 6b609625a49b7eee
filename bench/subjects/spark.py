"""Spark: snapshots read and exported, the log as a stream, and writing, each beside other ways to do the same.

One process of each version holds a Spark session at local[2]. Its JVM compiles in a first turn that does not count.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import tidelog
from bench.figure import OURS, Bound, Figure
from bench.messages import BATCH
from bench.race import Value
from bench.run import EVERYSEC, REDIS, Run
from bench.servers import Served
from bench.worker import Worker

STREAMS, BIG, SMALL_STREAMS, SMALL = 100, 2_000_000, 100_000, 10
BACKLOG = 1_000_000
WRITTEN = 200_000
BY_HAND: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
KEPT_BYTES = 1 << 30  # the checkpoint at the end of the load releases no log of the backlog
RUNS, QUICK_RUNS = 4, 1  # after the first, in which Java compiles
CHANGED = 100  # one entry of a hundred came, and one went
LATE, QUICK_LATE = 100, 30  # entries whose latency is measured
PAUSES_S = 0.2, 0.6  # between two of them, at random
WARM = 5  # entries before them
HEARD_S_MAX = 120.0
AGAIN, SPARKS_OWN = "one batch again and again", "Spark's own writer"
PIPELINE = "redis-py, pipelines of 1,000"
SENT = "CAST(fields[0].value AS STRING) AS sent"
COLUMNS = "db,stream,id,ms,seq,ts,fields,stream_number,id_key"  # those of an export


def name_of(number: int) -> str:
    """The name of a stream."""
    return f"stream-{number:06d}"


def fields(count: int) -> list[dict[str, Any]]:
    """Entries of three fields, with about 70 bytes of values."""
    return [
        {"user": f"{at:06d}", "payload": f"{at * 7919:032x}", "tag": f"{at * 104729:030x}"}
        for at in range(count)
    ]


class Session:
    """A Spark session, and the stores that it reads, below a directory."""

    def __init__(self, directory: str) -> None:
        # here: pyspark may be missing
        from bench.baselines.again import Again
        from tidelog.spark import export
        from tidelog.spark.session import session

        self._place = Path(directory)
        self._export = export
        self._spark = session("local[2]")
        self._spark.dataSource.register(Again)
        self._query: Any = None
        self._spent: list[float] = []
        self._heard = threading.Condition()
        self._number = 0

    def _new(self, name: str) -> str:
        self._number += 1
        return str(self._place / f"{name}-{self._number}")

    # --- stores

    def make(self, name: str, streams: int, each: int) -> None:
        """A store with a snapshot of streams of equal lengths."""
        with tidelog.open(self._place / name, **BY_HAND) as db:
            for number in range(streams):
                self._add(db, number, each)
            db.snapshot()

    def change(self, name: str, each: int, length: int) -> None:
        """In every stream, as many entries come as are trimmed. Then make a snapshot."""
        with tidelog.open(self._place / name, **BY_HAND) as db:
            for number in range(STREAMS):
                self._add(db, number, each)
                db.xtrim(name_of(number), maxlen=length, approximate=False)
            db.snapshot()

    def _add(self, db: Any, number: int, count: int) -> None:
        for start in range(0, count, BATCH):
            db.xadd_many(name_of(number), fields(min(count - start, BATCH)))

    def log(self, name: str, count: int, batches: bool) -> None:
        """A store whose log has entries, in batches or of single XADDs."""
        some = fields(BATCH)
        with tidelog.open(self._place / name, **BY_HAND, retain_bytes=KEPT_BYTES) as db:
            for number in range(count // BATCH):
                if batches:
                    db.xadd_many(name_of(number % 10), some)
                    continue
                for row in some:
                    db.xadd(name_of(number % 10), row)

    # --- batch reads, exports

    def noop(self, name: str, options: dict[str, str], source: str = "tidelog") -> dict[str, float]:
        """Seconds to read everything and drop it."""
        frame = self._frame(name, options, source)
        start = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return {"s": time.perf_counter() - start}

    def count(self, name: str, stream: str) -> dict[str, float]:
        """The number of entries, and the seconds of a count, the planning included."""
        start = time.perf_counter()
        found = self._frame(name, {"streams": stream}).count()
        return {"entries": found, "s": time.perf_counter() - start}

    def _frame(self, name: str, options: dict[str, str], source: str = "tidelog") -> Any:
        options = {"path": str(self._place / name), **options}
        return self._spark.read.format(source).options(**options).load()

    def export(
        self, name: str, base: str | None = None, keep: str | None = None
    ) -> dict[str, float]:
        """Seconds of an export, since an earlier one that was kept under that name."""
        to = self._new("export")
        start = time.perf_counter()
        since = None if base is None else str(self._place / base)
        self._export(self._spark, str(self._place / name), to, since=since)
        spent = time.perf_counter() - start
        if keep is not None:
            Path(to).rename(self._place / keep)
        shutil.rmtree(to, ignore_errors=True)
        return {"s": spent}

    def parquet(self, name: str) -> dict[str, float]:
        """Seconds in which Spark itself writes the same rows as Parquet."""
        to = self._new("parquet")
        start = time.perf_counter()
        frame = self._frame(name, {"columns": COLUMNS})
        frame.write.option("compression", "zstd").parquet(to)
        spent = time.perf_counter() - start
        shutil.rmtree(to)
        return {"s": spent}

    # --- streams

    def backlog(self, name: str, count: int) -> dict[str, float]:
        """Seconds of a query that reads all of a store's log and drops it, without its start."""
        query = (
            self._stream(name).writeStream.format("noop").trigger(availableNow=True)
        ).option("checkpointLocation", self._new("query")).start()  # fmt: skip
        query.awaitTermination()
        rows = sum(each["numInputRows"] for each in query.recentProgress)
        if rows != count:
            raise RuntimeError(f"the query read {rows} entries of {count}")
        spent = sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress)
        return {"s": spent / 1000}

    def latencies(self, count: int) -> dict[str, float]:
        """Seconds from before XADD to the end of collect() in foreachBatch: median and p99."""
        chance = random.Random(count)
        with tidelog.open(self._place / "late", fsync=EVERYSEC) as db:
            self._listen()
            for number in range(WARM + count):
                db.xadd("late", {"sent": time.monotonic_ns()})
                if not number:
                    self._wait_for(1)  # the query has begun
                time.sleep(chance.uniform(*PAUSES_S))
            self._wait_for(WARM + count)
            self._query.stop()
        late = sorted(self._spent[WARM:])
        return {"median": median(late), "p99": late[int(0.99 * (len(late) - 1))]}

    def _stream(self, name: str) -> Any:
        return (
            self._spark.readStream.format("tidelog").option("path", str(self._place / name)).load()
        )

    def _listen(self) -> None:
        def note(batch: Any, number: int) -> None:
            sent = [row["sent"] for row in batch.selectExpr(SENT).collect()]
            now = time.monotonic_ns()
            with self._heard:
                self._spent += [(now - int(each)) / 1e9 for each in sent]
                self._heard.notify_all()

        self._spent.clear()
        stream = self._stream("late").writeStream.foreachBatch(note)
        self._query = stream.option("checkpointLocation", self._new("query")).start()

    def _wait_for(self, count: int) -> None:
        with self._heard:
            if not self._heard.wait_for(lambda: len(self._spent) >= count, HEARD_S_MAX):
                raise RuntimeError(f"the query got {len(self._spent)} entries of {count}")

    # --- writing

    def write(self, url: str, stream: str, rows: int) -> float:
        """Seconds in which one task appends rows of three columns to a stream of a server."""
        from pyspark.sql import functions as F

        number = F.col("id")
        columns = (
            F.lpad(number.cast("string"), 6, "0").alias("user"),
            F.md5(number.cast("string")).alias("payload"),
            (number * 104729).alias("tag"),
        )
        frame = self._spark.range(rows, numPartitions=1).select(*columns)
        start = time.perf_counter()
        frame.write.format("tidelog").options(url=url, stream=stream).mode("append").save()
        return time.perf_counter() - start

    def close(self) -> None:
        self._spark.stop()


def rows(run: Run) -> Iterator[Figure]:
    with run.sides(Session) as sessions:
        yield from _reading(run, sessions)
        yield from _exporting(run, sessions)
        yield from _backlog(run, sessions)
        yield from _late(run, sessions)
        yield from _writing(run, sessions)


Call = Callable[[Worker], dict[str, float]]


def _measured(run: Run, sessions: list[Worker], call: Call, what: str = "s") -> Value:
    """The median of some calls, after one that does not count."""
    for side in sessions:
        call(side)
    return run.by_turns(sessions, QUICK_RUNS if run.quick else RUNS, call)[what][OURS]


def _reading(run: Run, sessions: list[Worker]) -> Iterator[Figure]:
    entries, streams = run.scaled(BIG), run.scaled(SMALL_STREAMS)
    each = entries // STREAMS
    for side in sessions:
        side.call("make", "big", STREAMS, each)
        side.call("make", "small", streams, SMALL)

    def noop(name: str, **options: str) -> Call:
        return lambda side: side.call("noop", name, options)

    def again(side: Worker) -> dict[str, float]:
        found: dict[str, float] = side.call("noop", "big", {"entries": str(entries)}, "bench_again")
        return found

    whole = _measured(run, sessions, noop("big")).rate(entries)
    beside = {} if run.compares else {AGAIN: _measured(run, sessions[:1], again).rate(entries)}
    shown = f"{entries:,} entries in {STREAMS} streams, to noop at local[2]"
    found = {OURS: whole, **beside}
    yield Figure.of(
        "Spark, all columns", "/s", found, Bound(0.75, AGAIN), Bound(900_000), note=shown
    )
    found = {OURS: _measured(run, sessions, noop("big", columns="ms")).rate(entries)}
    yield Figure.of("Spark, columns=ms", "/s", found, Bound(2_300_000), note=shown)
    found = {OURS: _measured(run, sessions, noop("small")).rate(streams * SMALL)}
    name, note = "Spark, small streams", f"{streams:,} streams of {SMALL} entries"
    yield Figure.of(name, "/s", found, Bound(400_000), note=note)

    def count(side: Worker) -> dict[str, float]:
        told: dict[str, float] = side.call("count", "big", name_of(42))
        if told["entries"] != each:
            raise RuntimeError(f"one stream has {told['entries']} entries, not {each}")
        return told

    found = {OURS: _measured(run, sessions, count)}
    note = f"one of {STREAMS}, {entries:,} entries; warm"
    yield Figure.of("Spark, count of one stream", "s", found, Bound(0.5, most=True), note=note)


def _exporting(run: Run, sessions: list[Worker]) -> Iterator[Figure]:
    entries = run.scaled(BIG)
    for side in sessions:
        side.call("export", "big", None, "base")
    whole = _measured(run, sessions, lambda side: side.call("export", "big"))
    found = {OURS: whole.rate(entries)}
    if not run.compares:
        theirs = _measured(run, sessions, lambda side: side.call("parquet", "big"))
        found[SPARKS_OWN] = theirs.rate(entries)
    note = (
        f"{entries:,} entries in {STREAMS} streams, zstd, local[2]; {SPARKS_OWN}: the same source"
    )
    bounds = Bound(2.5, SPARKS_OWN), Bound(900_000)
    yield Figure.of("Spark, export", "/s", found, *bounds, note=note)
    found = {}
    for side in sessions:
        side.call("change", "big", entries // CHANGED // STREAMS, entries // STREAMS)
    found[OURS] = _measured(run, sessions, lambda side: side.call("export", "big", "base"))
    found["a whole export"] = whole
    note = f"{entries // CHANGED:,} entries came and as many were trimmed, of {entries:,}"
    yield Figure.of("Spark, incremental export", "s", found, Bound(3, most=True), note=note)


def _backlog(run: Run, sessions: list[Worker]) -> Iterator[Figure]:
    count = run.scaled(BACKLOG)
    for kind, target in (("single XADDs", 250_000), ("batches of 1,000", 400_000)):
        log = f"log-{target}"
        for side in sessions:
            side.call("log", log, count, kind != "single XADDs")
        spent = _measured(
            run, sessions, partial(Worker.call, method="backlog", name=log, count=count)
        )
        note = f"{count:,} entries of the log, to noop at local[2], without the start of the query"
        found = {OURS: spent.rate(count)}
        yield Figure.of(f"Spark, backlog of {kind}", "/s", found, Bound(target), note=note)


def _late(run: Run, sessions: list[Worker]) -> Iterator[Figure]:
    count = QUICK_LATE if run.quick else LATE
    found = run.by_turns(sessions, 1, lambda side: side.call("latencies", count))
    low, high = PAUSES_S
    note = f"{count} entries, {low:g} to {high:g} s apart; collect() in foreachBatch included"
    for share, most in (("median", 0.3), ("p99", 0.6)):
        name = f"Spark, XADD to foreachBatch, {share}"
        yield Figure.of(name, "s", found[share], Bound(most, most=True), note=note)


def _writing(run: Run, sessions: list[Worker]) -> Iterator[Figure]:
    count, stream = run.scaled(WRITTEN), "written"

    def measure(server: Served) -> dict[str, float]:
        url = f"redis://127.0.0.1:{server.port}/0"
        seconds = sessions[server.version].call("write", url, stream, count)
        pipe_s = piped(server, stream, count)
        return {"write": count / seconds, "pipe": count / pipe_s}

    def started() -> AbstractContextManager[list[Served]]:
        return run.servers(lambda start: start(run.fresh("written"), EVERYSEC))

    with started() as servers:
        for server in servers:
            measure(server)
        found = run.by_turns(servers, QUICK_RUNS if run.quick else RUNS, measure)
    note = f"{count:,} rows of three columns from one task, everysec"
    rates = {**found["write"], PIPELINE: found["pipe"][OURS]}
    if REDIS in found["pipe"]:
        rates[f"{PIPELINE} to redis-server"] = found["pipe"][REDIS]
    yield Figure.of("Spark, writing to a served store", "/s", rates, Bound(25_000), note=note)


def piped(server: Served, stream: str, count: int) -> float:
    """Seconds in which redis-py adds as many entries as were written. Raises RuntimeError if these are not all."""
    added = server.client.xlen(stream)
    if added != count:
        raise RuntimeError(f"{server.name} has {added} entries of {count}")
    server.client.delete(stream)
    start = time.perf_counter()
    for _ in range(count // BATCH):
        pipe = server.client.pipeline(transaction=False)
        for row in fields(BATCH):
            pipe.xadd(stream, row)
        pipe.execute()
    seconds = time.perf_counter() - start
    server.client.delete(stream)
    return seconds
