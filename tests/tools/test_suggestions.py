"""A word that is no command, or no option: the error names those that may be meant."""

from __future__ import annotations

import pytest
from tests.tools.conftest import Run

from tidelog.tools import exits


# fmt: off
@pytest.mark.parametrize(("words", "text"), [
    ("queu", "No such command 'queu'. Did you mean 'queue'?"),
    ("aof stat", "No such command 'stat'. Did you mean 'stats'?"),
    ("queue dead lss", "No such command 'lss'. Did you mean 'ls'?"),
    ("dump", "No such command 'dump'. Did you mean 'aof dump'?"),
    ("redrive", "No such command 'redrive'. Did you mean 'queue dead redrive'?"),
    ("redriv", "'queue dead redrive'?"),
    ("xyzzy", "No such command 'xyzzy'."),
])
# fmt: on
def test_a_command_that_is_not_there(run: Run, words: str, text: str) -> None:
    done = run(*words.split())
    assert (done.code, done.out) == (exits.USAGE, "")
    assert done.err.endswith(f"{text}\n")
    assert "Try 'tidelog" in done.err


def test_a_name_of_several_groups(run: Run) -> None:
    done = run("verifyy")
    assert all(f"'{name}'" in done.err for name in ("verify", "aof verify", "snapshot verify"))


def test_an_option_that_is_not_there(run: Run) -> None:
    done = run("info", "--jsn", "orders-data")
    assert done.code == exits.USAGE and "'--json'" in done.err


def test_an_option_before_a_command(run: Run) -> None:
    done = run("--versio", "info")
    assert done.code == exits.USAGE and "'--version'" in done.err
