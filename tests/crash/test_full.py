"""Full: a store on a file system without room raises errors and keeps its promises, and the layer sees it if not."""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import os
import random
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from tests.crash.exemptions import exempt
from tests.crash.test_injected import scene

from tidelog.crash import report as reports
from tidelog.crash.explore import Report
from tidelog.crash.forked import Died
from tidelog.crash.full import CLONE_NEWNS, FULL, CannotFill, Filling
from tidelog.crash.injected import inject
from tidelog.crash.oracle import Kind
from tidelog.crash.run import Task, do
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.trace import unpack
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows import environment


def filled(policy: str, scratch: Path) -> Report:
    try:
        with closing(Filling(scene(policy, files=True), scratch)) as suffering:
            return inject(suffering, random.Random(1), 1000)
    except CannotFill as error:
        exempt(FULL, str(error))


@pytest.mark.parametrize("policy", POLICIES)
def test_each_size_that_is_too_small(policy: str, tmp_path: Path) -> None:
    report = filled(policy, tmp_path)
    assert [finding.words for finding in report.findings] == []
    counts = report.of(FULL)
    assert counts.tried == counts.distinct == counts.there > 12
    assert counts.told > 10
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_a_table_of_readers_without_blocks_is_found_kept_and_tried_again(
    tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LMDB makes it: a store into its map on a full disk is SIGBUS."""
    with monkeypatch.context() as patch:
        # The process that dies of it shall print no stack.
        patch.setattr(environment, "_make_lock", lambda disk, lock: faulthandler.disable())
        (finding,) = filled("always", room).findings
        assert (finding.kind, finding.words) == (
            Kind.DIED.value,
            "the process was ended by SIGBUS",
        )
        smaller = shrink(finding, room, 5)
        reports.save(RealDisk(), tmp_path / "found", smaller)
        loaded = reports.load(RealDisk(), tmp_path / "found")
        assert loaded == smaller and loaded.trouble is not None
        assert f"the file system had {loaded.trouble.at} pages" in reports.describe(loaded)[2]
        fault = tried_again(loaded, unpack(loaded.trace, "x"), room)
        assert fault is not None and fault.words == finding.words
    assert tried_again(loaded, unpack(loaded.trace, "x"), room) is None


class Refused:
    """A kernel that has no namespaces for this user."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def unshare(self, flags: int) -> int:
        return -1


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSPC])
def test_without_namespaces_the_layer_is_not_run(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", Refused)
    monkeypatch.setattr("ctypes.get_errno", lambda: code)
    report = do(Task(FULL, "always", "s", 0, False), tmp_path)
    assert report.not_run == {
        FULL: f"no small file system can be mounted here: unshare: {os.strerror(code)}"
    }
    assert list(tmp_path.iterdir()) == []


class OfAUser:
    """The C library for a user who may make a mount namespace in a user namespace only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._library = LIBRARY(*args, **kwargs)
        self.asked: list[int] = []

    def unshare(self, flags: int) -> int:
        self.asked.append(flags)
        if flags == CLONE_NEWNS:
            # a fork hook of a library has threads for a moment
            threading.Thread(target=time.sleep, args=(0.05,)).start()
            ctypes.set_errno(errno.EPERM)
            return -1
        return int(self._library.unshare(flags))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


LIBRARY: Final[Any] = ctypes.CDLL


def test_a_user_mounts_it_in_a_namespace_of_his_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", OfAUser)
    with closing(Filling(scene(files=True), tmp_path)) as suffering:
        try:
            plain = suffering.ask(suffering.nothing)
            small = suffering.ask(suffering.nothing._replace(at=6))
        except CannotFill as error:
            exempt(FULL, str(error))
    assert not isinstance(plain, Died) and not isinstance(small, Died)
    assert (plain.fault, plain.told) == (None, 0)
    assert small.fault is None and small.told
