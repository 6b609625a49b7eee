"""Writing: what the programs that generate modules do with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def write(modules: dict[Path, str]) -> None:
    """Write generated modules, with sorted and pruned imports and in the format of the others."""
    for path, text in modules.items():
        path.write_text(text)
        ruff = [sys.executable, "-m", "ruff"]
        subprocess.run([*ruff, "check", "-q", "--fix", "--select", "I,F401", path], check=True)
        subprocess.run([*ruff, "format", "-q", path], check=True)
