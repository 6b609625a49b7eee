"""The examples of the guide on testing are files that pytest runs as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_examples_pass(tmp_path: Path) -> None:
    text = (ROOT / "docs/guides/testing.md").read_text()
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) == text.count("```python") == len(dict(blocks)) > 0
    for name, source in blocks:
        (tmp_path / name).write_text(source)
    tests = sum(source.count("def test_") for _, source in blocks)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert re.search(rf"^{tests} passed in", done.stdout, re.M), done.stdout + done.stderr
