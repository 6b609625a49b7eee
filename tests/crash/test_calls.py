"""Calls: a store keeps its promises whichever system call fails, also one of LMDB, and the layer sees it if not."""

from __future__ import annotations

import errno
import random
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.test_injected import scene

from tidelog.crash import report as reports
from tidelog.crash.calls import CALLS, DIRECTORIES, LMDB, RAISED, Calling, troubles_of
from tidelog.crash.errors import BadFinding
from tidelog.crash.explore import Finding
from tidelog.crash.forked import Died
from tidelog.crash.injected import inject
from tidelog.crash.injector import LIES, ONCE, ONWARDS, SHORT, Trouble
from tidelog.crash.preload import library as libraries
from tidelog.crash.preload.library import NotLoaded
from tidelog.crash.run import Task, do
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.suffered import Suffered
from tidelog.crash.trace import Promised, Trace, pack, unpack
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk


def suffered(suffering: Calling, trouble: Trouble) -> Suffered:
    found = suffering.ask(trouble)
    assert not isinstance(found, Died), found
    return found


@pytest.mark.parametrize("below", DIRECTORIES)
def test_a_store_keeps_its_promises_whichever_call_fails(below: str, tmp_path: Path) -> None:
    policy = POLICIES[DIRECTORIES.index(below)]
    with closing(Calling(scene(policy, files=True), below, tmp_path)) as suffering:
        report = inject(suffering, random.Random(1), 20)
    assert [finding.words for finding in report.findings] == []
    counts = report.of(CALLS)
    assert counts.there > 100
    assert counts.tried == counts.distinct == 20
    assert counts.told > 10
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_every_call_of_lmdb_that_fails(policy: str, tmp_path: Path) -> None:
    with closing(Calling(scene(policy, files=True), LMDB, tmp_path)) as suffering:
        report = inject(suffering, random.Random(1), 10_000)
    assert [finding.words for finding in report.findings] == []
    assert report.of(CALLS).tried == report.of(CALLS).there > 100


def test_each_kind_of_call_is_reached(tmp_path: Path) -> None:
    with closing(Calling(scene(files=True), LMDB, tmp_path)) as suffering:
        plain = suffered(suffering, suffering.nothing)
        assert (plain.fault, plain.told, plain.struck) == (None, 0, "")
        troubles = suffering.troubles(plain)
        assert {(each.how, each.code) for each in troubles} == {
            *((how, code) for how in (ONCE, ONWARDS) for code in RAISED),
            (SHORT, 0),
            (LIES, 0),
        }
        struck = {
            suffered(suffering, each).struck
            for each in troubles
            if each.how == ONCE and each.code in (errno.EIO, errno.ENOMEM)
        }
    kinds = {each.partition(" ")[0] for each in struck}
    assert kinds >= {"open", "create", "pread", "pwrite", "writev", "fdatasync", "rename", "mmap"}
    assert {each.rpartition("/")[2] for each in struck} >= {"data.mdb", "data.mdb.new", "lock.mdb"}


def test_a_short_write_of_lmdb_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    with closing(Calling(scene(files=True), LMDB, tmp_path)) as suffering:
        plain = suffered(suffering, suffering.nothing)
        found = [
            suffered(suffering, each) for each in suffering.troubles(plain) if each.how == SHORT
        ]
    assert [each.fault for each in found] == [None] * len(found)
    assert sum(each.told for each in found) > 0


@pytest.mark.slow
def test_a_checkpoint_that_trusts_a_commit_which_failed_is_found_kept_and_tried_again(
    tmp_path: Path, room: Path, believing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", believing)
        with closing(Calling(scene(files=True), LMDB, room)) as suffering:
            (finding,) = inject(suffering, random.Random(1), 10_000).findings
        assert finding.layer == CALLS
        smaller = shrink(finding, room, 5)
        assert smaller.kind == finding.kind
        reports.save(RealDisk(), tmp_path / "found", smaller)
        loaded = reports.load(RealDisk(), tmp_path / "found")
        assert loaded == smaller and loaded.trouble is not None
        assert f"below {LMDB}" in loaded.trouble.words()
        assert loaded.trouble.words() in "\n".join(reports.describe(loaded))
        fault = tried_again(loaded, unpack(loaded.trace, "x"), room)
        assert fault is not None and fault.kind.value == loaded.kind
    assert tried_again(loaded, unpack(loaded.trace, "x"), room) is None


def test_without_a_compiler_and_strace_the_layer_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "COMPILERS", ("no-such-compiler",))
    monkeypatch.setenv("PATH", str(tmp_path))
    report = do(Task(CALLS, "always", "s", 0, False), tmp_path)
    assert report.not_run == {
        CALLS: "none of the compilers no-such-compiler is here; install one; strace is not installed"
    }
    assert report.of(CALLS).tried == 0


def test_a_library_that_is_not_preloaded_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.crash.forked.PRELOAD", "NOT_LD_PRELOAD")
    with closing(Calling(scene(files=True), LMDB, tmp_path)) as suffering:
        with pytest.raises(NotLoaded, match="does not preload a library"):
            suffering.ask(suffering.nothing)


def test_words_of_calls() -> None:
    found = troubles_of(
        Trouble(True, ONCE, 0, below=LMDB), {**dict.fromkeys(RAISED, 1), SHORT: 1, LIES: 1}
    )
    words = [each.words() for each in found]
    assert words[0] == (
        "EIO at system call 1 below store/checkpoint of those that can raise it, once"
    )
    assert words[-2:] == [
        "write 1 below store/checkpoint was short",
        "sync 1 below store/checkpoint failed, and later ones lied",
    ]
    assert len(set(words)) == len(words)


def test_a_finding_below_another_directory_is_refused(tmp_path: Path) -> None:
    about = scene(files=True).about()
    trace = pack(Trace(about, {}, [], [Promised(0, 0, 0)]))
    trouble = Trouble(True, ONCE, 1, errno.EIO, below=LMDB)
    finding = Finding(CALLS, trace, 1, (), False, "lost", "x", trouble=trouble)
    reports.save(RealDisk(), tmp_path / "found", finding)
    file = tmp_path / "found" / reports.FINDING
    file.write_text(file.read_text().replace(f'"{LMDB}"', '"elsewhere"'))
    with pytest.raises(BadFinding, match="no calls fail below elsewhere"):
        reports.load(RealDisk(), tmp_path / "found")
