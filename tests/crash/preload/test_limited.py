"""Limited commands: one that hangs is ended and shows its stack, and no process is left."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.until import until

from tidelog.crash.preload import limited
from tidelog.crash.preload.limited import Ended, Hangs, run

HANGS = """
import sys, threading

def inner():
    print("ready", file=sys.stderr, flush=True)
    threading.Event().wait()

inner()
"""
LEAVES = """
import fcntl, os, sys, time
held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(held, fcntl.LOCK_EX)
os.set_inheritable(held, True)
if os.fork() == 0:
    time.sleep(3600)
print("left a child")
sys.exit(int(sys.argv[2]))
"""


def python(source: str, *args: object) -> list[str]:
    return [sys.executable, "-S", "-c", source, *map(str, args)]


def test_the_code_and_the_text_of_a_command(tmp_path: Path) -> None:
    source = "import sys; print('out', flush=True); sys.exit('err')"
    assert run(python(source), 60, tmp_path / "said") == Ended(1, "out\nerr\n")
    output = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)
    assert run(python(source), 60, tmp_path / "said", output=output) == Ended(1, "err\n")
    os.close(output)
    assert [each.name for each in tmp_path.iterdir()] == ["output"]
    assert (tmp_path / "output").read_text() == "out\n"


def test_a_command_that_ends_by_a_signal(tmp_path: Path) -> None:
    assert run(python("import os; os.kill(os.getpid(), 9)"), 60, tmp_path / "said").code == -9


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run([str(tmp_path / "missing")], 60, tmp_path / "said")
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_hangs_is_ended_and_shows_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = limited._ended

    def once(process: subprocess.Popen[bytes], seconds: float) -> bool:
        stat = Path(f"/proc/{process.pid}/stat")
        # It waits when it sleeps: S is the state of the process, behind its name in parentheses.
        until(
            lambda: (
                "ready" in (tmp_path / "said").read_text()
                and stat.read_text().rpartition(")")[2].split()[0] == "S"
            )
        )
        monkeypatch.setattr(limited, "_ended", ended)
        return False

    monkeypatch.setattr(limited, "_ended", once)
    (tmp_path / "hangs.py").write_text(HANGS)
    with pytest.raises(Hangs) as caught:
        run([sys.executable, "-S", str(tmp_path / "hangs.py")], 60, tmp_path / "said")
    frames = str(caught.value).split(", ")
    assert frames[0].startswith("threading.py:")
    assert "hangs.py:6 in inner" in frames
    assert not (tmp_path / "said").exists()


def test_a_command_that_hangs_without_a_stack(tmp_path: Path) -> None:
    with pytest.raises(Hangs, match="^$"):
        run(["sleep", "3600"], 0.05, tmp_path / "said")


@pytest.mark.parametrize("code", [0, 3])
def test_no_process_outlives_its_command(tmp_path: Path, code: int) -> None:
    lock = tmp_path / "lock"
    # It does not wait for the child, which has the same output.
    assert run(python(LEAVES, lock, code), 60, tmp_path / "said") == Ended(code, "left a child\n")

    def free() -> bool:
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    until(free, "the child lives")
