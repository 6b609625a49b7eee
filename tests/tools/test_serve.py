"""`tidelog serve`: what the command line, the file and the environment make of a server, what it logs, how it ends."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.server.access.test_tls import made as certificate
from tests.tools.conftest import Run

import tidelog
from tidelog.server import serving
from tidelog.server.config.config import Config, ConfigError
from tidelog.server.monitoring.logs import VERBOSE, Logs
from tidelog.tools import exits

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR|VERBOSE|DEBUG) .*")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Config]]:
    """The options with which it would have served."""
    calls: list[tuple[Path, Config]] = []

    def serve_forever(root: Path, config: Config, **more: object) -> int:
        calls.append((root, config))
        logging.getLogger("tidelog.server").info("serving")
        return 0

    monkeypatch.setattr(serving, "serve_forever", serve_forever)
    return calls


def test_defaults(run: Run, tmp_path: Path, started: list[tuple[Path, Config]]) -> None:
    done = run("serve", tmp_path / "store")
    assert (done.code, done.out) == (0, "")
    assert LINE.fullmatch(done.err.rstrip("\n")) and done.err.endswith(" INFO serving\n")
    ((root, config),) = started
    assert root == tmp_path / "store"
    assert config["dir"] == str(root)
    assert (config["port"], config["bind"], config["appendfsync"]) == (
        6379,
        "127.0.0.1 -::1",
        "everysec",
    )
    assert config["protected-mode"] and not config.ephemeral and config.file is None


def test_what_goes_before_what(
    run: Run,
    tmp_path: Path,
    started: list[tuple[Path, Config]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG_REQUIREPASS", "from the environment")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tidelog.toml"
    file.write_text('port = 7000\nmaxclients = 5\nhz = 20\nrequirepass = "from the file"\n')
    done = run(
        *("serve", "store", "--config", "tidelog.toml", "--port", "7001", "--fsync", "always"),
        *("--memory-budget", "64mb", "--maxdisk", "20gb", "--option", "maxclients=6"),
        *("--option", "save=60 1"),
        *("--option", "tls-key-file-pass=a=b"),
    )
    assert done.code == 0
    ((root, config),) = started
    assert (root, config.file) == (tmp_path / "store", file)
    assert (config["port"], config["maxclients"], config["hz"]) == (7001, 6, 20)
    assert (config["appendfsync"], config["maxmemory"]) == ("always", 64 << 20)
    assert config.store_options()["maxdisk"] == 20 << 30
    assert (config["save"], config["tls-key-file-pass"]) == (((60, 1),), "a=b")
    assert config["requirepass"] == "from the environment"


def test_the_file_of_the_store(
    run: Run, tmp_path: Path, started: list[tuple[Path, Config]]
) -> None:
    """It is read, the command line goes before it, and a file that is named is used in its place as a whole."""
    root = tmp_path / "store"
    words = ("metrics-port=7001", "maxclients=5", "hz=20")
    assert run("config", root, "set", *words).code == 0
    assert run("serve", root, "--option", "maxclients=6").code == 0
    ((_, config),) = started
    assert (config["port"], config["metrics-port"], config["maxclients"]) == (0, 7001, 6)
    assert (config["appendfsync"], config["hz"], config.file) == (
        "always",
        20,
        root / "tidelog.toml",
    )
    other = tmp_path / "other.toml"
    other.write_text("maxclients = 7\n")
    assert run("serve", root, "--config", other).code == 0
    config = started[1][1]
    assert (config["port"], config["metrics-port"], config["maxclients"]) == (6379, 0, 7)
    assert (config["hz"], config.file) == (10, other)
    (root / "tidelog.toml").write_text("port = ")
    assert run("serve", root, "--config", other).code == 0
    done = run("serve", root)
    assert done.code == exits.USAGE and f"{root}/tidelog.toml: its last line has no end" in done.err
    assert len(started) == 3


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--port", "x"], "--port: port must be an integer from 0 to 65535, not 'x'"),
        (["--port", "65536"], "--port: port must be an integer from 0 to 65535, not '65536'"),
        (["--fsync", "later"],
         '--fsync: appendfsync must be one of "everysec", "always", "no", not \'later\''),
        (["--memory-budget", "12"], "--memory-budget: maxmemory must be 0 or bytes from 1048576, as a number or with a "
                                    "unit: \"64mb\" (k kb m mb g gb), not '12'"),
        (["--option", "port"], "--option port: must be NAME=VALUE"),
        (["--option", "prot=1"], "--option: there is no option 'prot'; did you mean port?"),
        (["--option", "protected-mode=1"], "--option: protected-mode must be yes or no, not '1'"),
        (["--option", "appendonly=no"],
         "--option: appendonly cannot be changed from yes: Every change is written to the log."),
        (["--config", "none.toml"], "{here}/none.toml: No such file or directory"),
        (["--config", "bad.toml"], "{here}/bad.toml, line 2: there is no option 'prot'; did you mean port?"),
        (["--logfile", "no/where.log"], "logfile no/where.log: No such file or directory"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(
    run: Run,
    tmp_path: Path,
    started: list[tuple[Path, Config]],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("hz = 20\nprot = 7000\n")
    done = run("serve", "store", *args)
    assert done == (exits.USAGE, "", f"tidelog: {error.format(here=tmp_path)}\n")
    assert not started and not (tmp_path / "store").exists()


def test_list_of_options(run: Run) -> None:
    done = run("serve", "--list-options")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["OPTION", "DEFAULT", "CHANGED", "MEANING"]
    assert any(re.match(r"port +6379 +start +TCP port; 0 = none\.", line) for line in lines)
    assert not any(line.startswith("appendonly ") for line in lines)


# --- the lines of the log


@contextmanager
def logs(**options: str) -> Iterator[Config]:
    config = Config()
    for name, text in options.items():
        config.take(name.replace("_", "-"), text, "")
    with Logs(config):
        yield config


def test_text_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with logs():
        logger = logging.getLogger("tidelog.server")
        logger.info("client %s", "a\r\nb\x1b[31m\u2028ü")
        logger.warning("oh")
        logger.log(VERBOSE, "not shown")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(" INFO client a\\r\\nb\\x1b[31m\\u2028ü")
    assert LINE.fullmatch(second) and second.endswith(" WARNING oh")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    with logs(log_format="json"):
        logger = logging.getLogger("tidelog.server")
        logger.info("client %s", "a\nb")
        try:
            raise ValueError("oh")
        except ValueError:
            logger.exception("it broke")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"level": "info", "message": "client a\nb", "logger": "tidelog.server"}
    assert second["level"] == "error" and "ValueError: oh" in second["error"]


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("tidelog.server")
    shown = {}
    with logs() as config:
        for level in ("debug", "verbose", "notice", "warning"):
            config.set([(b"loglevel", level.encode())])
            for number in (logging.DEBUG, VERBOSE, logging.INFO, logging.WARNING):
                logger.log(number, "x")
            logging.getLogger("asyncio").debug("of the loop")
            shown[level] = capsys.readouterr().err.count("\n")
    assert shown == {"debug": 4, "verbose": 3, "notice": 2, "warning": 1}


def test_afterwards_all_is_as_before() -> None:
    own, loop = logging.getLogger("tidelog"), logging.getLogger("asyncio")
    before = own.level, own.propagate, own.handlers[:], loop.propagate, loop.handlers[:]
    with logs(loglevel="debug"):
        assert not own.propagate
    assert before == (own.level, own.propagate, own.handlers, loop.propagate, loop.handlers)


def test_a_file_that_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "tidelog.log"
    with logs(logfile=str(path)):
        logging.getLogger("tidelog").warning("one")
        path.rename(tmp_path / "tidelog.log.1")
        logging.getLogger("tidelog").warning("two")
    assert path.read_text().endswith(" WARNING two\n") and path.read_text().count("\n") == 1
    with (
        pytest.raises(ConfigError, match="logfile .*: Is a directory"),
        logs(logfile=str(tmp_path)),
    ):
        pass


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o277])
def test_a_log_file_is_for_its_user_alone(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "tidelog.log"
    before = os.umask(umask)
    try:
        with logs(logfile=str(path)):
            logging.getLogger("tidelog").warning("one")
            assert path.stat().st_mode & 0o777 == 0o600
            path.rename(tmp_path / "tidelog.log.1")
            logging.getLogger("tidelog").warning("two")
            assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o640)  # as logrotate makes it for a group that may read
        with logs(logfile=str(path)):
            logging.getLogger("tidelog").warning("three")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["two", "three"]


# --- a process


class Process:
    """`tidelog serve`, with a free port if none is given."""

    def __init__(self, root: Path, *args: str) -> None:
        self.port = free_port()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "serve", str(root), "--port", str(self.port), *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.child.stderr is not None
        self.lines: list[str] = []
        for line in self.child.stderr:
            self.lines.append(line)
            if "listening on 127.0.0.1" in line:
                break

    def end(self, number: int = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        _, rest = self.child.communicate(timeout=120)
        self.lines += rest.splitlines(keepends=True)
        return self.child.returncode


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


TOLD_WHILE_IT_STARTS = """
import signal, sys
from tidelog.server.server import Server
from tidelog.tools import cli

start = Server.start

async def told(server, *given):
    await start(server, *given)
    signal.raise_signal(signal.SIGTERM)

Server.start = told
sys.exit(cli.run(["serve", *sys.argv[1:]]))
"""


def test_a_signal_that_comes_as_soon_as_the_server_listens(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c", TOLD_WHILE_IT_STARTS),
            *(str(tmp_path / "store"), "--port", str(free_port())),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "SIGTERM: stopping" in done.stderr and "closed " in done.stderr


def test_a_server(tmp_path: Path) -> None:
    root, file = tmp_path / "store", tmp_path / "tidelog.toml"
    file.write_text('# mine\nusers = ["user ann on >secret ~* &* +@all"]\n')
    served = Process(root, "--config", str(file))
    try:
        client: Any = redis.Redis(port=served.port, protocol=2)
        assert client.xadd("s", {"a": 1}, id="1-1") == b"1-1"
        assert client.config_get("maxmemory", "dir") == {"maxmemory": "0", "dir": str(root)}
        with pytest.raises(redis.ResponseError, match="must be between"):
            client.config_set("timeout", -1)
        client.config_set("timeout", 77, "loglevel", "debug")
        assert client.config_rewrite()
        text = file.read_text()
        assert text.startswith("# mine\nusers = [\n") and "timeout = 77\n" in text
        assert "secret" not in text  # hashed by now
        client.close()
    finally:
        code = served.end()
    assert code == 0, served.lines
    assert all(LINE.fullmatch(line.rstrip("\n")) for line in served.lines), served.lines
    with tidelog.open(root) as db:
        assert db.xlen("s") == 1

    again = Process(root, "--config", str(file))
    try:
        client = redis.Redis(port=again.port, protocol=2, username="ann", password="secret")
        assert client.config_get("timeout") == {"timeout": "77"}
        client.close()
    finally:
        assert again.end(signal.SIGINT) == 0


def contents(root: Path) -> dict[str, bytes | None]:
    """Every file and folder below, but for who has the lock."""
    found = [path for path in root.rglob("*") if path.name != "LOCK"]
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize("fault", [
    "port", "second address", "metrics port", "certificate", "key", "socket", "users", "nowhere", "log file", "option",
])  # fmt: skip
def test_a_failed_start_leaves_no_new_store(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users.toml").write_text('users = ["user ann on fast"]\n')
    (tmp_path / "a.pem").write_text("")
    (tmp_path / "empty").mkdir()
    with tidelog.open(tmp_path / "there") as db:
        db.xadd("s", {"a": "1"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy, free = taken.getsockname()[1], free_port()
        args: list[object] = {
            "port": ["--port", busy],
            "second address": ["--port", free, "--option", "bind=127.0.0.1 192.0.2.77"],
            "metrics port": ["--port", free, "--metrics-port", busy],
            "certificate": ["--port", free, "--tls-port", free_port(), "--tls-cert-file", "no.pem"],
            "key": ["--port", "0", "--tls-port", free, "--tls-cert-file", "a.pem", "--tls-key-file", "no.key"],
            "socket": ["--port", free, "--unixsocket", tmp_path / "no" / "orders.sock"],
            "users": ["--port", free, "--config", "users.toml"],
            "nowhere": ["--port", "0"],
            "log file": ["--port", free, "--logfile", "no/where.log"],
            "option": ["--port", free, "--option", "hz=x"],
        }[fault]  # fmt: skip
        before = contents(tmp_path / "there")
        for name in ("new", "empty", "there"):
            done = run("serve", tmp_path / name, *args)
            assert done.code in (exits.USAGE, exits.SYSTEM) and done.out == "", done
            assert "Traceback" not in done.err
    assert not (tmp_path / "new").exists()
    assert not list((tmp_path / "empty").iterdir())
    assert contents(tmp_path / "there") == before


def test_a_store_that_cannot_be_opened_leaves_its_addresses(run: Run, tmp_path: Path) -> None:
    """The Unix socket's file goes again, and the port is free."""
    port, path = free_port(), tmp_path / "orders.sock"
    done = run("serve", tmp_path / "no" / "store", "--port", port, "--unixsocket", path)
    assert done.code == exits.SYSTEM and "create the parent directory" in done.err
    assert not path.exists()
    socket.create_server(("127.0.0.1", port)).close()


def test_what_keeps_it_from_starting(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        files = certificate(tmp_path, "server")
        tls = ("--tls-cert-file", files.certificate, "--tls-key-file", files.key)
        for option, more in {
            "port": (),
            "metrics-port": ("--port", free_port()),
            "tls-port": ("--port", free_port(), *tls, "--tls-auth-clients", "no"),
        }.items():
            done = run("serve", root, f"--{option}", port, *more)
            assert (done.code, done.out) == (exits.SYSTEM, "")
            assert done.err.splitlines()[-1] == (
                f"tidelog: cannot listen on 127.0.0.1 port {port}: address already in use; `ss -ltnp` names the "
                f"process that has it. End that one, or choose another `{option}`"
            )

    socket_path = tmp_path / "missing" / "orders.sock"
    done = run("serve", root, "--port", "0", "--unixsocket", socket_path)
    assert done.code == exits.SYSTEM
    assert done.err.splitlines()[-1] == f"tidelog: {socket_path}: No such file or directory"

    with tidelog.open(root):
        done = run("serve", root, "--port", "0")
        assert (done.code, done.out) == (exits.LOCKED, "")
        assert done.err.startswith(f"tidelog: {root} is open for writing by")

    missing = tmp_path / "no" / "store"
    done = run("serve", missing, "--port", free_port())
    assert (done.code, done.err) == (
        exits.SYSTEM,
        f"tidelog: {missing}: No such file or directory; create the parent directory first\n",
    )

    (tmp_path / "groceries").mkdir()
    (tmp_path / "groceries" / "list").write_text("tea\n")
    done = run("serve", tmp_path / "groceries", "--port", "0")
    assert (done.code, done.err.count("\n")) == (exits.NOT_A_STORE, 1)

    done = run("serve", root, "--port", "0", "--tls-port", free_port())
    assert done.code == exits.USAGE
    assert done.err.splitlines()[-1] == "tidelog: tls-port needs tls-cert-file"

    for nowhere in (["--port", "0"], ["--port", free_port(), "--option", "bind=-192.0.2.77"]):
        done = run("serve", root, *nowhere)
        assert done.code == exits.USAGE
        assert done.err.splitlines()[-1].startswith("tidelog: the server would listen nowhere: ")

    file = tmp_path / "tidelog.toml"
    file.write_text('users = ["user ann on fast"]\n')
    done = run("serve", root, "--port", "0", "--config", file)
    assert done.code == exits.USAGE
    assert done.err.splitlines()[-1].startswith(
        f"tidelog: {file}: users: Error in user declaration 'ann'"
    )
