"""What must hold of a store after a crash, beside its contents: each check finds a planted fault."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tidelog.aof.reading import recovery
from tidelog.api.sync import Store
from tidelog.crash import afterwards as checks
from tidelog.crash import served
from tidelog.crash.afterwards import afterwards
from tidelog.crash.explore import STORE, Effort, Explorer, Report
from tidelog.crash.lives import Step
from tidelog.crash.notes import notes
from tidelog.crash.oracle import Fault, Oracle
from tidelog.crash.served import Files, Memory, Stage, be_quiet
from tidelog.crash.states import cut_at
from tidelog.crash.workloads import record
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.snapshot import restore as restoring
from tidelog.store.read_only import ReadOnlyCore

SHORT: list[Step] = [["add", 0, 300], ["set", 0, 600], ["read", 0, 1], ["add", 0, 700]]
SNAPSHOTS: list[Step] = [
    ["add", 0, 300],
    ["snapshot"],
    ["add", 0, 10],
    ["checkpoint"],
    ["nack", 0, 1, 1],
    ["add", 0, 2500],
    ["snapshot"],
    ["snapshot"],
    ["both", 0, 2],
    ["copy", 0, 10],
]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    be_quiet()


def explored(stage: Stage, steps: list[Step] = SHORT) -> Report:
    effort = Effort(drawn=4, exhaustive=8, double=0, killed=0, again=1.0)
    explorer = Explorer(stage, random.Random(1), effort)
    explorer.explore(record(stage, "no", steps, {"seed": "1"}))
    return explorer.report


def at_the_end(stage: Stage, steps: list[Step]) -> Fault | None:
    """Check the whole disk at the end of a life."""
    trace = record(stage, "no", steps, {"seed": "1", "budget": 4096})
    cut = cut_at(trace, len(trace.operations))
    found = afterwards(
        stage, cut.image(cut.whole), Oracle(trace.units), random.Random(1), whole=True
    )
    stage.clear()
    return found


def test_everything_holds_in_memory() -> None:
    report = explored(Memory())
    assert [finding.words for finding in report.findings] == []
    assert report.of(STORE).again > 30


def test_everything_holds_on_files_with_snapshots(tmp_path: Path) -> None:
    fault = at_the_end(Files(tmp_path), SNAPSHOTS)
    assert fault is None, fault


def found(report: Report) -> str:
    (finding,) = report.findings
    assert finding.words.startswith("afterwards, ")
    return finding.words


def test_bytes_without_a_copy_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_quarantine", lambda *args: None)
    assert "without a copy" in found(explored(Memory()))


def test_a_thread_that_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real, go = Store.close, threading.Event()

    def close(self: Store, *args: Any, **options: Any) -> None:
        threading.Thread(target=go.wait, name="left", daemon=True).start()
        real(self, *args, **options)

    monkeypatch.setattr(Store, "close", close)
    words = found(explored(Memory()))
    go.set()
    assert "there are threads: ['left'" in words


def test_a_descriptor_and_a_file_that_are_left_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = Store.close
    left: list[Any] = []

    def close(self: Store, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        if monkeypatching:
            left.append(open("/dev/null"))  # noqa: SIM115

    monkeypatching = True
    monkeypatch.setattr(Store, "close", close)
    assert "descriptors are open" in found(explored(Memory()))
    for each in left:
        each.close()
    monkeypatching = False
    monkeypatch.setattr(checks, "tree_of", lambda disk, root: {f"store/STORE{recipe.BESIDE}": b"x"})
    monkeypatch.setattr(checks, "deletion", lambda *args, **options: "")
    assert "unpublished files" in found(explored(Memory()))


def test_a_write_that_the_next_crash_takes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Store.xadd

    def xadd(self: Store, name: Any, *args: Any, **options: Any) -> Any:
        return b"1-0" if name == checks.PROBE else real(self, name, *args, **options)

    monkeypatch.setattr(Store, "xadd", xadd)
    assert "lost in the next crash" in found(explored(Memory()))


def test_an_inspector_that_disagrees_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = served.contents_of

    def contents_of(db: Store) -> Any:
        contents = real(db)
        if isinstance(db._core, ReadOnlyCore):
            contents.pop(b"stream0", None)
        return contents

    monkeypatch.setattr(checks, "contents_of", contents_of)
    fault = at_the_end(Files(tmp_path), SHORT)
    assert fault is not None and "a read-only open shows other contents" in fault.words


def test_a_snapshot_without_its_log_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A log that is released although a kept snapshot needs it: nothing can be rolled forward."""
    stage = Files(tmp_path)
    trace = record(stage, "no", SNAPSHOTS, {"seed": "1"})
    cut = cut_at(trace, len(trace.operations))
    image = cut.image(cut.whole)
    real = restoring.restore

    def restore(disk: RealDisk, path: Path, target: Path, **options: Any) -> Any:
        options.pop("until_lsn")
        options.pop("aof")
        return real(disk, path, target, **options)

    monkeypatch.setattr(checks, "restore", restore)
    fault = afterwards(stage, image, Oracle(trace.units), random.Random(1), whole=True)
    stage.clear()
    assert fault is not None and "rolled forward to the end" in fault.words


def test_the_report_says_of_how_many() -> None:
    report = Report()
    report.of(STORE).distinct, report.of(STORE).again = 800, 100
    (line,) = notes(report)
    assert line.startswith("store: 100 of the 800 images went through more: quarantine, ")
