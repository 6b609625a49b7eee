"""The one file that a command writes: refused before the work if it cannot be written, else written as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.tools import exits
from tidelog.tools.failed import Failed


class Exists(Failed):
    """The file to write is there already, or its directory is not."""

    exit_code = exits.SYSTEM


def writable(output: Path, force: bool) -> None:
    """Find out before the work that the file could not be written."""
    there = os.path.lexists(output)  # a link that leads nowhere is somebody's too
    if there and force and not output.is_file():
        raise Exists(f"{output} is not a plain file, so it is not replaced; give another name")
    if there and not force:
        raise Exists(f"{output} exists already; give another name, or --force to replace it")
    if not output.parent.is_dir():
        raise Exists(f"{output}: its directory does not exist")


def publish(output: Path, data: bytes) -> None:
    """Write the file whole or not at all."""
    beside = output.with_name(output.name + ".new")
    try:
        beside.write_bytes(data)
        os.replace(beside, output)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
