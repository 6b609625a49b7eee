"""The guide "Moving from Redis and back": every line of its examples is typed in order, with real servers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from copy import deepcopy
from pathlib import Path

import pytest
from tests.oracle import differences
from tests.oracle.appending import Appending
from tests.oracle.test_import import (
    Views,
    agree,
    as_commands_carry,
    place,
    shown_by,
    views,
)
from tests.oracle.test_import_live import fill, served, without_lists
from tests.oracle.wire import Connection
from tests.server.ports import free_port
from tests.tools.conftest import Run, run

from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows.opened import open_copy

__all__ = ["place", "run"]  # fixtures

PAGE = Path(__file__).parents[2] / "docs/guides/moving-from-redis.md"
TARGET = Path("orders-data")
# A line that a reader types, in a block, in a numbered step, or in a sentence.
LINE = re.compile(
    r"^((?:tidelog|redis-cli) .*)$|`((?:tidelog|redis-cli) [^`]*orders-data[^`]*)`", re.M
)


def test_the_guide_from_top_to_bottom(
    run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(place, appendonly="yes") as (server, url):
        link = server.connect()
        fill(link, 21)
        link.call(b"PERSIST", b"until")  # an import key by key has it with the time that is left
        link.call(
            b"ACL", b"SETUSER", b"user", b"on", b">password", b"+psync", b"+replconf", b"+info"
        )
        guide = Guide(run, server, url.rpartition(":")[2], without_lists(views(link)))
        link.close()
        typed = [block or inline for block, inline in LINE.findall(PAGE.read_text())]
        for line in typed:
            guide.type(line)
    assert guide.done == {
        **{"redis-cli --rdb": 1, "tidelog import": 5, "tidelog info": 1, "tidelog verify": 1},
        **{"tidelog serve": 2, "tidelog rdb export": 1, "tidelog aof export": 1},
    }


class Guide:
    """Types the lines, with the address of a real server for that of the page. `theirs` is what that server shows."""

    def __init__(self, run: Run, server: Appending, port: str, theirs: Views) -> None:
        self.done: Counter[str] = Counter()
        self._run = run
        self._server = server
        self._port = port
        self._theirs = theirs

    def type(self, line: str) -> None:
        at = line.replace("host:6379", f"127.0.0.1:{self._port}")
        at = at.replace("/var/lib/redis", str(self._server.directory))
        words = shlex.split(at)
        name = " ".join(words[: 3 if words[1] in ("rdb", "aof") else 2])
        self.done[name] += 1
        match name:
            case "redis-cli --rdb":
                subprocess.run(["redis-cli", "-p", self._port, *words[1:]], check=True)
            case "tidelog import":
                self._import(words[1:])
            case "tidelog serve":
                self._serve(words[1:])
            case "tidelog aof export":
                self._pipe(words[1:])
            case "tidelog rdb export":
                Path("dump.rdb").unlink()  # of the first step
                self._loaded(words[1:])
            case _:
                assert self._run(*words[1:]).code == 0, line

    def _import(self, words: list[str]) -> None:
        shutil.rmtree(TARGET, ignore_errors=True)
        done = self._run(*words)
        assert (done.code, done.err) == (0, ""), done
        assert TARGET.exists() is ("--dry-run" not in words)
        if TARGET.exists():
            ours = shown_in(TARGET)
            theirs = self._theirs
            if "appendonlydir" in words[-1]:
                ours, theirs = as_commands_carry(ours), as_commands_carry(deepcopy(theirs))
            agree(ours, theirs)

    def _serve(self, words: list[str]) -> None:
        port = free_port()
        child = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *words, "--port", f"{port}"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stderr=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stderr is not None
            told = next(line for line in child.stderr if "listening on 127.0.0.1" in line)
            assert f":{port}" in told
            with closing(Connection(socket.create_connection(("127.0.0.1", port)))) as link:
                assert sorted(link.call(b"KEYS", b"*")) == sorted(
                    key for db, key in self._theirs if not db
                )
            child.terminate()
        assert child.returncode == 0

    def _loaded(self, words: list[str]) -> None:
        """Redis loads the dump where it looks for it."""
        assert self._run(*words).code == 0
        with tempfile.TemporaryDirectory(prefix="back-") as name:
            shutil.copy("dump.rdb", Path(name) / "dump.rdb")
            with served(Path(name)) as (server, _), closing(server.connect()) as link:
                agree(views(link), self._theirs)

    def _pipe(self, words: list[str]) -> None:
        """A Redis that runs takes the commands."""
        pipe = words.index("|")
        exported = self._run(*words[:pipe])
        assert exported.code == 0
        with (
            tempfile.TemporaryDirectory(prefix="piped-") as name,
            served(Path(name)) as (server, url),
        ):
            subprocess.run(
                [*words[pipe + 1 :], "-p", url.rpartition(":")[2]],
                input=exported.out.encode("utf-8", "surrogateescape"),
                stdout=subprocess.DEVNULL,
                check=True,
            )
            with closing(server.connect()) as link:
                assert views(link).keys() == self._theirs.keys()


def shown_in(root: Path) -> Views:
    opened = open_copy(RealDisk(), root / "checkpoint")
    try:
        return shown_by(opened.state(), differences, times=False)
    finally:
        opened.close()
