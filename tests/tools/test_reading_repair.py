"""The last chapter of the guide "Reading the log": every example of the repair gives the output on the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.page_blocks import shows
from tests.tools.test_reading_guide import PAGE, REPAIR, maker, masked

DAMAGE = b"disk error"


def blocks() -> list[str]:
    text = PAGE.read_text().partition(REPAIR)[2]
    return re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)


def hidden(text: str) -> str:
    """Digests are others in each run."""
    return masked(re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text))


def done(run: Run, line: str) -> str:
    """The output of one line of the page."""
    words = shlex.split(line)
    if words[0] == "printf":
        assert words[1] == DAMAGE.decode()
        (path,) = [word.removeprefix("of=") for word in words if word.startswith("of=")]
        (at,) = [int(word.removeprefix("seek=")) for word in words if word.startswith("seek=")]
        data = bytearray(Path(path).read_bytes())
        data[at : at + len(DAMAGE)] = DAMAGE
        Path(path).write_bytes(data)
        return ""
    assert words[0] == "tidelog", line
    quiet = words[-1] == "2>/dev/null"
    found = run(*(words[1:-1] if quiet else words[1:]))
    return found.out if quiet else found.out + found.err


def shown(run: Run, block: str) -> str:
    """A block as it stands, with the output of now."""
    lines = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{done(run, line[2:])}" for line in lines)


def test_every_example(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = maker()
    made.shop(Path(made.NAME))
    found = blocks()
    assert len(found) > 3
    for block in found:
        told = hidden(shown(run, block))
        assert shows(hidden(block), told), told
