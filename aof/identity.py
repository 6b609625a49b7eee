"""STORE: what makes a directory a store. Four lines of text, written once when the store is created.

    tidelog store
    format 1
    uuid 0123456789abcdef0123456789abcdef
    crc32c 89abcdef                            of the three lines above, with their line feeds

A store's directory, 0700, files 0600:

    STORE         this file; created last, so a directory without it was never a store
    LOCK          flock of the writing process, and its pid
    aof/          the segments, DURABLE, and a spare
    quarantine/   torn tails that recovery took out of the log
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tidelog.aof.errors import DamagedFile, NewerFormat, NotAStore
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.engine.crc32c import crc32c_of

NAME: Final = "STORE"
FORMAT: Final = 1
AOF: Final = "aof"
QUARANTINE: Final = "quarantine"

# What a creation that lost power may leave behind.
_UNFINISHED: Final = frozenset((NAME + recipe.BESIDE, "LOCK", AOF))
_FIRST_LINE: Final = b"tidelog store\n"
_LINES: Final = re.compile(
    rb"tidelog store\nformat ([1-9][0-9]{0,8})\n(?:.*\n)*?uuid ([0-9a-f]{32})\n"
    rb"(?:.*\n)*?crc32c ([0-9a-f]{8})\n"
)


def render(uuid: bytes) -> bytes:
    text = b"%sformat %d\nuuid %s\n" % (_FIRST_LINE, FORMAT, uuid.hex().encode())
    return text + b"crc32c %08x\n" % crc32c_of(text)


def parse(path: Path, data: bytes) -> bytes:
    """The uuid in the text of a STORE file. Raises NotAStore, DamagedFile, NewerFormat."""
    match = _LINES.fullmatch(data)
    if match is None:
        if data.startswith(_FIRST_LINE):
            raise DamagedFile(path, 0, "the file is not whole")
        raise NotAStore(path.parent, f"{path.name} is not a tidelog file, or its start is damaged")
    if int(match[3], 16) != crc32c_of(data[: match.start(3) - len(b"crc32c ")]):
        raise DamagedFile(path, 0, "the text does not match its checksum")
    if int(match[1]) > FORMAT:
        raise NewerFormat(path, int(match[1]), FORMAT)
    return bytes.fromhex(match[2].decode())


def read(disk: Disk, root: Path) -> bytes:
    """The uuid of the store in `root`. Raises NotAStore, DamagedFile, NewerFormat, OSError."""
    path = root / NAME
    try:
        data = recipe.read(disk, path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotAStore(root, f"there is no file {NAME}") from None
    return parse(path, data)


def is_new(disk: Disk, root: Path) -> bool:
    """May a store be created in `root`? It may in an empty or missing directory, and where a creation
    was interrupted."""
    if not disk.exists(root):
        return True
    names = disk.listdir(root)
    if not _UNFINISHED.issuperset(names):
        return False
    return AOF not in names or not disk.listdir(root / AOF)


def create(disk: Disk, root: Path, uuid: bytes) -> None:
    """Make `root`, which exists, a store with the random `uuid` (16 bytes). The lock is held."""
    assert len(uuid) == 16
    recipe.make_directory(disk, root / AOF)
    recipe.publish(disk, root / NAME, render(uuid))
