"""A command that lacks a package, or Java, ends with exit code 5 and says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.spark import java
from tidelog.spark.errors import TidelogSparkError
from tidelog.tools import cli, exits, installed


@pytest.mark.parametrize(
    ("args", "extra"),
    [
        (["report", "STORE", "-o", "OUT.html"], "report"),
        (["aof", "plot", "STORE", "-o", "OUT.svg"], "plot"),
        (["export", "STORE", "--to", "OUT"], "spark"),
        (["top", "STORE"], "top"),
    ],
)
def test_an_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], extra: str
) -> None:
    with tidelog.open(tmp_path / "store") as db:
        db.xadd("orders", {"item": "tea"})
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    places = {"STORE": str(tmp_path / "store")}
    words = [places.get(word, word.replace("OUT", f"{tmp_path}/out")) for word in args]
    done = run(*words)
    assert (done.code, done.out) == (exits.SYSTEM, "")
    assert done.err.count("\n") == 1 and f"pip install 'tidelog[{extra}]'" in done.err


def test_pyarrow_for_a_url(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("snapshot", "verify", "s3://bucket/snapshot")
    assert done.code == exits.SYSTEM
    assert done.err.count("\n") == 1 and "pip install 'tidelog[spark]'" in done.err


def test_prometheus_for_the_metrics_port(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    socket = tmp_path / "s.sock"
    done = run(
        "serve", tmp_path / "store", "--port", "0", "--unixsocket", socket, "--metrics-port", "1"
    )
    assert done.code == exits.SYSTEM
    assert "pip install 'tidelog[server]'" in done.err.splitlines()[-1]


def test_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TidelogSparkError) as raised:
        java.java_home()
    assert cli.exit_code(raised.value) == exits.SYSTEM


def test_the_help_of_a_command_names_an_exit_code_once() -> None:
    def commands(group: click.Group) -> list[click.Command]:
        context = click.Context(group)
        found = [group.get_command(context, name) for name in group.list_commands(context)]
        return [
            command
            for each in found
            if each is not None
            for command in ([each, *commands(each)] if isinstance(each, click.Group) else [each])
        ]

    for command in commands(cli.cli):
        told = (command.epilog or "").partition("Exit codes: ")[2].partition(".\n")[0]
        codes = [word.split()[0] for word in told.split(", ") if word[:1].isdigit()]
        assert len(codes) == len(set(codes)), command.name
