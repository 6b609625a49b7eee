"""Inspection: how fast the commands read a log: dump, export, stats, verify, state and why.

Commands run inside one process, with their output thrown away, and are measured in processor time: they wait for
nothing, and other work on the machine counts less.
"""

from __future__ import annotations

import gc
import os
import resource
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import tidelog
from bench.figure import OURS, Bound, Figure
from bench.messages import BATCH, RANDOM, SMALL
from bench.ours import BY_HAND
from bench.race import CPU, Value
from bench.run import EVERYSEC, Run
from bench.wire import STREAM
from bench.worker import Worker

RECORDS = 300_000  # in each log
FRAME = 256
RUNS, QUICK_RUNS = 5, 3
OPEN = "replay of an open"
DIGEST = "tidelog digest"  # an open, and the hash of the whole state
CHECKER = "redis-check-aof"
OK, NOT_A_STORE = 0, 3  # exit codes of the command line


class Logs:
    """A process that makes logs below its directory, and runs the command line on them."""

    def __init__(self, directory: str) -> None:
        self._place = Path(directory)
        self._words: dict[str, str] = {}

    def make(self, name: str, records: int) -> int:
        """A closed store of "batches", or of "single" or "random" entries. A copy without a checkpoint is beside it,
        as NAME-log. Returns the bytes of the log.
        """
        root = self._place / name
        with tidelog.open(root, fsync=EVERYSEC, **BY_HAND) as opened:
            db: Any = opened
            if name == "batches":
                for _ in range(records // BATCH):
                    db.xadd_many(STREAM, SMALL.some(BATCH))
            else:
                messages = RANDOM if name == "random" else SMALL
                for _ in range(records // FRAME):
                    pipeline = db.pipeline(transaction=False)
                    for number, fields in enumerate(messages.some(FRAME)):
                        # Between two streams: consecutive XADDs to one stream would become one record.
                        pipeline.xadd("returns" if number % 2 else STREAM, fields)
                    pipeline.execute()
            ((first, _),), ((last, _),) = db.xrange(STREAM, count=1), db.xrevrange(STREAM, count=1)
            shutil.copytree(root, self._place / f"{name}-log")
        # Words of a command line that differ from version to version.
        self._words |= {f"@{name}": str(root), f"@{name}-log": f"{root}-log"}
        self._words |= {"@first": first.decode(), "@last": last.decode()}
        self._words["@none"] = (
            f"{last.decode().partition('-')[0]}-99999"  # as they are, but not there
        )
        return sum(path.stat().st_size for path in (root / "aof").glob("*.aof"))

    def before_runs(self, count: int, words: Sequence[str], code: int) -> None:
        gc.collect()

    def runs(self, count: int, words: Sequence[str], code: int) -> None:
        """One command line; `@name` is the path of a log. Raises RuntimeError if it ends with another exit code: a
        command that fails early is fast.
        """
        line = [self._words.get(word, word) for word in words]
        ended: object = None
        before = sys.argv
        sys.argv = ["tidelog", *line]
        try:
            with open(os.devnull, "w") as sink, redirect_stdout(sink), redirect_stderr(sink):
                runpy.run_module("tidelog", run_name="__main__")
        except SystemExit as error:
            ended = error.code or 0
        finally:
            sys.argv = before
        if ended != code:
            raise RuntimeError(f"tidelog {' '.join(line)} ended with {ended}, not {code}")

    def before_opens(self, count: int, name: str) -> None:
        shutil.copytree(self._place / f"{name}-log", self._place / "opened")
        gc.collect()

    def opens(self, count: int, name: str) -> None:
        """An open that replays a log."""
        self._opened = tidelog.open(self._place / "opened", fsync=EVERYSEC, **BY_HAND)

    def after_opens(self, count: int, name: str) -> None:
        self._opened.close()
        shutil.rmtree(self._place / "opened")

    def checks(self, name: str) -> float:
        """Seconds of processor time in which Redis's own check reads the exported commands of a log."""
        exported = self._place / f"{name}.aof"
        if not exported.exists():
            self.runs(1, ["aof", "export", "--resp", f"@{name}", "-o", str(exported)], OK)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([CHECKER, exported], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def close(self) -> None: ...


def rows(run: Run) -> Iterator[Figure]:
    with run.sides(Logs) as ours:
        yield from _batches(run, ours)
        yield from _records(run, ours)
        yield from _verify(run, ours)


def _spent(run: Run, ours: list[Worker], *words: str, code: int = OK) -> Value:
    """Median seconds of processor time of a command line."""

    def measure(side: Worker) -> dict[str, float]:
        return {"": side.slice("runs", 1, words=words, code=code)[CPU]}

    return run.by_turns(ours, QUICK_RUNS if run.quick else RUNS, measure)[""][OURS]


def _open_ms(run: Run, ours: list[Worker], name: str) -> Value:
    def measure(side: Worker) -> dict[str, float]:
        return {"": side.slice("opens", 1, name=name)[CPU] * 1000}

    return run.by_turns(ours, QUICK_RUNS if run.quick else RUNS, measure)[""][OURS]


def _made(run: Run, ours: list[Worker], name: str) -> tuple[int, int]:
    """Make a log. The number of its records, and its bytes."""
    whole = BATCH if name == "batches" else FRAME
    count = run.scaled(RECORDS) // whole * whole
    return count, [side.call("make", name, count) for side in ours][0]


def _batches(run: Run, ours: list[Worker]) -> Iterator[Figure]:
    """The commands that print a line for each entry, over a log of batches."""
    count, _ = _made(run, ours, "batches")
    note, bound = f"batches of {BATCH:,}", Bound(300_000)
    for name, words in (
        ("aof dump, lines", ("aof", "dump", "@batches")),
        ("aof dump --json, entries", ("aof", "dump", "@batches", "--json")),
        ("aof export, commands", ("aof", "export", "--resp", "@batches")),
    ):
        rate = {OURS: _spent(run, ours, *words).rate(count)}
        yield Figure.of(name, "/s", rate, bound, note=note)
    rates = {OURS: _spent(run, ours, "aof", "verify", "@batches", "--no-replay").rate(count)}
    if not run.compares:
        if shutil.which(CHECKER):
            rates[CHECKER] = Value(count / ours[0].call("checks", "batches"))
        else:
            run.missing[CHECKER] = f"{CHECKER} is not in PATH"
    note = f"{note}; {CHECKER} reads the exported commands in a process of its own"
    yield Figure.of("aof verify --no-replay, entries", "/s", rates, note=note)


def _records(run: Run, ours: list[Worker]) -> Iterator[Figure]:
    """The commands that read records, over a log of single XADDs in frames of many."""
    count, _ = _made(run, ours, "single")
    note, million = f"frames of {FRAME} records", Bound(1_000_000)
    for name, words in (
        ("aof dump --id, records", ("aof", "dump", "@single", "--id", "@none")),
        ("aof stats, records", ("aof", "stats", "@single")),
    ):
        rate = {OURS: _spent(run, ours, *words).rate(count)}
        yield Figure.of(name, "/s", rate, million, note=note)
    opened, bound = _open_ms(run, ours, "single"), Bound(1.3, OPEN, most=True)
    commands: tuple[tuple[str, tuple[str, ...], int], ...] = (
        ("state --at-lsn", ("state", "@single", "--at-lsn", str(count), "--key", "none"), OK),
        ("why, an unknown ID", ("why", "@single", STREAM, "@none"), NOT_A_STORE),
        ("why, the first entry", ("why", "@single", STREAM, "@first"), OK),
        ("why, the last entry", ("why", "@single", STREAM, "@last"), OK),
    )
    for name, line, code in commands:
        found = {OURS: _spent(run, ours, *line, code=code).times(1000), OPEN: opened}
        yield Figure.of(name, "ms", found, bound, note=note)


def _verify(run: Run, ours: list[Worker]) -> Iterator[Figure]:
    """The check of a log of single XADDs of 100 bytes in frames of many."""
    _, nbytes = _made(run, ours, "random")
    note = f"frames of {FRAME} entries of 100 bytes"
    checked = _spent(run, ours, "aof", "verify", "@random", "--no-replay").rate(nbytes / 1e6)
    yield Figure.of("aof verify --no-replay", "MB/s", {OURS: checked}, Bound(250), note=note)
    found = {
        OURS: _spent(run, ours, "aof", "verify", "@random").times(1000),
        OPEN: _open_ms(run, ours, "random"),
        DIGEST: _spent(run, ours, "digest", "@random-log").times(1000),
    }
    note = f"{note}; it also hashes the whole state, which an open does not"
    yield Figure.of("aof verify", "ms", found, Bound(1.3, OPEN, most=True), note=note)
