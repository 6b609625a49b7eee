"""Exports to Parquet: whole beside Spark's own writer, and what came and went since an earlier one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import tidelog
from tidelog.spark.exports.export import export
from tidelog.spark.exports.run import Advance
from tidelog.spark.exports.seal import ExportFile
from tidelog.spark.exports.task import Task, run
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.spark.planning import read_bytes, read_of
from tidelog.tools.bench.spark.setting import BY_HAND, STREAMS, Setting, add, name_of

CHANGED = 100  # one entry of so many came, and as many went
SPARKS_OWN = "Spark's own writer"
COLUMNS = "db,stream,id,ms,seq,ts,fields,stream_number,id_key"  # those of an export


class Exporting:
    """A process that exports without Spark, all tasks in itself. It is run by processes/fresh.py."""

    def export(self, path: str, to: str, since: str | None) -> dict[str, float]:
        """Seconds, and bytes read meanwhile."""
        before, start = read_bytes(), time.perf_counter()
        export(path, to, since=since, runner=_here)
        return {"seconds": time.perf_counter() - start, "bytes": read_bytes() - before}

    def close(self) -> None: ...


def _here(tasks: Sequence[Task], advance: Advance) -> list[list[ExportFile]]:
    return [run(task) for task in tasks]


def rows(setting: Setting) -> Iterator[Figure]:
    place = setting.bench.fresh("spark-exports")
    big = setting.big()
    base = place / "base"
    ours, theirs = [], []
    for turn in range(setting.runs + 1):
        seconds = setting.spark.call("export", big, place / "ours", None)
        options = {"path": str(big), "columns": COLUMNS}
        own = setting.spark.call("parquet", options, place / "theirs")
        if turn:
            ours.append(setting.entries / seconds)
            theirs.append(setting.entries / own)
        shutil.rmtree(place / "theirs")
        base.exists() or (place / "ours").rename(base)
        shutil.rmtree(place / "ours", ignore_errors=True)
    beside = {SPARKS_OWN: median(theirs)}
    shown = f"{setting.shown}, zstd, local[2]"
    yield Figure("Spark, export", "/s", median(ours), beside, (Bound(900_000),), shown)
    yield Figure(
        "Spark, export, and Spark's own writer",
        "/s",
        median(ours),
        beside,
        (Bound(2.5, SPARKS_OWN),),
        f"{shown}; behind the same source",
    )
    yield from _incremental(setting, big, base, place)


def _incremental(setting: Setting, big: Path, base: Path, place: Path) -> Iterator[Figure]:
    changed = setting.entries // CHANGED
    _change(big, changed // STREAMS, setting.entries // STREAMS)
    spent, whole = [], []
    for turn in range(setting.runs + 1):
        seconds = setting.spark.call("export", big, place / "since", base)
        all_of_it = setting.spark.call("export", big, place / "whole", None) if turn < 2 else 0
        spent += [seconds] if turn else []
        whole += [all_of_it] if turn == 1 else []
        for name in ("since", "whole"):
            shutil.rmtree(place / name, ignore_errors=True)
    shown = f"{changed:,} came and {changed:,} were trimmed, of {setting.shown}"
    yield Figure(
        "Spark, incremental export",
        "s",
        median(spent),
        {"a whole export": median(whole)},
        (Bound(3, most=True),),
        shown,
    )
    with Fresh(Exporting) as exporting:
        exporting.call("export", big, place / "warm", base)  # imports
        found = exporting.call("export", big, place / "since", base)
        all_read = exporting.call("export", big, place / "whole", None)
    (path,) = read_of(str(big)).paths
    size = (Path(path) / "data.mdb").stat().st_size
    yield Figure(
        "Spark, incremental export, share of the data that is read",
        "%",
        found["bytes"] / size * 100,
        {"a whole export": all_read["bytes"] / size * 100},
        (Bound(5, most=True),),
        f"{shown}; with the index of the base, in one process",
    )
    shutil.rmtree(place)


def _change(big: Path, each: int, length: int) -> None:
    """In every stream, as many entries come as are trimmed. Then make a snapshot."""
    db: Any
    with tidelog.open(big, **BY_HAND) as db:
        for number in range(STREAMS):
            add(db, number, each)
            db.xtrim(name_of(number), maxlen=length, approximate=False)
        db.snapshot()
