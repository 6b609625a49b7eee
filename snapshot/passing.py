"""Passing snapshots: those that a leader made for followers. The file snapshots/FOLLOWERS names them.

    tidelog followers' snapshots
    format 1
    snapshot 00000000000000004711              the name of its directory; one line for each, sorted
    crc32c 89abcdef                            of the lines above, with their line feeds

A snapshot in this list belongs to the links of the server that made it, and goes with the last of them. All others
belong to the store. The name is in the list before the directory has it, and leaves it after the directory is gone, so
no power cut leaves a snapshot without an owner. A name without a directory means nothing. When a store is opened for
writing, no link lives any more, and the snapshots in the list are deleted.

A list that cannot be read names none: then snapshots stay that could go.

The holder of the lock of snapshots/ changes the file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tidelog.aof.errors import Damage, NewerFormat
from tidelog.aof.layout import FOLLOWERS
from tidelog.aof.textfile import TextFile
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

BYTES_MAX: Final = 1 << 20

_TEXT: Final = TextFile("tidelog followers' snapshots", 1)
_LINES: Final = re.compile(r"(?:snapshot [0-9]{20}\n)*")

_logger = logging.getLogger("tidelog")


def names(disk: Disk, directory: Path) -> frozenset[str]:
    """The names in the list of `directory`, the folder snapshots/ of a store. Raises OSError."""
    path = directory / FOLLOWERS
    if not disk.exists(path):
        return frozenset()
    try:
        lines = _TEXT.parse(path, recipe.read(disk, path, BYTES_MAX))
        if _LINES.fullmatch(lines) is None:
            raise Damage(path, 0, "the lines do not name snapshots")
    except FileNotFoundError:
        return frozenset()
    except (Damage, NewerFormat) as error:
        _logger.warning("%s; the snapshots that it names stay until you delete them", error)
        return frozenset()
    return frozenset(line.split()[1] for line in lines.splitlines())


def add(disk: Disk, directory: Path, path: Path) -> None:
    """The snapshot that is about to get the name `path` is for followers, durably. Raises OSError."""
    _write(disk, directory, names(disk, directory) | {path.name})


def take(disk: Disk, directory: Path, path: Path) -> None:
    """The snapshot at `path` belongs to the store from now on, or is gone; durably. Raises OSError."""
    found = names(disk, directory)
    if path.name in found:
        _write(disk, directory, found - {path.name})


def _write(disk: Disk, directory: Path, found: Collection[str]) -> None:
    if found:
        lines = "".join(f"snapshot {name}\n" for name in sorted(found))
        recipe.publish(disk, directory / FOLLOWERS, _TEXT.render(lines))
    else:
        recipe.remove(disk, directory / FOLLOWERS)
