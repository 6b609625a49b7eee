"""The bench on other stores: it finds the losses that their manuals admit, and none where they promise more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidelog.crash.errors import BenchError
from tidelog.crash.model import contents_after
from tidelog.crash.oracle import Kind
from tidelog.crash.preload.library import RECORD, build
from tidelog.crash.states import cut_at
from tidelog.crash.subjects import judges
from tidelog.crash.subjects.bench import PROGRAM, Result, Task, crash, smaller, task_of, try_again
from tidelog.crash.subjects.registry import SUBJECTS
from tidelog.crash.subjects.subject import KILL, ORDERED, POWER, STRICT, CannotRun, units_of
from tidelog.crash.trace import unpack


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("recorder"), RECORD)


def crashed(name: str, tmp_path: Path, library: Path, most: int) -> Result:
    return crash(Task(name), tmp_path, library, "1", lambda: False, most)


def test_the_workload_puts_singly_and_in_tens_and_deletes() -> None:
    units = units_of("1")
    assert units == units_of("1") != units_of("2")
    sizes = {len(unit) for unit in units if unit[0][0] == "set"}
    assert sizes == {1, 10}
    assert {unit[0][0] for unit in units} == {"set", "drop"}
    # No two numbers of units leave the same contents, so a loss is always seen.
    after = contents_after(units)
    assert all(found not in after[:count] for count, found in enumerate(after))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("safe", "unsafe"),
    [("sqlite3-wal-full", "sqlite3-wal-normal"), ("lmdb-sync", "lmdb-nosync")],
)
def test_the_loss_that_a_manual_admits_is_found_and_none_where_it_promises_more(
    safe: str, unsafe: str, tmp_path: Path, library: Path
) -> None:
    found = crashed(unsafe, tmp_path, library, 80)
    for fault in POWER:
        assert found.counts[fault].lost > 0, fault
    assert found.counts[KILL].faults == 0
    assert found.findings == []  # the manual admits them
    found = crashed(safe, tmp_path, library, 80)
    for fault, counts in found.counts.items():
        assert counts.tried >= counts.distinct > 10, fault
        assert counts.faults == 0, fault
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_keeps_what_it_promises_on_an_ordered_file_system(
    name: str, tmp_path: Path, library: Path
) -> None:
    result = crashed(name, tmp_path, library, 100)
    for fault in (KILL, ORDERED):
        assert result.beyond[fault] == 0, result.findings
    assert result.counts[STRICT].there > result.counts[STRICT].tried >= 100


@pytest.mark.slow
def test_a_finding_is_made_smaller_and_tried_again(tmp_path: Path, library: Path) -> None:
    # redis-server has no checksums, so POSIX allows states that it refuses.
    result = crashed("redis-always", tmp_path, library, 100)
    (finding,) = result.findings
    less = smaller(finding, tmp_path, "", lambda: False)
    trace = unpack(less.trace, "x")
    cut = cut_at(trace, less.time)
    assert len(cut.words(finding.state)) >= len(cut.words(less.state)) >= 1
    fault = try_again(tmp_path, trace, less)
    assert fault is not None and fault.kind.value == finding.kind
    assert list(tmp_path.iterdir()) == []


APPEND = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
directory = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(directory)
for number in range(5):
    os.write(fd, b"%d\\n" % number)
    if sys.argv[2] == "synced":
        os.fsync(fd)
    print(number, flush=True)
"""
CHECK = """
import os, sys
log = sys.argv[1] + "/log"
stored = open(log).read().splitlines() if os.path.exists(log) else []
told = open(sys.argv[2]).read().splitlines()
missing = [each for each in told if each not in stored]
raise SystemExit(f"missing: {missing}" if missing else 0)
"""


@pytest.fixture
def program(tmp_path: Path) -> tuple[str, str]:
    """(a program, its check), as words of a shell."""
    for name, source in (("append.py", APPEND), ("check.py", CHECK)):
        (tmp_path / name).write_text(source)
    return (
        f"{sys.executable} -S {tmp_path / 'append.py'} {{dir}}",
        f"{sys.executable} -S {tmp_path / 'check.py'} {{dir}} {{told}}",
    )


def test_a_program_that_promises_before_its_sync_is_found(
    program: tuple[str, str], room: Path, library: Path
) -> None:
    command, check = program
    task = Task(PROGRAM, f"{command} unsynced", check)
    result = crash(task, room, library, "1", lambda: False, 60)
    assert result.counts[KILL].faults == 0
    assert result.beyond[STRICT] and result.beyond[ORDERED]
    finding = result.findings[0]
    assert finding.kind == Kind.WRONG.value
    assert "the check ended with 1 and said: missing: ['0'" in finding.words
    trace = unpack(finding.trace, "x")
    assert try_again(room, trace, finding, check) is not None
    # The check of a finding may come from anybody: it runs only if the user names it.
    with pytest.raises(BenchError, match="run only if you name it: --check '.*{told}'"):
        task_of(trace, "")
    sound = Task(PROGRAM, f"{command} synced", check)
    result = crash(sound, room, library, "1", lambda: False, 60)
    assert sum(result.beyond.values()) == 0


def test_a_check_that_fails_without_a_crash_is_told_apart(
    program: tuple[str, str], room: Path, library: Path
) -> None:
    task = Task(PROGRAM, f"{program[0]} synced", "false {dir}")
    with pytest.raises(BenchError, match="fails without any crash"):
        crash(task, room, library, "1", lambda: False)


WRITES = """
import os, socket, sys
root, told = sys.argv[1:3]
assert sorted(os.listdir(root)) in ([], ["log"]), os.listdir(root)
promised = open(told).read().splitlines()
stored = open(root + "/log").read().splitlines() if os.path.exists(root + "/log") else []
assert set(promised) <= set(stored)
os.mkfifo(root + "/fifo")
os.symlink("nowhere", root + "/link")
socket.socket(socket.AF_UNIX).bind(root + "/socket")
os.makedirs(root + "/a/b")
open(root + "/a/b/c", "w").close()
open(root + "/log", "w").write("other")
open(told, "w").write("others")
"""


def test_a_check_that_writes_changes_no_other_state(
    program: tuple[str, str], tmp_path: Path, room: Path, library: Path
) -> None:
    (tmp_path / "writes.py").write_text(WRITES)
    task = Task(
        PROGRAM,
        f"{program[0]} synced",
        f"{sys.executable} -S {tmp_path / 'writes.py'} {{dir}} {{told}}",
    )
    result = crash(task, room, library, "1", lambda: False, 10)
    assert sum(counts.faults for counts in result.counts.values()) == 0, result.findings


def test_a_check_that_differs_from_run_to_run_is_told_apart(
    program: tuple[str, str], tmp_path: Path, room: Path, library: Path
) -> None:
    (tmp_path / "fifth.py").write_text(
        "import sys\nruns = open(sys.argv[1], 'a+')\nruns.write('x')\nraise SystemExit(runs.tell() == 5)"
    )
    check = f"{sys.executable} -S {tmp_path / 'fifth.py'} {tmp_path / 'runs'} {{dir}}"
    with pytest.raises(BenchError, match="differs from run to run, so it proves nothing"):
        crash(Task(PROGRAM, f"{program[0]} synced", check), room, library, "1", lambda: False, 20)


def test_a_check_that_hangs_is_a_fault(
    program: tuple[str, str], room: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judges, "CHECK_S", 0.2)
    source = "import threading; threading.Event().wait()"
    task = Task(PROGRAM, f"{program[0]} synced", f"{sys.executable} -c '{source}' {{dir}}")
    with pytest.raises(BenchError, match="without any crash, .*the check did not end within 0.2 s"):
        crash(task, room, library, "1", lambda: False, 1)


def test_a_subject_that_is_not_installed_is_not_run(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRun, match="redis-server is not installed"):
        crashed("redis-always", tmp_path, library, 1)
