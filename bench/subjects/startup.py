"""Start-up: importing the library, opening an empty store, one with a checkpoint, and one that is a log alone."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tidelog
from bench.figure import Bound, Figure
from bench.messages import BATCH, SMALL
from bench.ours import BY_HAND
from bench.race import each
from bench.run import EVERYSEC, Run
from bench.wire import STREAM
from bench.worker import Worker

TIMES = 7
STORED, REPLAYED = 1_000_000, 200_000  # entries in a checkpoint, records in a log
FRAME = 256
IMPORT = "import time; start = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"
IMPORTED = "import tidelog; tidelog.open"  # the name loads the rest


class Opening:
    """A process that opens stores. `opens` of an empty store creates it."""

    def __init__(self, directory: str) -> None:
        self._place = Path(directory)
        self._number = 0

    def imports(self, statement: str) -> float:
        """Milliseconds of an import in a fresh interpreter of the same version."""
        words = [sys.executable, "-P", "-c", IMPORT.format(statement)]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
        return float(done.stdout) * 1000

    def creates(self) -> float:
        """Milliseconds to create, open and close an empty store."""
        self._number += 1
        start = time.perf_counter()
        tidelog.open(self._place / f"empty-{self._number}", fsync=EVERYSEC).close()
        return (time.perf_counter() - start) * 1000

    def fill(self, entries: int) -> None:
        """A store with a checkpoint."""
        with self._by_hand("stored") as db:
            for _ in range(entries // BATCH):
                db.xadd_many(STREAM, SMALL.some(BATCH))

    def opens(self) -> float:
        """Milliseconds of an open of that store, and a first XLEN."""
        start = time.perf_counter()
        with self._by_hand("stored") as db:
            db.xlen(STREAM)
            return (time.perf_counter() - start) * 1000

    def log(self, records: int, per_frame: int) -> None:
        """A store that is a log alone, as a killed process leaves it."""
        with self._by_hand(f"written-{per_frame}") as db:
            for _ in range(records // FRAME):
                # Alternate between two streams, because consecutive XADDs to one stream would become one record.
                pipeline = db if per_frame == 1 else db.pipeline(transaction=False)
                for number, fields in enumerate(SMALL.some(FRAME)):
                    pipeline.xadd(STREAM if number % 2 else "returns", fields)
                if per_frame > 1:
                    pipeline.execute()
            shutil.copytree(self._place / f"written-{per_frame}", self._place / f"{per_frame}")

    def before_replay(self, count: int, per_frame: int) -> None:
        shutil.copytree(self._place / f"{per_frame}", self._place / "replayed")

    def replay(self, count: int, per_frame: int) -> None:
        """Open such a store. Each count is one open of all of it."""
        self._opened = self._by_hand("replayed")

    def after_replay(self, count: int, per_frame: int) -> None:
        self._opened.close()
        shutil.rmtree(self._place / "replayed")

    def _by_hand(self, name: str) -> Any:
        return tidelog.open(self._place / name, fsync=EVERYSEC, **BY_HAND)

    def close(self) -> None: ...


class Sqlite:
    """The same with one table of sqlite3."""

    def __init__(self, directory: str) -> None:
        self._place = Path(directory)
        self._number = 0

    def creates(self) -> float:
        self._number += 1
        start = time.perf_counter()
        db = sqlite3.connect(self._place / f"{self._number}.db")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB)")
        db.close()
        return (time.perf_counter() - start) * 1000

    def close(self) -> None: ...


def rows(run: Run) -> Iterator[Figure]:
    with run.sides(Opening) as ours, run.beside({"sqlite3, one table": Sqlite}) as sqlite:
        yield _imports(run, ours)
        created = run.by_turns([*ours, *sqlite], TIMES, lambda side: {"": side.call("creates")})
        yield Figure.of("create, open and close an empty store", "ms", created[""])
        entries = run.scaled(STORED)
        for side in ours:
            side.call("fill", entries)
        opened = run.by_turns(ours, TIMES, lambda side: {"": side.call("opens")})
        bound = Bound(50, most=True)
        yield Figure.of(f"open and first XLEN, {entries:,} entries", "ms", opened[""], bound)
        records = run.scaled(REPLAYED) // FRAME * FRAME
        for per_frame, least in ((FRAME, 700_000), (1, 500_000)):
            for side in ours:
                side.call("log", records, per_frame)
            opens = run.race(each(ours, "replay", most=1, per_frame=per_frame))
            rates = {name: rate.times(records) for name, rate in opens.items()}
            name = "one record per frame" if per_frame == 1 else f"frames of {per_frame} records"
            note = f"{records:,} records, opened without a checkpoint"
            yield Figure.of(f"replay, {name}", "/s", rates, Bound(least), note=note)


def _imports(run: Run, ours: list[Worker]) -> Figure:
    """tidelog of each version beside other libraries."""
    beside = () if run.compares else ("import redis", "import sqlite3")

    def measure(side: Worker) -> dict[str, float]:
        return {name: side.call("imports", name) for name in (IMPORTED, *beside)}

    found = run.by_turns(ours, TIMES, measure)
    of = {name: value for name, each in found.items() for value in each.values()}
    return Figure.of(IMPORTED, "ms", of, measured=IMPORTED)
