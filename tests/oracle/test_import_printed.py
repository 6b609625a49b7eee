"""tidelog import of a running redis-server: all that it prints, with every flag of an import from a server, is kept.

The lines and their output are in tests/tools/expected/flags/import-live.txt.
"""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import pytest
from tests.oracle.test_import import place
from tests.oracle.test_import_live import served
from tests.oracle.wire import Connection
from tests.tools.conftest import Run, expect, run
from tests.tools.test_flags import said

from tidelog.tools.importing import from_server

__all__ = ["place", "run"]  # fixtures

URL = "redis://127.0.0.1:6379"  # as the kept text has it
LATE = "orders-follow"  # the import of this name gets a command behind the dump, and then the interrupt
LINES = (
    "orders-data URL",
    "orders-dump URL --by dump",
    "orders-psync URL --by psync --json",
    "orders-json URL --by dump --json",
    "orders-dry URL --by psync --dry-run",
    "orders-dry URL --by dump --dry-run --json",
    "orders-some URL --by psync --db 0 --db 3 --key 'o*' --key balance",
    "orders-some-too URL --by dump --db 3",
    "orders-moved URL --until-caught-up",
    "orders-moved-too URL --by psync --until-caught-up --key 'o*' --json",
    f"{LATE} URL --follow",
    "orders-data URL",  # a store is there now
    "orders-none redis://user:guess@127.0.0.1:6379",
    "orders-none URL --by dump --until-caught-up",
)


def fill(link: Connection) -> None:
    """A little of everything, with IDs and times that are the same in every run but for seen-times."""
    for number, item in enumerate((b"tea", b'"green" tea', b"\xff"), 1):
        link.call(b"XADD", b"orders", b"1700000000000-%d" % number, b"item", item)
    link.call(b"XGROUP", b"CREATE", b"orders", b"packers", b"0")
    link.call(
        b"XREADGROUP", b"GROUP", b"packers", b"anna", b"COUNT", b"2", b"STREAMS", b"orders", b">"
    )
    link.call(b"XACK", b"orders", b"packers", b"1700000000000-1")
    link.call(b"XDEL", b"orders", b"1700000000000-2")  # it stays pending
    link.call(b"SET", b"session", b"x", b"PXAT", b"4000000000000")
    link.call(b"RPUSH", b"names", b"anna", b"ben")
    link.call(b"HSET", b"prices", b"tea", b"2")
    link.call(b"SELECT", b"3")
    link.call(b"SET", b"balance", b"7")
    link.call(b"SELECT", b"0")


def unlike(text: str, port: str) -> str:
    """`text` without what each run has its own of: the port, random numbers, and sizes that an allocator decides."""
    text = text.replace(f":{port}", ":6379")
    text = re.sub(r'"uuid": "[0-9a-f]{32}"', '"uuid": "UUID"', text)
    text = re.sub(r'"bytes": \d+', '"bytes": N', text)
    return re.sub(r" +\d+ B\b", " N B", text)


def test_what_an_import_from_a_server_prints(
    run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = []
    with served(place) as (server, url):
        link = server.connect()
        fill(link)
        acknowledge = from_server._Following._acknowledge
        sent: list[bytes] = []

        def interrupted(following: from_server._Following) -> None:
            acknowledge(following)
            if not sent:  # the dump is taken, and no command yet
                sent.append(link.call(b"XADD", b"late", b"5-5", b"f", b"v"))
            elif following._whole:
                signal.raise_signal(signal.SIGINT)

        for line in LINES:
            with monkeypatch.context() as patched:
                if line.startswith(LATE):
                    patched.setattr(from_server._Following, "_acknowledge", interrupted)
                    patched.setattr(from_server, "ACK_S", 0.1)
                port = url.rpartition(":")[2]
                typed = line.replace("URL", url).replace("6379", port)
                done = run("import", *shlex.split(typed))
            told.append(f"$ tidelog import {line.replace('URL', URL)}\n{unlike(said(done), port)}")
        link.close()
    assert sent == [b"5-5"]
    expect("flags/import-live.txt", "\n".join(told), tmp_path / "store")
