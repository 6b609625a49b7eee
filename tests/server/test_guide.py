"""The guide to the server shows what happens: sessions of redis-cli, configuration files, command lines.

Its Python examples run in tests/tools/test_docs.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.server.clients.cli import Typed
from tests.server.conftest import Running

from tidelog.server import serving
from tidelog.server.acl.users import Acl
from tidelog.server.config.config import Config
from tidelog.server.handlers import COMMANDS
from tidelog.tools.cli import cli

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "guides/server.md"
OPTIONS = DOCS / "reference/server-options.md"
COMMAND_LINE = DOCS / "guides/command-line.md"
PROMPT = "127.0.0.1:6379> "
SHUTDOWN = "SHUTDOWN"


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(), re.M | re.S)


def sessions() -> Iterator[tuple[str, str]]:
    """(line, what redis-cli shows for it), in order."""
    for block in blocks(GUIDE, "console"):
        for step in re.split(rf"^{re.escape(PROMPT)}", block, flags=re.M)[1:]:
            line, _, said = step.partition("\n")
            yield line, said.rstrip("\n")


def likened(text: str) -> str:
    """Without the time of an ID that the server made."""
    return re.sub(r"\b1[7-9]\d{11}-0\b", "ID", text)


def test_the_sessions(server: Running) -> None:
    steps = [step for step in sessions() if step[0] != SHUTDOWN]
    assert len(steps) >= 9
    with Typed("-p", str(server.port)) as typed:
        for line, said in steps:
            assert likened(typed.type(line)) == likened(said), line


def test_the_files(tmp_path: Path) -> None:
    files = blocks(GUIDE, "toml") + blocks(OPTIONS, "toml")
    assert len(files) == 2
    for text in files:
        file = tmp_path / "tidelog.toml"
        file.write_text(text)
        config = Config()
        config.load(file)
        acl = Acl(COMMANDS.table, COMMANDS.categories)
        acl.load(config["users"])
        assert len(acl.users) == 2


def lines() -> list[str]:
    """Every `tidelog serve` of the pages."""
    found = []
    for page in (GUIDE, COMMAND_LINE):
        for kind in ("sh", "console"):
            for block in blocks(page, kind):
                text = block.replace("\\\n", " ")
                found += re.findall(r"^(?:\$ )?(?:\w+='[^']*' )?(tidelog serve .*)$", text, re.M)
    return found


def test_the_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []

    def serve_forever(root: Path, config: Config, **more: object) -> int:
        served.append(config)
        return 0

    monkeypatch.setattr(serving, "serve_forever", serve_forever)
    monkeypatch.chdir(tmp_path)
    for name in ("orders.toml", "tidelog.toml"):
        Path(name).write_text(blocks(GUIDE, "toml")[0])
    wanted = lines()
    assert len(wanted) >= 8
    for line in wanted:
        done = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
        assert done.exit_code == 0, (line, done.output)
    assert len(served) == len(wanted)
