"""tidelog completion: the scripts, the candidates, and both in a real bash and a real zsh on a terminal."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from tests.tools.conftest import Run
from tests.tools.made import Made
from tests.tools.terminal import InteractiveShell

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
        "print('tidelog.tools.demo.command' in sys.modules)"
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


# --- in real shells


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a queue, whose keys have colons, and keys that need quotes, in a directory that is HOME."""
    root = tmp_path_factory.mktemp("home") / "shop"
    with tidelog.open(root) as db:
        mails = db.queue("mails")
        mails.put("x")
        mails.put("y", delay=3600)
        held = mails.get("worker-1", block=0)
        assert held is not None
        assert held.fail("no")
        db.schedule("nightly", every=60, queue="mails", value=1)
        db.set("my $key", "1")
        db.set("it's", "1")
    return root


@pytest.fixture(scope="module", params=["bash", "zsh"])
def shell(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shop: Path
) -> Iterator[InteractiveShell]:
    """An interactive shell with `tidelog` on its path, in an empty directory but for files with confusing names."""
    place = tmp_path_factory.mktemp("shell")
    program = place / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {sys.path!r}\n"
        "from tidelog.tools.start import main\nmain()\n"
    )
    program.chmod(0o755)
    here = place / "here"
    here.mkdir()
    for name in ("dead-letters", "schedules.txt"):
        (here / name).write_text("")
    kind: str = request.param
    shell = InteractiveShell(
        kind,
        place / "start",
        f'cd {here}; place={shop}; eval "$(tidelog completion {kind})"',
        PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        HOME=str(shop.parent),
        PYTHONPATH="",
    )
    yield shell
    shell.close()


def test_a_key_with_a_colon(shell: InteractiveShell, shop: Path) -> None:
    done = shell.completed
    assert done("tidelog aof dump ~/shop --key mails:d").rstrip() == (
        "tidelog aof dump ~/shop --key mails:dead"
    )
    assert done("tidelog state $HOME/shop --key tidelog:s").rstrip() == (
        "tidelog state $HOME/shop --key tidelog:schedules"
    )
    assert done("tidelog state ${place} --key=mails:l").rstrip() == (
        "tidelog state ${place} --key=mails:later"
    )
    assert done('tidelog state "$place" --key "mails:l').rstrip().rstrip('"') == (
        'tidelog state "$place" --key "mails:later'
    )
    assert done(f"tidelog queue stats {shop} mai").rstrip() == f"tidelog queue stats {shop} mails"
    # several candidates: as far as they agree, and a list; zsh lists at once, and takes the first at the second Tab
    tabs = 2 if shell.name == "bash" else 1
    assert done("tidelog state ~/shop --key mails:", tabs).endswith("--key mails:")
    assert {"dead", "failures", "later"} <= set(re.findall(r"\w+", shell.said))


def test_a_key_that_needs_quotes(shell: InteractiveShell) -> None:
    done = shell.completed
    assert done("tidelog state ~/shop --key my").rstrip() == (
        r"tidelog state ~/shop --key my\ \$key"
    )
    assert done("tidelog state ~/shop --key it").rstrip() == r"tidelog state ~/shop --key it\'s"


def test_commands_options_and_files(shell: InteractiveShell) -> None:
    done = shell.completed
    assert done("tidelog aof du").rstrip() == "tidelog aof dump"
    assert done("tidelog aof dump ~/shop --past").rstrip() == (
        "tidelog aof dump ~/shop --past-damage"
    )
    assert done("tidelog state ~/sh").rstrip().rstrip("/") == "tidelog state ~/shop"
    assert done("tidelog state ~/shop --key nothing:").rstrip() == (
        "tidelog state ~/shop --key nothing:"
    )
