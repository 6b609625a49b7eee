"""The rows about Spark: reads are counted, processes are found, and every row is measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

import tidelog
from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Figure
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.spark import bucket, exporting, reading, streaming, tree
from tidelog.tools.bench.spark.planning import Planning, counted
from tidelog.tools.bench.spark.setting import STREAMS, Setting, name_of, store
from tidelog.tools.bench.subjects import spark as subject

CHILD = """\
import sys, time
while time.process_time() < 0.3: pass
print("done", flush=True)
sys.stdin.read()
"""


class Session:
    """Stands for the process with the session, in the rows that need none."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def call(self, what: str, *arguments: object) -> Any:
        self.asked.append(what)
        return [2.0, 1.0]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as run:
        yield run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "scaled", lambda self, count: count // 200)


def names(rows: Iterator[Figure]) -> list[str]:
    found = list(rows)
    for row in found:
        assert row.target and row.measured >= 0
    return [row.name for row in found]


def test_what_a_read_costs_is_counted(tmp_path: Path) -> None:
    path = str(store(tmp_path, 20, 3_000))
    whole, one = counted(path), counted(path, name_of(7))
    assert (whole.entries, one.entries) == (60_000, 3_000)
    assert one.reads < whole.reads and one.nbytes < whole.nbytes / 2
    assert whole.nbytes >= 0.9 * whole.file_bytes


def test_a_bucket_has_the_same_entries(bench: Bench, small: None) -> None:
    found = names(bucket.rows(Setting(bench, Session())))  # type: ignore[arg-type]
    assert len(found) == 4 and not bench.missing


def test_a_plan_is_timed(tmp_path: Path) -> None:
    path = store(tmp_path, 30, 10)
    with Fresh(Planning) as planning:
        found = planning.call("plan", str(path))
    assert found["parts"] == 1 and 0 < found["seconds"] < 10


def test_one_stream_must_have_its_entries(bench: Bench, small: None) -> None:
    setting = Setting(bench, Session())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="one stream has 2.0 entries, not 100"):
        list(reading.rows(setting))


def test_a_query_must_read_all(bench: Bench, small: None) -> None:
    setting = Setting(bench, Session())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the query read 2.0 entries of 5000"):
        list(streaming.rows(setting))


def test_as_many_entries_come_as_go(tmp_path: Path) -> None:
    path = store(tmp_path, STREAMS, 50)
    exporting._change(path, 5, 50)
    with tidelog.open(path) as db:
        assert {db.xlen(name_of(number)) for number in range(STREAMS)} == {50}
        assert db.xinfo_stream(name_of(3))["entries-added"] == 55


def test_processor_time_and_memory_are_those_of_all_descendants() -> None:
    root = Popen([sys.executable, "-c", CHILD], stdin=PIPE, stdout=PIPE)
    with root:
        assert root.stdout is not None and root.stdin is not None
        assert root.stdout.readline() == b"done\n"
        assert 0.2 < tree.cpu_s(root.pid) < 10
        assert tree.peak_bytes(root.pid) > 5_000_000
        assert tree.workers(root.pid) == []
        shell = Popen(["sh", "-c", f"{sys.executable} -c '{CHILD}'; true"], stdin=PIPE, stdout=PIPE)
        with shell:
            assert shell.stdout is not None and shell.stdin is not None
            assert shell.stdout.readline() == b"done\n"
            (child,) = tree.descendants(shell.pid)
            assert tree.cpu_s(shell.pid) > 0.2
            each = tree.each_cpu_s(shell.pid)
            assert each.keys() == {shell.pid, child} and each[child] > 0.2
            shell.stdin.close()
        root.stdin.close()
    assert tree.peak_bytes(child) == 0, "a process that has ended has none"


def test_without_pyspark_the_subject_is_named_as_missing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tidelog.tools.bench.spark.session", None)
    assert list(subject.rows(bench)) == []
    assert "session" in bench.missing["spark"]


@pytest.mark.soak
def test_every_row_of_spark(bench: Bench, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "QUICK_LATE", 5)
    monkeypatch.setattr(streaming, "QUICK_IDLE_S", 0.5)
    found = names(subject.rows(bench))
    assert len(found) == len(set(found)) == 29
    assert not bench.missing
