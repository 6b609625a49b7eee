"""The reference pages: every option, command and module is in them, with the defaults and releases of the code."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.wire import Connection
from tests.server.real_redis import real_redis

from tidelog.server.commands import docs
from tidelog.server.commands.describe import names
from tidelog.server.handlers import COMMANDS

ROOT = Path(__file__).parents[2]
COMMANDS_PAGE = ROOT / "docs/reference/compatibility.md"
# The groups of which "Not here" speaks as a whole, as COMMAND DOCS names them.
GROUPS = frozenset(b"list set sorted-set hash bitmap hyperloglog geo".split())


def test_every_module_is_in_the_architecture() -> None:
    page = (ROOT / "docs/ARCHITECTURE.md").read_text()
    section = page.split("\n## The server\n", 1)[1].split("\n## ", 1)[0]
    table = section.split("\n### Modules\n", 1)[1]
    named = set(re.findall(r"`(\w+)`", table))
    modules = {path.stem for path in (ROOT / "server").rglob("*.py")} - {"__init__"}
    assert not modules - named


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("options", ROOT / "tools/dev/make_options.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_options_are_up_to_date() -> None:
    made = generator()
    text = made.PAGE.read_text()
    assert text.count(made.BEGIN) == text.count(made.END) == 1
    assert text == made.page(), "run tools/dev/make_options.py"


def rows() -> list[tuple[str, str]]:
    """(command, since) of every row of the compatibility page, and of the lists below its tables."""
    text = COMMANDS_PAGE.read_text()
    found = re.findall(
        r"^\| ([A-Z][A-Z -]*) \| (\d[\d.]*) \|(?:[^|]|\\\|)*\|(?:[^|]|\\\|)*\|$", text, re.M
    )
    for alike in re.findall(r"^Without options, and as in Redis: ((?:.+\n)+)", text, re.M):
        listed = " ".join(alike.split())
        found += re.findall(r"([A-Z][A-Z -]*) \((\d[\d.]*)\)", listed)
    return [(str(name), str(since)) for name, since in found]


def is_called(name: bytes) -> bool:
    """Whether it is a command by itself and not only a container of others."""
    return name not in COMMANDS.table.containers or name == b"command"


def test_every_command_is_in_the_page_once() -> None:
    listed = [name.lower().replace(" ", "|").encode() for name, _ in rows()]
    assert sorted(listed) == sorted(filter(is_called, names(COMMANDS)))


def test_since_is_what_command_docs_says() -> None:
    different = []
    for name, since in rows():
        found: Any = docs.describe(name.lower().replace(" ", "|").encode(), COMMANDS)
        said = dict(zip(found[::2], found[1::2], strict=True))[b"since"].decode()
        if said.removesuffix(".0") != since:
            different.append((name, since, said))
    assert not different


@pytest.fixture(scope="module")
def oracle() -> Iterator[Connection]:
    with real_redis() as (server, _):
        connection: Connection = server.connect()
        yield connection
        connection.close()


def test_every_command_of_a_real_server_is_here_or_not_here(oracle: Connection) -> None:
    there = oracle.call(b"COMMAND", b"LIST")
    page = COMMANDS_PAGE.read_text()
    section = page.split("\n## Not here\n", 1)[1].split("\n## ", 1)[0]
    left_out = set(re.findall(r"[A-Z]+(?: [A-Z]+)*", section))
    missing = []
    for name in set(there) - set(names(COMMANDS)):
        words = name.decode().upper().replace("_", "-").split("|")
        # SORT stands for SORT_RO, RESTORE for RESTORE-ASKING.
        named = left_out & {words[0].partition("-")[0], " ".join(words)}
        if not named and group(oracle, name.partition(b"|")[0]) not in GROUPS:
            missing.append(name)
    assert not missing


def group(oracle: Connection, name: bytes) -> bytes:
    ((_, facts),) = pairs(oracle.call(b"COMMAND", b"DOCS", name))
    return bytes(dict(pairs(facts))[b"group"])


def pairs(flat: Any) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
