"""Version 0.1, installed as a user has it: from a wheel, in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest
from tests.cache import place_of

ROOT: Final = Path(__file__).parents[3]
COMMIT: Final = "5d94fe29"  # the last one of version 0.1


def checked() -> None:
    """Fail the test if this clone does not have the commit."""
    if subprocess.run(["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"], cwd=ROOT).returncode:
        pytest.fail(
            f"this clone has no commit {COMMIT}: git fetch --unshallow, or git fetch origin {COMMIT}",
            pytrace=False,
        )


def earlier() -> Path:
    """Its Python. Installed once, outside of the repository."""
    python = "bin/python"
    with place_of(f"tidelog-{COMMIT}-{sys.version_info[0]}.{sys.version_info[1]}") as (
        place,
        missing,
    ):
        if missing:
            checked()
            source, own = place / "source", place / "own"
            source.mkdir(exist_ok=True)
            packed = subprocess.run(
                ["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=True
            )
            subprocess.run(["tar", "-x"], cwd=source, input=packed.stdout, check=True)
            venv.create(own, clear=True, with_pip=True)
            done = subprocess.run(
                [own / python, "-m", "pip", "install", "--quiet", source], capture_output=True, text=True
            )  # fmt: skip
            if done.returncode:
                pytest.fail(
                    f"pip cannot install version 0.1 into {own}:\n{done.stderr}", pytrace=False
                )
    return place / "own" / python
