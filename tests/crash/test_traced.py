"""Traced: without a compiler strace makes system calls fail, and the table says what it cannot do."""

from __future__ import annotations

import errno
import random
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.test_injected import scene

from tidelog.crash import run as running
from tidelog.crash import traced
from tidelog.crash.calls import CALLS, LMDB
from tidelog.crash.errors import BenchError
from tidelog.crash.forked import Died
from tidelog.crash.injected import inject
from tidelog.crash.injector import ONCE, ONWARDS, Trouble
from tidelog.crash.notes import notes
from tidelog.crash.preload import library as libraries
from tidelog.crash.run import Task, do
from tidelog.crash.shrink import tried_again
from tidelog.crash.trace import unpack
from tidelog.crash.traced import LESS, NoTracer, Plan, Tracing, chosen


def test_a_store_keeps_its_promises_whichever_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "COMPILERS", ("no-such-compiler",))
    monkeypatch.setattr(running, "TRACED", 2)
    report = do(Task(CALLS, "always", "s", 1, False), tmp_path)
    assert [finding.words for finding in report.findings] == []
    assert report.not_run == {}
    counts = report.of(CALLS)
    assert counts.there > 80
    assert counts.tried == counts.distinct == 2
    assert notes(report) == [f"calls: {LESS}"]
    assert list(tmp_path.iterdir()) == []


def test_the_call_that_was_chosen_fails(tmp_path: Path) -> None:
    with closing(Tracing(scene(files=True), LMDB, tmp_path)) as suffering:
        plain = suffering.ask(suffering.nothing)
        assert not isinstance(plain, Died)
        assert (plain.fault, plain.told, plain.struck) == (None, 0, "")
        troubles = suffering.troubles(plain)
        assert {each.how for each in troubles} == {ONCE, ONWARDS}
        each = next(each for each in troubles if each.code == errno.ENOMEM)
        found = suffering.ask(each)
        assert not isinstance(found, Died)
        assert found.fault is None and found.told
        assert found.struck.startswith("mmap(") and "/data.mdb.new>" in found.struck
        assert found.struck.endswith("ENOMEM (Cannot allocate memory) (INJECTED)")


def test_a_checkpoint_that_trusts_a_commit_which_failed_is_found_and_tried_again(
    room: Path, believing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The only calls that matter here are those of the commit.
    monkeypatch.setattr(traced, "RAISED", {errno.EIO: ("writev", "fdatasync")})
    monkeypatch.setenv("PYTHONPATH", believing)
    with closing(Tracing(scene(files=True), LMDB, room)) as suffering:
        (finding,) = inject(suffering, random.Random(1), 100).findings
    trace = unpack(finding.trace, "x")
    assert (finding.layer, trace.about["by"]) == (CALLS, "strace")
    fault = tried_again(finding, trace, room)
    assert fault is not None and fault.kind.value == finding.kind
    monkeypatch.delenv("PYTHONPATH")
    assert tried_again(finding, trace, room) is None


def test_a_tracer_that_may_not_trace_is_the_reason(
    tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "strace").write_text(
        "#!/bin/sh\n[ \"$1\" = -V ] && exit\necho 'strace: ptrace(PTRACE_TRACEME): refused' >&2\nexit 1\n"
    )
    (tools / "strace").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/bin:/usr/bin")
    with closing(Tracing(scene(files=True), LMDB, room)) as suffering:
        with pytest.raises(NoTracer, match=r"may trace no process here: .*PTRACE_TRACEME"):
            suffering.ask(suffering.nothing)


def test_calls_are_numbered_one_kind_after_the_other() -> None:
    plan = Plan(("x",), {"pwrite64": 2, "fsync": 1})
    nothing = Trouble(True, ONCE, 0, errno.EIO, below=LMDB)
    assert [chosen(plan, nothing._replace(at=at)) for at in (1, 2, 3)] == [
        ("pwrite64", 1),
        ("pwrite64", 2),
        ("fsync", 1),
    ]
    with pytest.raises(BenchError, match="makes fewer calls"):
        chosen(plan, nothing._replace(at=4))
