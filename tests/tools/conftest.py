"""Runs the command line inside the test's process, and compares what it says with files under expected/."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.tools.made import Made, orders

from tidelog.tools import cli

EXPECTED = Path(__file__).parent / "expected"


class Done(NamedTuple):
    """The result of a command line: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    def once(*args: object) -> Done:
        code = cli.run([str(arg) for arg in args])
        out, err = capsysbinary.readouterr()
        return Done(code, out.decode("utf-8", "surrogateescape"), err.decode())

    return once


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """The store whose outputs are kept."""
    return orders(tmp_path / "orders-data")


def expect(name: str, text: str, root: Path) -> None:
    """Compare `text` with a file, byte for byte, the store's place and its digest apart."""
    text = re.sub(re.escape(str(root.parent)) + "/", "", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text)
    assert text == (EXPECTED / name).read_text(), f"what differs is in expected/{name}"
