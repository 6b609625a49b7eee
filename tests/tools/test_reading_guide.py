"""The guide "Reading the log": every example gives the output on the page, on the store of its pictures."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from tests.tools.conftest import Run
from tests.tools.page_blocks import shows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guides/reading-the-log.md"
REPAIR = "\n## Repair"  # from here on another test follows the page
REMAKE = "python tools/dev/make_reading_pictures.py draws the pictures anew"
# The panel "not synced" of the plot shows how far a sync had come, which is different in each run.
SYNCED = re.compile(r'<g id="axes_3">.*?(?=<g id="axes_4">)', re.S)


def maker() -> ModuleType:
    """The program that makes the store and the pictures."""
    path = ROOT / "tools/dev/make_reading_pictures.py"
    spec = spec_from_file_location("make_reading_pictures", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks() -> list[str]:
    text = PAGE.read_text().partition(REPAIR)[0]
    return re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)


def masked(text: str) -> str:
    """Random numbers are others in each run: uuids and incarnations, and how far a sync had come."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "UUID", text)
    text = re.sub(r"\b(?=\d*[a-f])[0-9a-f]{16}\b|\b[0-9]{16}\b", "INCARNATION", text)
    return re.sub(r"on the disk up to \d+", "on the disk up to N", text)


def done(run: Run, line: str) -> str:
    """The output of one line of the page: tidelog, perhaps with the program of jq that the page has."""
    command, _, program = line.partition(" | jq -c ")
    words = shlex.split(command)
    assert words[0] == "tidelog", line
    found = run(*words[1:])
    assert found.err == "" and (found.code == 0 or words[1] == "diff"), found
    return found.out if not program else asked(shlex.split(program)[0], found.out)


def asked(program: str, text: str) -> str:
    assert program == ".commands[]"
    rows = json.loads(text)["commands"]
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def shown(run: Run, block: str) -> str:
    """A block as it stands, with the output of now."""
    lines = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{done(run, line[2:])}" for line in lines)


def test_every_example(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = maker()
    made.shop(Path(made.NAME))
    found = blocks()
    assert len(found) > 8
    for block in found:
        told = masked(shown(run, block))
        assert shows(masked(block), told), told


def drawn(picture: str) -> list[str]:
    """The texts and the lines of a picture, in order, without styles and the version of the library that drew it.

    A plot draws its texts as lines and has the words in comments.
    """
    comments = r"<!-- (.*?) -->"
    texts = r"<text[^>]*>(.*?)</text>"
    lines = r' d="([^"]*)"'
    found = re.findall(f"{comments}|{texts}|{lines}", picture, re.S)
    return ["".join(groups) for groups in found if not "".join(groups).startswith("Created with")]


def test_the_plot_is_the_one_that_the_command_makes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = maker()
    made.shop(Path(made.NAME))
    assert run("aof", "plot", made.NAME, "-o", made.PLOT).code == 0
    kept, now = (
        SYNCED.split(path.read_text())
        for path in (ROOT / "docs/guides" / made.PLOT, Path(made.PLOT))
    )
    assert len(kept) == len(now) == 2
    words = [drawn(part) for part in kept]
    assert all(len(each) > 20 for each in words) and any("packers" in each for each in words[1])
    assert [drawn(part) for part in now] == words, REMAKE


def test_the_screen_of_top_is_the_one_that_the_command_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = maker()
    made.shop(Path(made.NAME))
    kept = drawn((ROOT / "docs/guides" / made.TOP).read_text())
    assert len(kept) > 20 and any("orders-data" in each for each in kept)
    assert drawn(asyncio.run(made.picture_of_top(Path(made.NAME)))) == kept, REMAKE


def test_the_page_shows_the_pictures() -> None:
    made = maker()
    text = PAGE.read_text()
    for name in made.PLOT, made.TOP:
        assert f"({name})" in text
