"""A query beside a writer: driver, Python workers and writer are killed, segments are rolled and released meanwhile.

Each record is in one batch, or in a gap that names its LSN.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rounds import some_and_all
from tests.spark.conftest import TEST_CONF
from tests.spark.processes import children, workers

import tidelog
from tidelog.aof.segment import file_name

HERE = Path(__file__).parent


class Child:
    """A process that prints lines."""

    def __init__(self, script: str, *args: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.last = ""

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended by itself"
        self.last = line.strip()
        return self.last

    def lines(self, count: int) -> None:
        for _ in range(count):
            self.line()

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def kill(self) -> str:
        """Kill the process and those below it. Returns the last whole line that it has printed."""
        below = children(self.process.pid)
        self.process.kill()
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        out, _ = self.process.communicate()
        whole = out.rpartition("\n")[0]
        return whole.splitlines()[-1] if whole else self.last

    def end(self) -> str:
        """Close the input and wait for the end. Returns the last line."""
        out, _ = self.process.communicate()
        assert self.process.returncode == 0
        return out.splitlines()[-1] if out.strip() else self.last


def run(
    root: Path, driver: Callable[[Path, Path, Path], Child], kinds: list[str], rng: random.Random
) -> None:
    """Run a query and its writer, and kill what `kinds` say. Checks all batches at the end."""
    store, at, out = root / "s", root / "at", root / "out"
    out.mkdir()
    tidelog.open(store).close()
    writer, query = Child("stream_writer.py", store, 0), driver(store, at, out)
    first = 0  # number with which the writer begins
    for kind in kinds:
        query.lines(rng.randrange(1, 4))
        match kind:
            case "driver":
                query.kill()
                query = driver(store, at, out)
            case "workers":
                for pid in workers(query.process.pid):
                    os.kill(pid, signal.SIGKILL)
            case "stop":
                query.tell("stop\n")
            case "writer":
                first = int(writer.kill() or first) + 100
                writer = Child("stream_writer.py", store, first)
    while (store / "aof" / file_name(1)).exists():  # until segments are released
        query.line()
    stored = int(writer.end() or first)
    assert query.end() == "stopped"
    check(store, out, stored)


def check(store: Path, out: Path, stored: int) -> None:
    """Each record is in one batch or in a gap, and the last number is the one before `stored`."""
    batches = sorted(out.glob("*.json"), key=lambda path: int(path.stem))
    assert [int(path.stem) for path in batches] == list(range(len(batches)))
    rows = [row for path in batches for row in json.loads(path.read_text())]
    gaps = [json.loads(row["detail"]) for row in rows if row["event"] == "gap"]
    assert {gap["reason"] for gap in gaps} <= {"released"}
    lost = [lsn for gap in gaps for lsn in range(gap["from_lsn"], gap["to_lsn"] + 1)]
    seen = [row["lsn"] for row in rows if row["event"] != "gap"]
    # segments were released
    assert min(int(path.stem) for path in (store / "aof").glob("*.aof")) > 1
    with tidelog.open(store, read_only=True) as db:
        last = int(db.info()["next_lsn"]) - 1
    assert sorted(seen + lost) == list(range(min(seen + lost), last + 1))
    numbers = [n for row in rows for n in row["n"]]
    assert numbers == sorted(set(numbers)) and (numbers[-1:] == [stored - 1] or not stored)
    print(f"{len(seen)} records in {len(batches)} batches, {len(lost)} lost in {len(gaps)} gaps")


def follower(*places: Path) -> Child:
    """A driver without a JVM."""
    child = Child("stream_follower.py", *places)
    assert child.line() == "begun"
    return child


def spark_driver(*places: Path) -> Child:
    child = Child("stream_driver.py", *places, json.dumps(TEST_CONF))
    assert child.line() == "begun"
    return child


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", some_and_all(1, 10))
def test_without_a_jvm(tmp_path: Path, kills: int) -> None:
    """As Spark does it, in processes that are killed at random."""
    rng = random.Random(kills)
    kinds = ["driver", "writer"] * kills
    rng.shuffle(kinds)
    run(tmp_path, follower, kinds, rng)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2))
def test_with_spark(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    kinds = ["driver"] * 2 + ["workers"] * 3 + ["stop"] * 2 + ["writer"] * 3
    rng.shuffle(kinds)
    run(tmp_path, spark_driver, kinds, rng)
