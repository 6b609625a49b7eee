"""tools/dev/lines.py counts what it says: lines of code, of the files that stand and of a commit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
TOOL = "tools/dev/lines.py"
GENERATED = (
    '"""Methods.\n\nGenerated from methods.py by tools/dev/make_faces.py: change that file.\n"""\n'
)


def tool() -> ModuleType:
    spec = spec_from_file_location("lines", ROOT / TOOL)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# fmt: off
@pytest.mark.parametrize(("source", "lines"), [
    ("", 0),
    ("\n# a comment\n\n", 0),
    ('"""A module\n\nof two paragraphs.\n"""\n\nx = 1  # with a comment\n', 1),
    ('class C:\n    """A class."""\n\n    x: int\n    """Of an attribute."""\n', 3),
    ('async def f():\n    """A function,\n    of two lines."""\n    return (\n        1,\n    )\n', 4),
    ('TEXT = """\none\n# two\n"""\nmore = 2\n', 2),
    ('x = "no docstring"\n"an expression"\n', 2),
])
# fmt: on
def test_a_line_of_code(source: str, lines: int) -> None:
    assert tool().code_lines(source) == lines


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def lines(folder: Path, *options: str) -> str:
    found = subprocess.run(
        [sys.executable, TOOL, *options], cwd=folder, capture_output=True, check=True, text=True
    )
    return found.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with the tool and one commit; after it, the queue grew and a folder went."""
    written(
        tmp_path,
        {
            "aof/long.py": "x = 1\n" + "# a comment\n" * 500,
            "bench/run.py": "x = 1\ny = 2\n",
            "gone/old.py": "x = 1\n",
            "api/made.py": GENERATED + "x = 1\n",
            "api/queue/face.py": "x = 1\n",
            "tests/test_long.py": "x = 1\n" * 501,
            "docs/page.md": "x = 1\n",
        },
    )
    (tmp_path / "tools/dev").mkdir(parents=True)
    shutil.copy(ROOT / TOOL, tmp_path / TOOL)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "One")
    (tmp_path / "gone/old.py").unlink()
    written(tmp_path, {"api/queue/face.py": "x = 1\ny = 2\n", "store/untracked.py": "x = 1\n"})
    return tmp_path


def test_folders_and_files_are_told_apart(clone: Path) -> None:
    now: dict[str, Any] = json.loads(lines(clone, "--json"))["now"]
    by_hand = now["hand-written"]
    assert by_hand.pop("tools/dev") > 50
    assert by_hand == {"aof": 1, "api": 2, "bench": 2, "tests": 501}
    assert now["generated"] == {"api": 1}
    assert now["the queue"]["jobs and faces"] == now["the queue"]["all of it"] == 2
    assert list(now["together"].values()) == [5, 3, 1]


def test_a_commit_is_shown_beside_the_files_that_stand(clone: Path) -> None:
    both = json.loads(lines(clone, "--json", "--against", "HEAD"))
    assert both["before"]["hand-written"]["gone"] == 1
    assert both["before"]["the queue"]["jobs and faces"] == 1
    rows = [line.split() for line in lines(clone, "--against", "HEAD").splitlines()]
    assert ["gone", "1", "0", "-1"] in rows
    assert ["api", "1", "2", "+1"] in rows
    assert ["aof", "1", "1", "+0"] in rows
    assert ["api", "2"] in [line.split() for line in lines(clone).splitlines()]


def test_the_places_of_the_queue_exist() -> None:
    places = [place for found in tool().QUEUE.values() for place in found]
    assert places and all((ROOT / place).exists() for place in places)
