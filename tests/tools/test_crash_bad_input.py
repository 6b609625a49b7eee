"""`tidelog crash` where the system refuses: one line says what, the exit code is the system's, and nothing is left."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tools.benches import below
from tests.tools.conftest import Run
from tests.until import until

from tidelog.crash.client import BadReply, Client
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Finding, Report
from tidelog.crash.killed import KILL
from tidelog.crash.servers import kill_servers
from tidelog.disk.interface import File
from tidelog.disk.real import RealDisk
from tidelog.testing.scratch import PREFIX, scratch
from tidelog.tools import exits
from tidelog.tools.crash import command, medium

MOUNTED = "22 1 254:1 / / rw,relatime shared:1 - tmpfs none rw\n"


def kills(directory: Path, *args: str) -> tuple[str, ...]:
    return ("crash", "--layers", KILL, "--dir", str(directory), "--jobs", "1", "--seed", "1", *args)


def test_a_directory_that_is_nearly_full(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealDisk, "free", lambda self, path: 65_536)
    done = run(*kills(tmp_path))
    assert (done.code, done.out) == (exits.SYSTEM, "")
    assert done.err == (
        f"Error: {tmp_path} has 65,536 bytes free, and 1 processes need 33,554,432: name another directory, or "
        "fewer --jobs\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **more: mode != os.W_OK)
    done = run(*kills(tmp_path))
    assert done.code == exits.USAGE
    assert f"Directory '{tmp_path}' is not writable" in done.err


def test_a_directory_in_memory_is_said_to_show_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(MOUNTED)
    monkeypatch.setattr(medium, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(command, "run", lambda *args: Report())
    done = run(*kills(tmp_path))
    assert done.code == exits.OK
    assert (
        "tmpfs (rw,relatime) on none, in memory, so a sync costs nothing and shows nothing"
        in done.out
    )
    unseen = "whether the drive obeys a flush, no program can see"
    assert f"\n{unseen}: pull its plug with tidelog crash plug\n" in done.out


@pytest.mark.parametrize(
    "end", [None, OSError("gone"), BenchError("the process ended"), IndexError("empty")]
)
def test_a_directory_that_goes_away_proves_nothing(
    end: Exception | None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "where"
    where.mkdir()

    def removed(
        work: Any, scratch: Path, jobs: int, seconds: float, tell: Any, files: Path
    ) -> Report:
        for path in sorted(files.rglob("*"), reverse=True):
            path.unlink()
        files.rmdir()
        found = Report(findings=[Finding(KILL, b"", 1, (), False, "lost", "all is gone")])
        tell(found)
        if end is not None:
            raise end
        return found

    monkeypatch.setattr(command, "run", removed)
    done = run(*kills(where, "--keep", str(tmp_path / "kept")))
    assert done.code == exits.SYSTEM
    (line,) = done.err.splitlines()
    assert line.startswith(f"Error: the bench itself failed: {where}/{PREFIX}")
    assert line.endswith("was removed while the bench worked in it (seed 1)")
    assert not (tmp_path / "kept").exists()
    assert list(where.iterdir()) == []


def test_a_server_that_fails_without_any_kill_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Client) -> bool:
        raise BadReply("the server answered b'-MISCONF no space'")

    monkeypatch.setattr(Client, "receive", refused)
    with pytest.raises(BenchError, match="no space"):
        kill_servers("no", "1", tmp_path, random.Random(1))
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["before", "held", "after"])
def test_a_directory_that_another_run_takes_for_a_killed_ones(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, places = RealDisk.lock, list[Path]()

    def lock(self: RealDisk, path: Path) -> File | None:
        places.append(path.parent)
        if len(places) > 1:
            return original(self, path)
        if when == "before":
            path.parent.rmdir()
            return original(self, path)
        held = original(self, path)
        path.unlink()
        path.parent.rmdir()
        return held if when == "after" else None

    monkeypatch.setattr(RealDisk, "lock", lock)
    with scratch(print, tmp_path) as place:
        assert place == places[1] != places[0]
        assert [*tmp_path.iterdir()] == [place]
    assert len(places) == 2 and [*tmp_path.iterdir()] == []


class Living:
    """A bench with its processes."""

    def __init__(self, directory: Path) -> None:
        self.child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tidelog", "crash", "--layers", "kill,servers"),
                *("--dir", str(directory), "--minutes", "60", "--jobs", "2", "--seed", "1"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            cwd=directory.parent,
        )
        assert self.child.stdout is not None
        for words in ("layers kill, servers", f"directory {directory}", "whether the drive"):
            assert self.child.stdout.readline().startswith(words)
        until(lambda: [*directory.glob(f"{PREFIX}*/*/*")], "no store was made")
        self.processes = below(self.child.pid)
        assert len(self.processes) >= 2

    def have_ended(self) -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in self.processes)


@pytest.mark.slow
def test_ctrl_c_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    where = tmp_path / "where"
    where.mkdir()
    bench = Living(where)
    bench.child.send_signal(signal.SIGINT)
    out, err = bench.child.communicate(timeout=240)
    assert (bench.child.returncode, err) == (exits.INTERRUPTED, "interrupted\n")
    assert [line.split()[0] for line in out.splitlines()][:3] == ["layer", "kill", "servers"]
    until(bench.have_ended, "a process of the bench is left")
    assert list(where.iterdir()) == []


@pytest.mark.slow
def test_what_a_killed_bench_leaves_is_named_and_cleared(run: Run, tmp_path: Path) -> None:
    where = tmp_path / "where"
    where.mkdir()
    bench = Living(where)
    bench.child.kill()
    bench.child.communicate(timeout=240)
    until(bench.have_ended, "a process of the bench is left")
    (left,) = where.iterdir()
    done = run(*kills(where, "--minutes", "0"))
    assert (done.code, done.err) == (exits.OK, "")
    assert f"removed {left}, which a killed run left\n" in done.out
    assert list(where.iterdir()) == []
