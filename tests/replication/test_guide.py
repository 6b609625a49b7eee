"""The guide to replication: its sessions are typed, its command lines start servers, the tests that it names exist.

Its Python examples run in tests/tools/test_docs.py.
"""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.replication.conftest import Pair
from tests.server.clients.cli import Typed
from tests.until import until

from tidelog.server import serving
from tidelog.server.config.config import Config
from tidelog.tools.cli import cli

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/guides/replication.md").read_text()
LEADER, FOLLOWER = "6379", "6380"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.M | re.S)


def steps() -> list[tuple[str, str, str]]:
    """(port, line, what redis-cli shows for it), in order."""
    found = []
    for block in blocks("console"):
        parts = re.split(r"^127\.0\.0\.1:(\d+)> ", block, flags=re.M)[1:]
        for port, step in zip(parts[::2], parts[1::2], strict=True):
            line, _, said = step.partition("\n")
            found.append((port, line, said.rstrip("\n")))
    return found


def test_the_sessions(pair: Pair) -> None:
    _, port = pair.follower()
    until(lambda: len(pair.server.replicating.feeding.feeds) == 1)
    ports = {LEADER: str(pair.port), FOLLOWER: str(port)}
    assert len(steps()) >= 9
    with closing(Typed("-p", ports[LEADER])) as leader, closing(Typed("-p", str(port))) as follower:
        for at, line, said in steps():
            typed = leader if at == LEADER else follower
            line = re.sub(r"\b63(79|80)$", lambda found: ports[found[0]], line)
            assert typed.type(line) == said, line


def test_the_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []

    def serve_forever(root: Path, config: Config, **more: object) -> int:
        served.append(config["replicaof"])
        return 0

    monkeypatch.setattr(serving, "serve_forever", serve_forever)
    monkeypatch.chdir(tmp_path)
    text = "".join(blocks("sh")).replace("\\\n", " ").replace("$PASSWORD", "tea-for-two")
    for line in text.splitlines():
        done = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
        assert done.exit_code == 0, (line, done.output)
    assert served == ["", "127.0.0.1 6379", "", "10.0.0.1 6379"]


def test_the_tests_that_it_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
    assert len(named) >= 9
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), (file, test)
    table = TEXT.partition("### What can be lost when")[2].partition("\n1. ")[0]
    notes = TEXT.partition("### What can be lost when")[2].partition("\n## ")[0]
    assert set(re.findall(r"\((\d+)\)", table)) == set(re.findall(r"^(\d+)\. ", notes, re.M))
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 9
    for row in rows:
        assert all(re.search(r"\(\d+\)$", cell.strip()) for cell in row.split("|")[2:-1]), row
