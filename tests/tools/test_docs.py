"""The Python examples of the documentation run as they stand, each in an empty directory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/guides/embedded.md")


def examples() -> list[tuple[str, int, str]]:
    """(page, line, source) of every Python block."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        for block in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
            found.append((page, text.count("\n", 0, block.start()) + 1, block[1]))
    return found


@pytest.mark.parametrize(
    ("page", "line", "source"), examples(), ids=[f"{page}:{line}" for page, line, _ in examples()]
)
def test_example(page: str, line: int, source: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_first_example_prints_what_its_comments_say(tmp_path: Path) -> None:
    page, _, source = examples()[0]
    assert page == "README.md"
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = re.findall(r"print\(.*# (\w+)", source)
    assert done.stdout.split() == said


def test_every_link_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not lost
