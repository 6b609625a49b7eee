"""Inspection: how fast the tools read a log: ls, dump, export, stats, plot, verify, state, why, diff and top.

Commands are measured in processor time: they wait for nothing, and other work on the machine counts less.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import tidelog
from tidelog.aof.reading import recovery
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import State
from tidelog.tools import cli, exits
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import STREAM
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import RANDOM, SMALL
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.moved import Moved
from tidelog.tools.logfiles import LogFiles

ENTRIES = 300_000
BATCH = 1_000
RECORDS = 300_000
FRAME = 256
SEGMENTS = 1_000
MANY_RECORDS, MANY_KEYS = 10_000_000, 1_000_000
STATS_MIB = 200
STREAMS = 10_000
WRITTEN_S = 100  # entries that are written per second beside top
WATCHED_S, QUICK_WATCHED_S = 10.0, 3.0
TOP_MS_S = 50  # 5% of a core
REVERSED_MIB = 64  # of a log that is read from its end
REVERSED_MS = 100
CHECKER, LOADER = "redis-check-aof", "redis-cli --pipe"
RUNS = 5
OPEN = "replay of an open"
REPLAY_AND_DIGEST = "tidelog digest"  # an open, and the hash of the whole state


def rows(bench: Bench) -> Iterator[Figure]:
    yield _segments(bench)
    yield from _batches(bench)
    yield from _records(bench)
    yield from _verify(bench)
    yield _reversed(bench)
    yield from _many_keys(bench)
    yield from _top(bench)


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
    resp = bench.fresh("resp") / "log.aof"
    cli.run(["aof", "export", "--resp", str(root), "-o", str(resp)])
    note = f"batches of {BATCH:,}"
    for name, args, loaded in (
        ("aof dump, lines", ("aof", "dump", root), {}),
        ("aof dump --json, entries", ("aof", "dump", root, "--json"), {}),
        ("aof export, commands", ("aof", "export", "--resp", root), _loaded(bench, resp, count)),
    ):
        yield Figure(name, "/s", count / _spent(*args), loaded, (Bound(300_000),), note)
    yield Figure(
        "aof verify --no-replay, entries",
        "/s",
        count / _spent("aof", "verify", root, "--no-replay"),
        _checked(bench, resp, count),
        (),
        f"{note}; {CHECKER} reads the exported commands in a process of its own",
    )


def _loaded(bench: Bench, resp: Path, count: int) -> dict[str, float]:
    """Exported commands per second that redis-cli sends to a new redis-server, which runs them."""
    try:
        # here: redis-py may be missing
        from tidelog.tools.bench.baselines.redis_saved import piped

        return {LOADER: count / piped(bench.fresh("piped"), resp, STREAM, count)}
    except (ImportError, FileNotFoundError) as error:
        bench.missing[LOADER] = str(error)
        return {}


def _reversed(bench: Bench) -> Figure:
    """The newest records of a full segment."""
    mib = bench.scaled(REVERSED_MIB)
    root = bench.fresh("reversed") / "store"
    with closing(_opened(root)) as db:
        for _ in range(mib * (1 << 20) // (BATCH * 100)):
            db.xadd_many(STREAM, RANDOM.some(BATCH))
    spent = _spent("aof", "dump", root, "--reverse", "--limit", "10") * 1000
    bound = (Bound(REVERSED_MS, most=True),)
    return Figure(
        "aof dump --reverse --limit 10",
        "ms",
        spent,
        {},
        bound,
        f"a log of {mib} MiB in one segment",
    )


def _checked(bench: Bench, resp: Path, count: int) -> dict[str, float]:
    """Commands per second of Redis's own check of the file."""
    try:
        times = []
        for _ in range(RUNS):
            start = _of_children()
            subprocess.run([CHECKER, resp], check=True, stdout=subprocess.DEVNULL)
            times.append(_of_children() - start)
    except FileNotFoundError as error:
        bench.missing[CHECKER] = str(error)
        return {}
    return {CHECKER: count / statistics.median(times)}


def _of_children() -> float:
    """Seconds of processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    note = f"frames of {FRAME} records"
    unknown = f"{time.time_ns() // 1_000_000}-1"  # an ID as they are, which is not in the log
    found = count / _spent("aof", "dump", root, "--id", unknown)
    yield Figure("aof dump --id, records", "/s", found, {}, (Bound(1_000_000),), note)
    counted = count / _spent("aof", "stats", root)
    yield Figure("aof stats, records", "/s", counted, {}, (Bound(1_000_000),), note)
    picture = bench.fresh("picture") / "log.svg"
    drawn = count / _spent("aof", "plot", root, "--force", "-o", picture)
    yield Figure("aof plot, records", "/s", drawn, {}, (), note)
    copy = bench.fresh("copy") / "store"
    shutil.copytree(root, copy)
    with closing(_opened(copy)) as db:
        db.xadd(STREAM, {"n": 1})
    compared = count / _spent("diff", root, copy, code=exits.DIFFERS)
    one = f"{note}; of each, and one entry more in the second"
    yield Figure("diff of two logs, records", "/s", compared, {}, (), one)
    compared = count / _spent("diff", "--state", root, copy, code=exits.DIFFERS)
    yield Figure("diff --state, entries", "/s", compared, {}, (), one)
    opened = {OPEN: _open_s(root) * 1000}
    bound = (Bound(1.3, OPEN, most=True),)
    first, last = _ends(root)
    for name, args, code in (
        ("state --at-lsn", ("state", root, "--at-lsn", count, "--key", "none"), exits.OK),
        ("why, an unknown ID", ("why", root, STREAM, unknown), exits.NOT_A_STORE),
        ("why, the first entry", ("why", root, STREAM, first), exits.OK),
        ("why, the last entry", ("why", root, STREAM, last), exits.OK),
    ):
        spent = _spent(*args, code=code) * 1000
        yield Figure(name, "ms", spent, opened, bound, note)
    yield from _why_read(bench)


def _why_read(bench: Bench) -> Iterator[Figure]:
    """The life of an entry in a stream that a group reads and acknowledges, and that is trimmed."""
    count = bench.scaled(RECORDS) // (3 * FRAME) * FRAME
    root = bench.fresh("read") / "store"
    with closing(_opened(root)) as db:
        db.xgroup_create(STREAM, "workers", id="0", mkstream=True)
        for _ in range(count // FRAME):
            pipeline = db.pipeline(transaction=False)
            for fields in SMALL.some(FRAME):
                pipeline.xadd(STREAM, fields)
            pipeline.execute()
            pipeline = db.pipeline(transaction=False)
            for _, entries in db.xreadgroup("workers", "anna", {STREAM: ">"}, count=FRAME):
                for entry_id, _ in entries:
                    pipeline.xack(STREAM, "workers", entry_id)
            pipeline.xtrim(STREAM, maxlen=count // 2)
            pipeline.execute()
    first, last = _ends(root)
    opened = {OPEN: _open_s(root) * 1000}
    bound = (Bound(1.3, OPEN, most=True),)
    note = f"{count:,} entries, read and acknowledged; frames of {FRAME} records; trimmed to half of them"
    for name, entry in (("the oldest entry that is left", first), ("the last entry", last)):
        spent = _spent("why", root, STREAM, entry) * 1000
        yield Figure(f"why, of a group: {name}", "ms", spent, opened, bound, note)


def _ends(root: Path) -> tuple[str, str]:
    """The first and the last ID of the stream."""
    with closing(tidelog.open(root, read_only=True)) as db:
        (first, _), *_ = db.xrange(STREAM, count=1)
        (last, _), *_ = db.xrevrange(STREAM, count=1)
        return first.decode(), last.decode()


def _verify(bench: Bench) -> Iterator[Figure]:
    """The check of a log of single XADDs of 100 bytes in frames of many."""
    count = bench.scaled(RECORDS) // FRAME * FRAME
    root = bench.fresh("hundred") / "store"
    with closing(_opened(root)) as db:
        for _ in range(count // FRAME):
            pipeline = db.pipeline(transaction=False)
            for number, fields in enumerate(RANDOM.some(FRAME)):
                pipeline.xadd(STREAM if number % 2 else "returns", fields)
            pipeline.execute()
    nbytes = sum(path.stat().st_size for path in (root / "aof").glob("*.aof"))
    note = f"frames of {FRAME} entries of 100 bytes"
    checked = nbytes / 1e6 / _spent("aof", "verify", root, "--no-replay")
    yield Figure("aof verify --no-replay", "MB/s", checked, {}, (Bound(250),), note)
    opened = {OPEN: _open_s(root) * 1000}
    shutil.rmtree(root / "checkpoint")  # made by close; with it, digest would read no log
    hashed = _spent("digest", root) * 1000
    replayed = _spent("aof", "verify", root) * 1000
    opened[REPLAY_AND_DIGEST] = hashed
    with_digest = f"{note}; it also hashes the whole state, which an open does not"
    yield Figure("aof verify", "ms", replayed, opened, (Bound(1.3, OPEN, most=True),), with_digest)


def _many_keys(bench: Bench) -> Iterator[Figure]:
    """The speed and the memory of stats with many keys. Measured once: it takes a minute."""
    count, keys = bench.scaled(MANY_RECORDS) // FRAME * FRAME, bench.scaled(MANY_KEYS)
    root = bench.fresh("keys") / "store"
    with closing(_opened(root)) as db:
        for first in range(0, count, FRAME):
            pipeline = db.pipeline(transaction=False)
            for number in range(first, first + FRAME):
                pipeline.set(f"sensor:{number * 7919 % keys}", b"7")
            pipeline.execute()
    with Fresh(Moved) as fresh:
        held = fresh.anonymous()
        seconds = fresh.call("worked", "aof", "stats", str(root))
        mib = (fresh.peak() - held) / (1 << 20)
    note = f"{count:,} SETs"
    speed = (Bound(1_000_000),)
    yield Figure(f"aof stats, {keys:,} keys, records", "/s", count / seconds, {}, speed, note)
    memory = (Bound(STATS_MIB, most=True),)
    note = f"{note}; growth of anonymous memory"
    yield Figure(f"aof stats, memory for {keys:,} keys", "MiB", mib, {}, memory, note)


def _top(bench: Bench) -> Iterator[Figure]:
    """The application without a terminal, one look a second, beside a writer that rests and one that does not."""
    try:
        # here: textual may be missing
        from tidelog.tools.bench.processes.watched import Watched
    except ImportError as error:
        bench.missing["textual"] = str(error)
        return
    streams = bench.scaled(STREAMS)
    seconds = QUICK_WATCHED_S if bench.quick else WATCHED_S
    root = bench.fresh("streams") / "store"
    bound = (Bound(TOP_MS_S, most=True),)
    with closing(_opened(root)) as db:
        for number in range(streams):
            db.xadd(f"{STREAM}:{number}", {"n": number})
            db.xgroup_create(f"{STREAM}:{number}", "workers", id="0")
        for name, written_s in (("nothing is written", 0), (f"{WRITTEN_S} XADD/s", WRITTEN_S)):
            ended = threading.Event()
            writer = threading.Thread(target=_write, args=(db, streams, written_s, ended))
            writer.start()
            try:
                with Fresh(Watched) as fresh:
                    spent = fresh.call("watch", str(root), seconds)
            finally:
                ended.set()
                writer.join()
            shown = f"{streams:,} streams with a group each, one look a second"
            yield Figure(f"top, {name}", "ms/s", spent, {}, bound, shown)


def _write(db: tidelog.Store, streams: int, per_s: int, ended: threading.Event) -> None:
    number = 0
    while per_s and not ended.wait(1 / per_s):
        db.xadd(f"{STREAM}:{number % streams}", {"n": number})
        number += 1


def _opened(root: Path, segment_bytes: int = 64 << 20) -> tidelog.Store:
    """A store that makes no checkpoint before it is closed."""
    return tidelog.open(
        root, fsync=EVERYSEC, segment_bytes=segment_bytes, save=(), checkpoint_bytes=0
    )


def _open_s(root: Path) -> float:
    """Seconds of processor time of the replay of an open without a checkpoint."""
    files = LogFiles(root)

    def replay() -> None:
        recovery.read_all(files.disk, files.directory, files.uuid, applier(State()))

    return _median(replay)


def _spent(*args: object, code: int = exits.OK) -> float:
    """Seconds of processor time of one command line inside this process, with its output thrown away.

    Raises RuntimeError if it ends with another exit code: a command that fails early is fast.
    """
    words = [str(arg) for arg in args]

    def once() -> None:
        with open(os.devnull, "w") as sink, redirect_stdout(sink), redirect_stderr(sink):
            ended = cli.run(words)
        if ended != code:
            raise RuntimeError(f"tidelog {' '.join(words)} ended with {ended}, not {code}")

    return _median(once)


def _median(action: Callable[[], object]) -> float:
    """Seconds of processor time."""
    times = []
    for _ in range(RUNS):
        gc.collect()
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return statistics.median(times)
