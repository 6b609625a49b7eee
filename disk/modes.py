"""Modes: who besides the owner may look into a directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def open_to_others(path: Path) -> int:
    """The permission bits of the group and of others; 0 if only the owner may read. Raises OSError."""
    return stat.S_IMODE(os.stat(path).st_mode) & 0o077
