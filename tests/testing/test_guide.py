"""The examples of the guide on testing are files that pytest runs as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = "tidelog.testing.plugin"


def run_pytest(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    # Of the plugins that are installed only those that the arguments need: all of them take half a second to load.
    plugins = ("-p", PLUGIN, *(("-p", "xdist.plugin") if "-n" in args else ()))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *plugins, *args],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip


def test_pytest_loads_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tidelog": PLUGIN}


def test_an_acknowledgement_before_the_work_is_found(tmp_path: Path) -> None:
    """The example of the guide with its two lines exchanged fails as the guide says; as it stands it passes."""
    text = (ROOT / "docs/guides/testing.md").read_text()
    blocks = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.M | re.S))
    work, told = "            shop.place_order(db, number)\n", r"            told\(number\).*\n"
    wrong, changed = re.subn(f"{re.escape(work)}({told})", rf"\1{work}", blocks["test_shop.py"])
    assert changed == 1
    (tmp_path / "shop.py").write_text(blocks["shop.py"])
    (tmp_path / "test_shop.py").write_text(wrong)
    (tmp_path / "test_mended.py").write_text(blocks["test_shop.py"])
    done = run_pytest(tmp_path, "--crash-seed", "5")
    assert re.search("^1 failed, 1 passed in", done.stdout, re.M), done.stdout + done.stderr
    (line,) = [n for n, each in enumerate(wrong.splitlines(), 1) if "told(number)" in each]
    assert f"after test_shop.py:{line}: told(number)" in done.stdout
    assert "told by then: 0\n" in done.stdout
    assert "--crash-seed 5" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value"),
    [("--crash-states", "0"), ("--crash-timeout", "0"), ("--crash-timeout", "nan")],
)
def test_bad_options(tmp_path: Path, option: str, value: str) -> None:
    done = run_pytest(tmp_path, option, value)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert option in done.stderr


def test_the_examples_pass(tmp_path: Path) -> None:
    text = (ROOT / "docs/guides/testing.md").read_text()
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) == text.count("```python") == len(dict(blocks)) > 0
    for name, source in blocks:
        (tmp_path / name).write_text(source)
    tests = sum(source.count("def test_") for _, source in blocks)
    done = run_pytest(tmp_path, "--crash-states", "5")
    assert re.search(rf"^{tests} passed in", done.stdout, re.M), done.stdout + done.stderr
