"""A process that is killed at any operation leaves a store that keeps its promises."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tidelog.aof.log import Log
from tidelog.crash import report as reports
from tidelog.crash.injector import AFTER, BEFORE, INSIDE, KILLS, Trouble
from tidelog.crash.killed import KILL, Effort, Runs, kill
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Kind
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import unpack
from tidelog.disk.real import RealDisk, RealFile

FIRST: list[Step] = [["add", 0, 700], ["read", 0, 1], ["checkpoint"], ["both", 0, 3]]
SECOND: list[Step] = [["add", 0, 3000], ["ack", 0, 1], ["checkpoint"], ["set", 0, 20]]


def scene(policy: str) -> Scene:
    return Scene(policy, (FIRST, SECOND), "1")


@pytest.mark.parametrize(
    ("policy", "drawn"),
    [("always", 5), pytest.param("no", 60, marks=pytest.mark.slow)],
)
def test_a_killed_process_takes_nothing_with_it(policy: str, drawn: int, tmp_path: Path) -> None:
    report = kill(scene(policy), tmp_path, random.Random(1), Effort(drawn))
    assert [finding.words for finding in report.findings] == []
    counts = report.of(KILL)
    assert counts.there > 200
    assert counts.tried == min(drawn, counts.there)
    assert counts.distinct > 0.8 * counts.tried
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_reply_before_the_write_is_found_kept_and_tried_again(
    tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that a unit is written, and writes it with the next one."""
    kept: list[tuple[RealFile, int, bytes]] = []
    real = RealFile.write

    def late(self: RealFile, offset: int, data: bytes) -> None:
        for each in kept:
            real(*each)
        kept.clear()
        if self.path.suffix == ".aof" and len(data) < 400:
            kept.append((self, offset, data))
        else:
            real(self, offset, data)

    adds: list[Step] = [["set", 0, 20]] * 4
    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "map", lambda self, length: None)
        patch.setattr(RealFile, "write", late)
        found = kill(Scene("no", (adds, adds), "1"), room, random.Random(1), Effort(10_000, 0))
        (finding,) = found.findings
        finding = shrink(finding, room, 60)
        assert finding.kind == Kind.LOST.value and finding.trouble is not None
        assert unpack(finding.trace, "x").about["steps"] == [["set", 0, 20]]
        reports.save(RealDisk(), tmp_path / "found", finding)
        loaded = reports.load(RealDisk(), tmp_path / "found")
        assert loaded == finding
        assert finding.trouble.words() in "\n".join(reports.describe(loaded))
        fault = tried_again(loaded, unpack(loaded.trace, "x"), room)
        assert fault is not None and fault.kind is Kind.LOST
        kept.clear()
    assert tried_again(loaded, unpack(loaded.trace, "x"), room) is None


def test_a_recovery_is_killed_too(tmp_path: Path) -> None:
    runs = Runs(scene("no"), tmp_path)
    writes = [each for each in runs.all if each.how == INSIDE]
    assert {each.how for each in runs.all} == set(KILLS)
    for again in (1, 9):
        fault, promised, killed = runs.kill(writes[-2]._replace(again=again))
        assert (fault, killed) == (None, True)
        assert promised.written >= 4
    runs.end()


def test_a_process_that_ends_by_itself_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(scene("always"), tmp_path)

    def broken(self: Log, *args: Any) -> None:
        raise KeyError("a bare error")

    monkeypatch.setattr(Log, "wait", broken)
    fault, _, killed = runs.kill(Trouble(True, AFTER, 10_000))
    runs.end()
    assert fault is not None and fault.kind is Kind.DIED and not killed
    assert "exit code 1" in fault.words
    assert "a bare error" in capfd.readouterr().err


def test_words_of_a_kill() -> None:
    assert Trouble(True, BEFORE, 3).words() == "killed before operation 3"
    assert Trouble(True, INSIDE, 3, again=2).words() == (
        "killed inside write 3, and its recovery before operation 2"
    )
