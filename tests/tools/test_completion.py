"""tidelog completion: the scripts, the candidates, and both in a real bash."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from tests.tools.conftest import Run
from tests.tools.made import Made

import tidelog
from tidelog.tools import cli, completion, exits


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell gives the words of the line in the environment."""
    monkeypatch.setenv("COMP_WORDS", "")


def candidates(*words: object) -> list[str]:
    """The candidates for the last word."""
    *args, incomplete = map(str, words)
    os.environ["COMP_WORDS"] = shlex.join(["tidelog", *args, incomplete])
    complete = ShellComplete(cli.cli, {}, completion.PROGRAM, completion.COMPLETE)
    return [item.value for item in complete.get_completions(args, incomplete)]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_has_a_script(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert done.code == 0
    assert completion.COMPLETE in done.out and f"{shell}_complete" in done.out


def test_a_shell_that_is_none(run: Run) -> None:
    assert run("completion", "csh").code == exits.USAGE


def test_commands_and_options() -> None:
    assert candidates("aof", "d") == ["dump"]
    assert candidates("snap") == ["snapshot"]
    assert "--past-damage" in candidates("aof", "dump", "--p")


def test_schedules(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "data") as db:
        db.schedule("nightly", "0 3 * * *", queue="mails", value=1)
        db.schedule("hourly", every=3600, queue="mails", value=1)
    assert candidates("queue", "schedule", "pause", tmp_path / "data", "n") == ["nightly"]
    assert candidates("queue", "schedule", "rm", tmp_path / "data", "") == ["hourly", "nightly"]


def test_commands_import_no_module() -> None:
    """A candidate comes from the table: loading every command would take seconds."""
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tidelog.tools import cli, completion\n"
        "from click.shell_completion import ShellComplete\n"
        "ShellComplete(cli.cli, {}, 'tidelog', 'X').get_completions([], '')\n"
        "print('tidelog.tools.bench.command' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "False\n", done.stderr


def test_names_of_the_store_on_the_line(tmp_path: Path) -> None:
    root = tmp_path / "orders-data"
    with tidelog.open(root) as db:
        db.schedule("nightly", every=60, queue="mails", value=1)
        mails = db.queue("mails")
        mails.put("x")
        held = mails.get("worker-1", block=0)
        assert held is not None
        held.ack()
        db.xadd("orders", {"n": 1})
        db.xgroup_create("orders", "packers")
        db.set("token", "1")
    assert candidates("aof", "dump", root, "--key", "o") == ["orders"]
    assert candidates("aof", "dump", root, "--key", "t") == ["tidelog:schedules", "token"]
    assert candidates("queue", "stats", root, "ma") == ["mails"]
    assert candidates("queue", "stats", root, "orders", "--group", "p") == ["packers"]
    assert candidates("aof", "dump", root, "--consumer", "w") == ["worker-1"]
    assert candidates("why", root, "m") == ["mails"]
    assert candidates("state", root, "--key", "to") == ["token"]
    assert candidates("diff", root, f"{root}@3", "--state", "--key", "o") == ["orders"]
    assert candidates("queue", "schedule", "pause", root, "ni") == ["nightly"]
    assert candidates("report", root, "-o", "x.html", "--queue", "ma") == ["mails"]
    assert candidates("aof", "plot", root, "-o", "x.svg", "--group", "pa") == ["packers"]


def test_a_path_that_is_no_store_has_no_names(tmp_path: Path, made: Made) -> None:
    assert candidates("aof", "dump", tmp_path / "none", "--key", "") == []
    made.flip(20)
    assert candidates("aof", "dump", made.root, "--key", "") == []


def test_in_a_real_bash(made: Made, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None, "install bash"
    program = tmp_path / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {sys.path!r}\n"
        "from tidelog.tools.start import main\nmain()\n"
    )
    program.chmod(0o755)
    typed = (
        'eval "$(tidelog completion bash)"\n'
        "complete -p tidelog >&2\n"
        'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tidelog_completion tidelog; '
        'printf "%s\\n" "${COMPREPLY[*]}"; }\n'
        "ask tidelog aof d\n"
        f"ask tidelog aof dump {made.root} --key or\n"
    )
    done = subprocess.run(
        [bash, "--norc", "-c", typed],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.stdout.splitlines() == ["dump", "orders"], done.stderr
    assert "_tidelog_completion tidelog" in done.stderr
