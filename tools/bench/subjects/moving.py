"""Moving from Redis and back: a dump file written and imported, beside redis-server's own load of the same file.

Each figure comes from a fresh process, imports of modules excluded. redis-server writes its files with LZF; tidelog
writes without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.moved import Moved
from tidelog.tools.bench.processes.opened import Opened
from tidelog.tools.bench.processes.stored import pending_store, sensor_store

ENTRIES = 1_000_000
PENDING = 1_000_000
LARGE = 5_000_000
TIMES, QUICK_TIMES = 3, 1
EXPORTED_S, IMPORTED_S, IMPORTED_LZF_S = 300_000, 200_000, 60_000  # entries per second
PSYNC_RATIO = 0.7
MEMORY_MIB = 300
TARGET = "7.0"


class Run(NamedTuple):
    """The median seconds of a command, and the most memory of its process in MiB."""

    seconds: float
    mib: float


def rows(bench: Bench) -> Iterator[Figure]:
    size = bench.scaled(ENTRIES)
    directory = bench.fresh("moving")
    dump = directory / "dump.rdb"
    store = sensor_store(bench, size).path
    exported = _export(bench, store, dump)
    yield Figure(
        "rdb export, sensor readings",
        "/s",
        size / exported.seconds,
        {},
        (Bound(EXPORTED_S),),
        f"{size:,} entries in one stream, for Redis {TARGET}",
    )
    imported = _import(bench, dump)
    loaded = _redis(bench, directory, size)
    yield Figure(
        "import of that file",
        "/s",
        size / imported.seconds,
        loaded,
        (Bound(IMPORTED_S),),
        "into a new store, synced to disk; redis-server: start to first reply",
    )
    if loaded:
        from_file = size / _import(bench, dump).seconds
        yield Figure(
            "import of redis-server's own file of them, LZF in C",
            "/s",
            from_file,
            loaded,
            (Bound(IMPORTED_S),),
        )
        yield Figure(
            "import of that file, LZF in Python",
            "/s",
            size / _import(bench, dump, lzf_in_c=False).seconds,
            loaded,
            (Bound(IMPORTED_LZF_S),),
            "as without the extra `import`",
        )
        yield Figure(
            "import of that server by psync",
            "/s",
            size / _by_psync(bench, directory),
            {"its file": from_file},
            (Bound(PSYNC_RATIO, of="its file"),),
            "with the time in which the server writes the file for its replica",
        )
    yield from _pending(bench, directory / "pending.rdb", imported.mib)
    yield _large(bench, directory / "large.rdb")


def _pending(bench: Bench, dump: Path, mib: float) -> Iterator[Figure]:
    pending = bench.scaled(PENDING)
    _export(bench, pending_store(bench, pending).path, dump)
    run = _import(bench, dump)
    yield Figure(
        f"import of {pending:,} pending entries",
        "/s",
        pending / run.seconds,
        {},
        (),
        "entries, each pending for one group",
    )
    yield Figure(
        "most memory of that import",
        "MiB",
        run.mib,
        {"of the import without pending entries": mib},
        (Bound(MEMORY_MIB, most=True),),
        "anonymous memory of the process",
    )


def _large(bench: Bench, dump: Path) -> Figure:
    """The memory of an import of many entries, a part of which are pending. Measured once: it takes a minute."""
    entries, pending = bench.scaled(LARGE), bench.scaled(PENDING)
    path = bench.fresh("large") / "store"
    with Fresh(Opened, path) as fresh:
        fresh.call("add", entries)
        fresh.call("deliver", pending)
        fresh.call("checkpoint")
    export_and_import = (
        ["rdb", "export", str(path), str(dump), "--target", TARGET],
        ["import", str(bench.fresh("large-imported") / "store"), str(dump)],
    )
    for command in export_and_import:
        with Fresh(Moved) as fresh:
            seconds = fresh.call("run", *command)
            mib = fresh.peak() / (1 << 20)
    return Figure(
        f"most memory of an import of {entries:,} entries",
        "MiB",
        mib,
        {},
        (Bound(MEMORY_MIB, most=True),),
        f"{pending:,} of them pending; {entries / seconds:,.0f} entries a second",
    )


def _export(bench: Bench, store: Path, dump: Path) -> Run:
    def command(number: int) -> list[str]:
        dump.unlink(missing_ok=True)
        return ["rdb", "export", str(store), str(dump), "--target", TARGET]

    return _median(bench, command)


def _import(bench: Bench, dump: Path, *, lzf_in_c: bool = True) -> Run:
    place = bench.fresh("imported")
    return _median(bench, lambda number: ["import", str(place / str(number)), str(dump)], lzf_in_c)


def _median(bench: Bench, command: Callable[[int], list[str]], lzf_in_c: bool = True) -> Run:
    times, mib = [], 0.0
    for number in range(QUICK_TIMES if bench.quick else TIMES):
        with Fresh(Moved) as fresh:
            if not lzf_in_c:
                fresh.call("without_lzf_in_c")
            times.append(fresh.call("run", *command(number)))
            mib = max(mib, fresh.peak() / (1 << 20))
    return Run(median(times), mib)


def _by_psync(bench: Bench, directory: Path) -> float:
    """Seconds of an import from a server that has loaded the file."""
    # here: redis-py may be missing
    from tidelog.tools.bench.baselines.redis_saved import with_the_file

    place = bench.fresh("by_psync")
    with with_the_file(directory) as url:
        return _median(bench, lambda number: ["import", str(place / str(number)), url]).seconds


def _redis(bench: Bench, directory: Path, entries: int) -> dict[str, float]:
    """redis-server's load of the file, in entries per second. It then writes its own file in place of it."""
    try:
        # here: redis-py may be missing
        from tidelog.tools.bench.baselines.redis_saved import loading_and_saving

        seconds = loading_and_saving(directory, entries)
    except (ImportError, FileNotFoundError) as error:
        bench.missing["redis-py"] = str(error)
        return {}
    return {"redis-server": entries / seconds}
