"""A program for a child process, written by this one: a file that may be executed, in a directory of its own.

It belongs to no store. The directory lies with the other temporary files and is removed when this process ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def temporary_program(name: str, text: str) -> Path:
    """Write the program `name` ("bin/java") to a new directory, and return that directory. Raises OSError."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-"))
    atexit.register(_remove, directory, os.getpid())
    program = directory / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o700)
    return directory


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not remove the program of its parent
        shutil.rmtree(directory, ignore_errors=True)
