"""One command of the command line on a store whose log is given: a documented exit code, and one line at most."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fuzz.logs import STORE

from tidelog.aof import identity
from tidelog.tools import cli, exits

KEY, ID = "s", "3-0"
CODES = frozenset(
    (
        *(exits.OK, exits.NOT_A_STORE, exits.DAMAGED, exits.NEWER, exits.REFUSED),
        *range(exits.VERIFY_TAIL, exits.VERIFY_FILES + 1),
    )
)


def run_on(place: Path, files: Mapping[str, bytes], words: Sequence[str]) -> None:
    """Write the store, and run the command on it."""
    shutil.rmtree(place, ignore_errors=True)
    folder = place / identity.AOF
    folder.mkdir(parents=True)
    (place / identity.NAME).write_bytes(STORE)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    run([*words, str(place), *([KEY, ID] if words[0] == "why" else [])])


def run(line: Sequence[str]) -> int:
    """The exit code of a command that tells what is wrong, if anything is, in one line."""
    told, said = io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape"), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(said):
        code = cli.run(line)
    assert code in CODES, (line, code, said.getvalue())
    past_damage = "--past-damage" in line  # each fault has a line
    assert code == exits.OK or past_damage or said.getvalue().count("\n") <= 1, said.getvalue()
    return code
