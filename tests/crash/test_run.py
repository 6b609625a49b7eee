"""Runs: tasks come by turns, are the same for the same seed, and are done by processes that leave nothing behind."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tidelog.crash import run as running
from tidelog.crash.calls import CALLS
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Report
from tidelog.crash.followers import FOLLOWERS
from tidelog.crash.full import FULL
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.logs import LOG
from tidelog.crash.queues import QUEUES
from tidelog.crash.replies import REPLIES
from tidelog.crash.rot import ROT
from tidelog.crash.run import CHECKPOINTS, DOUBLE, LAYERS, STORE, Task, do, run, tasks
from tidelog.crash.servers import SERVERS
from tidelog.crash.small import SMALL
from tidelog.crash.workloads import POLICIES


def test_tasks_come_by_turns_of_policy_and_layer() -> None:
    power = (LOG, SMALL, STORE, CHECKPOINTS, REPLIES, QUEUES, FOLLOWERS)
    order = (*power, ROT, ERRORS, CALLS, KILL, SERVERS, FULL)
    found = list(islice(tasks(set(LAYERS), list(POLICIES), "7"), 3 * len(order)))
    assert [(task.policy, task.layer, task.double) for task in found] == [
        (policy, layer, layer in (STORE, CHECKPOINTS)) for policy in POLICIES for layer in order
    ]
    (only,) = islice(tasks({DOUBLE}, ["no"], "7"), 1)
    assert only == Task(STORE, "no", "7/0", 0, True)


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_task_is_several_lives_of_a_long_workload_or_a_small_one(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LONG_STEPS", 6)
    report = do(Task(STORE, "no", "s", number, False), tmp_path)
    assert report.findings == []
    assert report.of(STORE).distinct > 10
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    told: list[Report] = []
    work = iter([Task(STORE, "always", "s", 1, False)])
    report = run(work, tmp_path, 1, 600, told.append)
    assert told and report.findings == []
    assert report.of(STORE).distinct > 10
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_an_error(tmp_path: Path) -> None:
    def kill_all(report: Report) -> None:
        for process in multiprocessing.active_children():
            process.kill()
            process.join()

    twice = iter([Task(STORE, "no", "s", 1, False)] * 2)
    with pytest.raises(BenchError, match="ended with exit code -9 and without an answer"):
        run(twice, tmp_path, 1, 600, kill_all)


def test_a_process_without_a_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        run(iter([Task(STORE, "no", "s", 1, False)]), tmp_path / "missing", 1, 600)


INTERRUPTED = """
import multiprocessing.util, os, signal, sys
from pathlib import Path
from tidelog.crash.run import LAYERS, run, tasks

spawn = multiprocessing.util.spawnv_passfds

def spawn_and_interrupt(path, args, fds):
    pid = spawn(path, args, fds)
    if any("spawn_main" in str(arg) for arg in args):
        os.kill(os.getpid(), signal.SIGINT)
    return pid

if __name__ == "__main__":
    multiprocessing.util.spawnv_passfds = spawn_and_interrupt
    try:
        run(tasks({"store"}, ["no"], "7"), Path(sys.argv[1]), 2, 60)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_while_a_process_begins_is_for_the_parent_alone(tmp_path: Path) -> None:
    (tmp_path / "stores").mkdir()
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "stores"], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert list((tmp_path / "stores").iterdir()) == []
