"""Inspection: how fast the tools read a log: ls, dump, export, stats, verify, state and why."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import tidelog
from tidelog.aof.reading import recovery
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import State
from tidelog.tools import cli
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import STREAM
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL
from tidelog.tools.logfiles import LogFiles

ENTRIES = 300_000
BATCH = 1_000
RECORDS = 300_000
FRAME = 256
SEGMENTS = 1_000
RUNS = 3
OPEN = "replay of an open"


def rows(bench: Bench) -> Iterator[Figure]:
    yield _segments(bench)
    yield from _batches(bench)
    yield from _records(bench)


def _segments(bench: Bench) -> Figure:
    count = bench.scaled(SEGMENTS)
    root = bench.fresh("segments") / "store"
    with closing(_opened(root, segment_bytes=4096)) as db:
        for _ in range(count):
            db.xadd(STREAM, {"pad": b"x" * 3900})
    spent = _spent("aof", "ls", root)
    bound = (Bound(300 * count / SEGMENTS, most=True),)
    return Figure(f"aof ls, {count:,} segments", "ms", spent * 1000, {}, bound)


def _batches(bench: Bench) -> Iterator[Figure]:
    """The commands that print a line for each entry, over a log of batches."""
    count = bench.scaled(ENTRIES) // BATCH * BATCH
    root = bench.fresh("batches") / "store"
    with closing(_opened(root)) as db:
        for _ in range(count // BATCH):
            db.xadd_many(STREAM, SMALL.some(BATCH))
    for name, args, target in (
        ("aof dump, lines", ("aof", "dump", root), 300_000),
        ("aof dump --json, entries", ("aof", "dump", root, "--json"), 300_000),
        ("aof export, commands", ("aof", "export", "--resp", root), 300_000),
    ):
        note = f"batches of {BATCH:,}"
        yield Figure(name, "/s", count / _spent(*args), {}, (Bound(target),), note)


def _records(bench: Bench) -> Iterator[Figure]:
    """The commands that read records, over a log of single XADDs in frames of many."""
    count = bench.scaled(RECORDS) // FRAME * FRAME
    root = bench.fresh("records") / "store"
    with closing(_opened(root)) as db:
        for _ in range(count // FRAME):
            pipeline = db.pipeline(transaction=False)
            for number, fields in enumerate(SMALL.some(FRAME)):
                pipeline.xadd(STREAM if number % 2 else "returns", fields)
            pipeline.execute()
        nbytes = sum(path.stat().st_size for path in (root / "aof").glob("*.aof"))
    note = f"frames of {FRAME} records"
    unknown = f"{time.time_ns() // 1_000_000}-1"  # an ID as they are, which is not in the log
    found = count / _spent("aof", "dump", root, "--id", unknown)
    yield Figure("aof dump --id, records", "/s", found, {}, (Bound(1_000_000),), note)
    counted = count / _spent("aof", "stats", root)
    yield Figure("aof stats, records", "/s", counted, {}, (Bound(1_000_000),), note)
    checked = nbytes / 1e6 / _spent("aof", "verify", root, "--no-replay")
    yield Figure("aof verify --no-replay", "MB/s", checked, {}, (Bound(250),), note)
    last = _spent("aof", "dump", root, "--reverse", "--limit", "10") * 1000
    yield Figure("aof dump --reverse --limit 10", "ms", last, {}, (), note)
    opened = {OPEN: _open_s(root) * 1000}
    bound = (Bound(1.3, OPEN, most=True),)
    for name, args in (
        ("state --at-lsn", ("state", root, "--at-lsn", count, "--key", "none")),
        ("why", ("why", root, STREAM, unknown)),
    ):
        yield Figure(name, "ms", _spent(*args) * 1000, opened, bound, note)


def _opened(root: Path, segment_bytes: int = 64 << 20) -> tidelog.Store:
    """A store that makes no checkpoint."""
    return tidelog.open(
        root, fsync=EVERYSEC, segment_bytes=segment_bytes, save=(), checkpoint_bytes=0
    )


def _open_s(root: Path) -> float:
    """Seconds of the replay of an open without a checkpoint."""
    files = LogFiles(root)

    def replay() -> None:
        recovery.read_all(files.disk, files.directory, files.uuid, applier(State()))

    return _median(replay)


def _spent(*args: object) -> float:
    """Seconds of one command line inside this process, with its output thrown away."""
    words = [str(arg) for arg in args]

    def once() -> None:
        with open(os.devnull, "w") as sink, redirect_stdout(sink), redirect_stderr(sink):
            cli.run(words)

    return _median(once)


def _median(action: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        gc.collect()
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
