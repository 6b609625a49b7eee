"""URLs on command lines: every command that asks a server takes the same ones, and none prints a password."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.server.access.test_tls import Files
from tests.server.access.test_tls import made as certificate
from tests.server.ports import free_port
from tests.tools.conftest import Done, Run
from tests.tools.spoiled import leaves

import tidelog
from tidelog.resp.urls import shown, without_passwords
from tidelog.tools import exits

COMMANDS = {
    name: each for name, each in leaves() if not name.startswith(("crash", "demo", "completion"))
}
"""All that may be given a store."""
WORD = "hunter2"
BAD = f"rediss://ann:{WORD}@127.0.0.1:1/none"  # no number of a database
# Needed options, and commands that do not end by themselves or ask for a terminal.
OPTIONS = {"top": ["--once"], "console": ["--no-browser"], "queue watch": ["--looks", "1"]}


def words(name: str, command: click.Command) -> list[str]:
    """A line with the URL in the place of each path and word."""
    line = [*name.split(), *OPTIONS.get(name, [])]
    for each in command.params:
        if isinstance(each, click.Argument):
            line += [BAD] * max(each.nargs, 1)
        elif each.required:
            line += [each.opts[0], "1"]
    return line


def alone(line: list[str]) -> Done:
    """Run a command that takes over the log lines of its process."""
    told = subprocess.run(
        [sys.executable, "-m", "tidelog", *line], capture_output=True, text=True, timeout=60
    )
    return Done(told.returncode, told.stdout, told.stderr)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_command_prints_a_password(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    line = words(name, COMMANDS[name])
    done = alone(line) if name == "worker" else run(*line)
    assert done.code != exits.OK and done.err
    assert WORD not in done.out + done.err
    assert not list(tmp_path.glob("redis*"))  # no directory of that name


def test_what_is_shown_of_a_text_with_urls() -> None:
    for url in (
        BAD,
        f"redis://:{WORD}@h",
        f"redis+sentinel://:{WORD}/x@h:1/orders",
        f"redis://:a {WORD}@h",
    ):
        assert WORD not in shown(url) and shown(url).endswith(url.rpartition("@")[2])
    for text in ("orders-data", "a@b", "redis://h/1", "s3://bucket/a@b"):
        assert without_passwords(text) == text
    line = f"rediss:/:{WORD}@h is none, s3://key:{WORD}@bucket/a neither (tidelog://{WORD}:@h)"
    told = "rediss:/...@h is none, s3://...@bucket/a neither (tidelog://...@h)"
    assert without_passwords(line) == told


def test_errors_of_python_show_no_password() -> None:
    for url in (
        BAD,
        f"redis://:{WORD}/x@h",
        f"redis://:x{WORD}@h:p",
        f"http://:{WORD}@h",
        f"redis://:{WORD}@",
    ):
        with pytest.raises(tidelog.DataError) as caught:
            tidelog.connect(url)
        assert WORD not in str(caught.value)
        with pytest.raises(tidelog.DataError) as caught:
            tidelog.open(url)
        assert WORD not in str(caught.value)
    with pytest.raises(tidelog.Unreachable) as unreachable:
        tidelog.connect(f"redis://:{WORD}@127.0.0.1:{free_port()}", timeout=0.1)
    assert WORD not in str(unreachable.value)


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[Files, int, int]]:
    """The files of a certificate, and the ports with and without TLS of a server that wants a password."""
    files, port = certificate(tmp_path, "server"), free_port()
    options = {
        "tls_cert_file": files.certificate,
        "tls_key_file": files.key,
        "tls_auth_clients": "no",
    }
    with (
        tidelog.open(tmp_path / "s") as db,
        tidelog.serve(db, port=0, tls_port=port, requirepass=WORD, **options) as serving,
    ):
        db.db(3).xadd("orders", {"n": 1})
        yield files, port, serving.port


@pytest.mark.parametrize(
    "line", ["replica status", "top --once", "doctor", "doctor --json", "queue ls"]
)
def test_the_options_of_tls(run: Run, tls: tuple[Files, int, int], line: str) -> None:
    files, port, _ = tls
    done = run(
        *line.split(), f"rediss://:{WORD}@localhost:{port}/3?ssl_ca_certs={files.certificate}"
    )
    assert done.code in (exits.OK, exits.ADVICE) and WORD not in done.out + done.err
    if line.startswith("top"):
        assert f"localhost:{port}, database 3\n" in done.out and "orders" in done.out
    if "--json" in line:
        assert json.loads(done.out)["place"].startswith(f"rediss://...@localhost:{port}/3")


def test_a_comparison_and_an_import_over_tls(
    run: Run, tls: tuple[Files, int, int], tmp_path: Path
) -> None:
    files, port, _ = tls
    query = f"?ssl_ca_certs={files.certificate}"
    done = run("replica", "verify", f"rediss://:{WORD}@localhost:{port}{query}")
    assert (done.code, "this store follows no leader" in done.err) == (exits.REFUSED, True)
    line = (
        "import",
        tmp_path / "new",
        f"rediss://:{WORD}@localhost:{port}/{{}}{query}",
        "--by",
        "dump",
    )
    done = run(*(str(word).format(3) for word in line))
    assert (done.code, "choose databases with --db" in done.err) == (exits.USAGE, True)
    assert run(*(str(word).format(0) for word in line)).code == exits.OK


@pytest.mark.parametrize("line", ["replica status", "top --once", "import new"])
def test_tls_or_none_is_a_mistake_with_advice(
    run: Run,
    tls: tuple[Files, int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    _, port, _ = tls
    done = run(*line.split(), f"redis://127.0.0.1:{port}")
    assert (done.code, "for TLS, use rediss:// in the URL\n" in done.err) == (exits.SYSTEM, True), (
        done
    )
    done = run(*line.split(), f"rediss://127.0.0.1:{port}")
    assert (done.code, "?ssl_ca_certs=FILE" in done.err) == (exits.SYSTEM, True), done


def test_a_client_and_a_port_that_do_not_agree_about_tls(tls: tuple[Files, int, int]) -> None:
    _, port, plain = tls
    with pytest.raises(tidelog.Unreachable, match="for TLS, use rediss://"):
        tidelog.connect(f"redis://127.0.0.1:{port}", timeout=0.1)
    with pytest.raises(tidelog.Unreachable, match="not for TLS, use redis://"):
        tidelog.connect(f"rediss://127.0.0.1:{plain}", timeout=0.1)
