"""Ctrl-C while the command line starts: one line and the exit code, wherever it strikes; never a traceback."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.rounds import rest_slow

from tidelog.tools import exits

ROOT = Path(__file__).parents[2]

# Sends SIGINT when the Nth module behind the guard is looked for; prints how many were, if that is fewer.
STRUCK = """
import os, signal, sys
sys.path[:0] = {path!r}
sys.argv[1:] = {args!r}
looked = 0
class Strike:
    def find_spec(self, name, path=None, target=None):
        global looked
        looked += looked > 0 or name == "tidelog.tools.cli"
        if looked == {at}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Strike())
try:
    {start}
finally:
    if looked < {at}:
        sys.stderr.write(str(looked))
"""
STARTS = {
    "script": "from {module} import {function}; {function}()",
    "module": "import runpy; runpy.run_module('tidelog', run_name='__main__')",
}
NOT_REACHED = 1_000_000


def started(how: str, at: int, *args: str) -> subprocess.CompletedProcess[str]:
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["tidelog"]
    module, function = entry.split(":")
    start = STARTS[how].format(module=module, function=function)
    program = STRUCK.format(path=sys.path, args=list(args), at=at, start=start)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("how", rest_slow(STARTS, 1))
def test_an_interrupt_while_modules_are_imported(how: str, tmp_path: Path) -> None:
    args = ("info", str(tmp_path / "nothing"))
    whole = started(how, NOT_REACHED, *args)
    assert whole.returncode == exits.NOT_A_STORE
    looked = int(whole.stderr.rpartition("\n")[2])
    assert looked > 50
    for at in sorted({1, 2, 3, *range(10, looked, looked // 4), looked}):
        done = started(how, at, *args)
        assert done.returncode == exits.INTERRUPTED, (at, done.stderr)
        assert done.stdout == "" and done.stderr == "interrupted\n", (at, done.stderr)


def test_the_guarded_start_imports_next_to_nothing() -> None:
    """An interrupt can break only the lines before the guard."""
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; before = set(sys.modules)\n"
        "import tidelog.tools.start\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    ours = {name for name in done.stdout.split() if name.startswith("tidelog")}
    assert ours == {"tidelog", "tidelog.tools", "tidelog.tools.start"}
    assert len(done.stdout.split()) < 12, done.stdout
