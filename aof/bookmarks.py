"""Bookmarks: how far readers of the log have come, so that the writer keeps what they have not read.

A reader in another process writes `bookmarks/NAME` in the store's directory. The writer only reads it. It is five lines
of ASCII text, each ended by a line feed:

    tidelog bookmark
    format 1
    uuid 0123456789abcdef0123456789abcdef
    lsn 4711                                 the reader needs the records behind it
    crc32c 89abcdef                          of the lines above, with their line feeds

A file that is damaged or another store's keeps nothing. Deleting one gives up the records behind it. A reader sets its
bookmark only behind records that it has done with for good, so an older value is never wrong: it keeps more.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import identity
from tidelog.aof.errors import Damage, NewerFormat
from tidelog.aof.textfile import TextFile
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.plain import NotPlain

BYTES_MAX: Final = 4096
KEEP_BYTES: Final = 1 << 30  # the default of retain_bookmark_bytes

_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_TEXT: Final = TextFile("tidelog bookmark", 1)
_LINES: Final = r"uuid ([0-9a-f]{32})\nlsn ([0-9]{1,20})\n"


class Bookmark(NamedTuple):
    """A reader's bookmark: it needs the records behind `lsn`."""

    name: str
    lsn: int


class Unusable(NamedTuple):
    """A file that has the name of a bookmark, and keeps nothing."""

    name: str
    why: str


def is_name(name: str) -> bool:
    """Whether a bookmark may have this name."""
    return bool(re.fullmatch(_NAME, name)) and not name.endswith(recipe.BESIDE)


def put(disk: Disk, root: Path, uuid: bytes, bookmark: Bookmark) -> None:
    """Set a bookmark in the store in `root`, durably. Raises OSError."""
    assert is_name(bookmark.name)
    directory = root / identity.BOOKMARKS
    recipe.make_directory(disk, directory)
    text = _TEXT.render(f"uuid {uuid.hex()}\nlsn {bookmark.lsn}\n")
    recipe.publish(disk, directory / bookmark.name, text)


def bookmarks(disk: Disk, root: Path, uuid: bytes) -> tuple[list[Bookmark], list[Unusable]]:
    """The bookmarks of the store in `root`, by name, and the files that are none. Raises OSError."""
    directory = root / identity.BOOKMARKS
    found: list[Bookmark] = []
    unusable: list[Unusable] = []
    if not disk.exists(directory):
        return found, unusable
    for name in filter(is_name, disk.listdir(directory)):
        try:
            path = directory / name
            lsn = _lsn_of(path, recipe.read(disk, path, BYTES_MAX + 1), uuid)
        except FileNotFoundError:
            continue  # deleted meanwhile
        except NotPlain as error:
            lsn = error.what
        if isinstance(lsn, int):
            found.append(Bookmark(name, lsn))
        else:
            unusable.append(Unusable(name, lsn))
    return found, unusable


def _lsn_of(path: Path, data: bytes, uuid: bytes) -> int | str:
    """The LSN, or why there is none."""
    try:
        lines = re.fullmatch(_LINES, _TEXT.parse(path, data))
    except (Damage, NewerFormat):
        lines = None
    if lines is None:
        return "the file is damaged"
    return int(lines[2]) if lines[1] == uuid.hex() else f"it belongs to the store {lines[1]}"
