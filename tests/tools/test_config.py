"""`tidelog config`: what it shows, what it writes, and what it refuses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.test_completion import candidates

import tidelog
from tidelog.server.config.stored import NAME
from tidelog.tools import exits

HASH = "#" + "5" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "orders-data"
    tidelog.open(root).close()
    return root


def test_set_and_get(run: Run, root: Path) -> None:
    assert run("config", root) == (0, "OPTION  VALUE\n", "")
    user = f"user ann on {HASH} ~* +@all"
    words = (
        "port=7000",
        "requirepass=env:ORDERS_PASSWORD",
        "masterauth=file:/run/pass",
        "maxmemory=64mb",
    )
    assert run(
        "config", root, "set", *words, f"users={user}", "users=user bob off", "save=60 1"
    ) == (0, "", "")
    path = root / NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run("config", root, "get", "port").out == "7000\n"
    assert run("config", root, "get", "requirepass").out == "env:ORDERS_PASSWORD\n"
    assert run("config", root, "get", "users").out == f"{user}\nuser bob off\n"
    found = json.loads(run("config", root, "--json").out)
    assert found == {
        "port": 7000, "requirepass": {"env": "ORDERS_PASSWORD"}, "masterauth": {"file": "/run/pass"},
        "maxmemory": 64 << 20, "users": [user, "user bob off"], "save": [[60, 1]],
    }  # fmt: skip
    lines = run("config", root).out.splitlines()
    assert [line.split() for line in lines[:2]] == [["OPTION", "VALUE"], ["port", "7000"]]
    done = run("config", root, "unset", "users", "save", "masterauth", "maxmemory", "hz", "--json")
    assert (done.code, json.loads(done.out)) == (
        0,
        {"port": 7000, "requirepass": {"env": "ORDERS_PASSWORD"}},
    )


def test_comments_and_order_stay(run: Run, root: Path) -> None:
    path = root / NAME
    path.write_text(
        "# ours\nport = 1  # first\nhz = 20\n\n[client-output-buffer-limit]\npubsub = [1, 2, 3]\n"
    )
    path.chmod(0o600)
    assert run("config", root, "set", "port=2", "timeout=5").code == 0
    assert run("config", root, "unset", "hz").code == 0
    text = path.read_text()
    assert text.startswith("# ours\nport = 2  # first\n") and "pubsub = [1, 2, 3]" in text
    assert json.loads(run("config", root, "--json").out)["timeout"] == 5


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("set", "prot=1"), "there is no option 'prot'; did you mean port?"),
        (("set", "port"), "port: must be NAME=VALUE"),
        (("set", "port=x"), "port must be an integer from 0 to 65535, not 'x'"),
        (("set", "console=true"), "console must be yes or no, not 'true'"),
        (("set", "dir=/x"), "{path}, line 1: dir cannot be changed from empty: The directory of the store"),
        (("set", "requirepass=sesame"), "{path}, line 1: requirepass is a password, and this file takes only the name"),
        (("set", "requirepass=file:x"), "{path}, line 1: requirepass must be an absolute path, not 'x'"),
        (("set", "logfile=x.log"), "{path}, line 1: logfile must be an absolute path, not 'x.log'"),
        (("set", "users=user ann on >x"), "{path}, line 1: user ann has a password in clear"),
        (("unset", "prot"), "there is no option 'prot'; did you mean port?"),
        (("get", "prot"), "there is no option 'prot'; did you mean port?"),
        (("get", "port"), "the file does not say port"),
    ],
)  # fmt: skip
def test_what_is_refused(run: Run, root: Path, words: tuple[str, ...], error: str) -> None:
    done = run("config", root, *words)
    assert (done.code, done.out) == (exits.USAGE, "")
    assert done.err.startswith(f"tidelog: {error.format(path=root / NAME)}")
    assert done.err.count("\n") == 1 and not (root / NAME).exists()


@pytest.mark.parametrize(
    "words", [("set",), ("unset",), ("get", "port", "hz"), ("edit", "port"), ("show",)]
)
def test_wrong_words(run: Run, root: Path, words: tuple[str, ...]) -> None:
    assert run("config", root, *words).code == exits.USAGE


def test_a_damaged_file_can_be_edited(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = root / NAME
    path.write_text("port = \n")
    path.chmod(0o600)
    for words in ((), ("set", "hz=20"), ("unset", "hz")):
        done = run("config", root, *words)
        assert (done.code, done.out) == (exits.USAGE, "") and str(path) in done.err
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\ngrep -q "port =" "$1" && printf "port = 7000\\n" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(editor))
    assert run("config", root, "edit") == (0, "", "")
    assert path.read_text() == "port = 7000\n"
    editor.write_text('#!/bin/sh\nsleep 0.01; printf "prot = 1\\n" > "$1"\n')
    done = run("config", root, "edit")
    assert done.code == exits.USAGE and "there is no option 'prot'" in done.err
    assert path.read_text() == "port = 7000\n"


def test_places_that_hold_no_store(run: Run, tmp_path: Path) -> None:
    assert run("config", tmp_path / "none").code == exits.NOT_A_STORE
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    assert run("config", tmp_path / "home", "set", "port=1").code == exits.NOT_A_STORE
    assert run("config", tmp_path / "home" / "letter", "set", "port=1").code == exits.NOT_A_STORE
    assert run("config", tmp_path / "new", "set", "port=1").code == 0
    with tidelog.open(tmp_path / "new"):
        assert run("config", tmp_path / "new", "get", "port").out == "1\n"


def test_completion(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert candidates("config", root, "e") == ["edit"]
    assert candidates("config", root, "set", "metrics-p") == ["metrics-port="]
    assert candidates("config", root, "get", "metrics-p") == ["metrics-port"]
