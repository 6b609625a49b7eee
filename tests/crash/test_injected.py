"""A disk that fails at any operation: the store says so, keeps what it acknowledged, and hangs nowhere."""

from __future__ import annotations

import errno
import random
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidelog.aof.log import Log
from tidelog.crash import injected
from tidelog.crash import report as reports
from tidelog.crash.errors import BadFinding
from tidelog.crash.explore import Report
from tidelog.crash.injected import ERRORS, OnDisk, inject, suffer
from tidelog.crash.injector import CODES, ONCE, ONWARDS, SHORT, Trouble
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Kind
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import unpack
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.disk.simulated import SimulatedFile

FIRST: list[Step] = [["add", 0, 700], ["read", 0, 1], ["both", 0, 3], ["sync"]]
SECOND: list[Step] = [["add", 0, 3000], ["many", 1, 30], ["ack", 0, 1], ["set", 0, 20]]
CHECKPOINT: list[Step] = [["checkpoint"]]


def scene(policy: str = "always", files: bool = False) -> Scene:
    more = CHECKPOINT if files else []
    return Scene(policy, ([*FIRST, *more], [*SECOND, *more]), "1")


def tried(scratch: Path, policy: str, *, files: bool, drawn: int) -> Report:
    with closing(OnDisk(scene(policy, files), scratch, files)) as suffering:
        return inject(suffering, random.Random(1), drawn)


@pytest.mark.parametrize("policy", POLICIES)
def test_errors_in_memory(policy: str, tmp_path: Path) -> None:
    report = tried(tmp_path, policy, files=False, drawn=6)
    assert [finding.words for finding in report.findings] == []
    counts = report.of(ERRORS)
    assert counts.there > 200
    assert counts.tried == 6
    assert counts.distinct > 4
    assert counts.told > 2


def test_errors_on_files_with_checkpoints(tmp_path: Path) -> None:
    report = tried(tmp_path, "always", files=True, drawn=4)
    assert [finding.words for finding in report.findings] == []
    assert report.of(ERRORS).tried == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "files"), [("everysec", False), ("always", True)])
def test_many_errors(policy: str, files: bool, tmp_path: Path) -> None:
    report = tried(tmp_path, policy, files=files, drawn=100)
    assert [finding.words for finding in report.findings] == []
    assert report.of(ERRORS).tried == 100


def test_a_close_whose_sync_fails_may_lose_written_units(tmp_path: Path) -> None:
    """The second life of the workload would begin without them, so there is none."""
    two_lives = Scene("no", ([["set", 0, 20]], [["set", 1, 600]]), "1")
    plain = suffer(two_lives, Trouble(False, ONCE, 0), tmp_path)
    struck = set()
    # The first life ends in the middle of all operations.
    for at in range(plain.seen[errno.EIO] // 3, 2 * plain.seen[errno.EIO] // 3):
        found = suffer(two_lives, Trouble(False, ONCE, at, errno.EIO), tmp_path)
        assert found.fault is None, at
        struck.add(found.struck)
    assert "fdatasync of /store/aof/00000000000000000001.aof" in struck


def test_a_failed_sync_is_survived_in_memory(tmp_path: Path) -> None:
    """Every sync of two lives fails once and lies. The contents that a recovery then serves survive a power cut."""
    two_lives = Scene("always", ([["add", 0, 300]], [["set", 1, 600]]), "1")
    plain = suffer(two_lives, Trouble(False, ONCE, 0), tmp_path)
    struck = set()
    for at in range(1, plain.seen[errno.EIO] + 1):
        found = suffer(two_lives, Trouble(False, ONCE, at, errno.EIO), tmp_path)
        assert found.fault is None, at
        struck.add(found.struck.partition(" ")[0])
    assert {"fdatasync", "fsync"} <= struck


def test_a_short_write_is_no_error(tmp_path: Path) -> None:
    found = [suffer(scene(files=True), Trouble(True, SHORT, at), tmp_path) for at in (1, 8)]
    assert [(each.fault, each.told) for each in found] == [(None, 0)] * 2
    assert all(each.struck for each in found)


@pytest.mark.slow
def test_a_log_that_tries_a_failed_sync_again_is_found_kept_and_tried_again(
    tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sync succeeds, and the pages are gone."""
    real = SimulatedFile.fdatasync

    def again(self: SimulatedFile) -> None:
        try:
            real(self)
        except OSError:
            real(self)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedFile, "fdatasync", again)
        patch.setattr(injected, "CODES", {errno.EIO: ()})
        (finding,) = tried(room, "always", files=False, drawn=10_000).findings
        assert finding.kind in (Kind.LOST.value, Kind.REFUSED.value)
        assert finding.trouble is not None
        assert finding.trouble.how == ONCE
        finding = shrink(finding, room, 60)
        assert finding.kind in (Kind.LOST.value, Kind.REFUSED.value)
        assert finding.trouble is not None
        smaller = Scene.of(unpack(finding.trace, "x").about)
        # A write is acknowledged after a sync that failed: that takes a step or two.
        assert sum(map(len, smaller.lives)) <= 2 < sum(map(len, scene().lives))
        reports.save(RealDisk(), tmp_path / "found", finding)
        loaded = reports.load(RealDisk(), tmp_path / "found")
        assert loaded == finding
        words = "\n".join(reports.describe(loaded))
        assert finding.trouble.words() in words and "sync of" in words
        fault = tried_again(loaded, unpack(loaded.trace, "x"), room)
        assert fault is not None and fault.words == finding.words
    assert tried_again(loaded, unpack(loaded.trace, "x"), room) is None

    about = tmp_path / "found" / reports.FINDING
    about.write_text(about.read_text().replace('"once"', '"never"'))
    with pytest.raises(BadFinding, match="no disk fails like never"):
        reports.load(RealDisk(), tmp_path / "found")


def test_an_error_that_is_not_tidelogs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Log, *args: Any) -> None:
        raise KeyError("a bare error")

    monkeypatch.setattr(Log, "wait", broken)
    trouble = Trouble(False, ONCE, 10_000, errno.EIO)
    found = suffer(scene(), trouble, tmp_path)
    assert found.fault is not None and found.fault.kind is Kind.DIED
    assert "not tidelog's: KeyError" in found.fault.words


def test_a_call_that_hangs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injected, "HUNG_S", 3.0)
    real = SimulatedFile.fdatasync

    def hang(self: SimulatedFile) -> None:
        try:
            real(self)
        except OSError:
            threading.Event().wait()

    monkeypatch.setattr(SimulatedFile, "fdatasync", hang)
    (finding,) = tried(tmp_path, "always", files=False, drawn=10_000).findings
    assert finding.kind == Kind.DIED.value and "hung" in finding.words


def test_words_of_trouble() -> None:
    assert Trouble(True, SHORT, 3).words() == "write 3 was short"
    for code in CODES:
        words = Trouble(False, ONWARDS, 2, code).words()
        assert words.startswith(errno.errorcode[code]) and words.endswith("from then on")
