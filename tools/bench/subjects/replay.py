"""Replay: records per second when a store opens from its log alone, in frames of 256 records and of one."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import tidelog
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import STREAM
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL

OTHER = "returns"
RECORDS = 500_000
FRAME = 256
OPENS = 3


def rows(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(RECORDS) // FRAME * FRAME
    together, apart = bench.fresh("frames"), bench.fresh("single")
    with closing(tidelog.open(together / "store", fsync=EVERYSEC)) as db:
        for _ in range(count // FRAME):
            pipeline = db.pipeline(transaction=False)
            for fields in SMALL.some(FRAME // 2):
                # Alternate between two streams, because consecutive XADDs to one stream would become one record.
                pipeline.xadd(STREAM, fields).xadd(OTHER, fields)
            pipeline.execute()
    with closing(tidelog.open(apart / "store", fsync=EVERYSEC)) as db:
        for fields in SMALL.some(count):
            db.xadd(STREAM, fields)
    opened: dict[Path, list[float]] = {together: [], apart: []}
    redis: list[float] = []
    load = _redis_load(bench, count)
    for _ in range(OPENS):
        for path, times in opened.items():
            times.append(_open_s(path, count))
        if load is not None:
            redis.append(load())
    baselines = {"redis-server": count / statistics.median(redis)} if redis else {}
    for path, name, target in (
        (together, f"replay, frames of {FRAME} records", 700_000),
        (apart, "replay, one record per frame", 500_000),
    ):
        rate = count / statistics.median(opened[path])
        yield Figure(name, "/s", rate, baselines, (Bound(target),), "records; the whole open")


def _open_s(path: Path, count: int) -> float:
    gc.collect()
    start = time.perf_counter()
    db = tidelog.open(path / "store", fsync=EVERYSEC)
    spent = time.perf_counter() - start
    found = db.xlen(STREAM) + db.xlen(OTHER)
    db.close()
    if found != count:
        raise RuntimeError(f"{path}: {found} entries after the replay, but {count} were logged")
    return spent


def _redis_load(bench: Bench, count: int) -> Callable[[], float] | None:
    """A function that makes a redis-server load an AOF of the same commands, and times it."""
    try:
        peer = bench.redis(SMALL, durable=False)
    except (ImportError, FileNotFoundError) as error:
        bench.missing["redis-py"] = str(error)
        return None
    peer.add_batches(count // 1_000 * 1_000)
    server = bench.redis_server(EVERYSEC)

    def load() -> float:
        start = time.perf_counter()
        server.command("DEBUG", "LOADAOF")
        return time.perf_counter() - start

    return load
