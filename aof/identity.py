"""STORE: the file that makes a directory a store. Lines of text, written when the store is created.

    tidelog store
    format 1
    uuid 0123456789abcdef0123456789abcdef
    fsync always                               only if a server has created the store
    made 2                                     RECORDS of the version that created the store
    records 3                                  RECORDS of the newest version that opened it to write, if that is newer
    crc32c 89abcdef                            of the lines above, with their line feeds

`fsync always` is the fsync policy of a server that is told none. One without it was created by an earlier version, or
by a program that opened it. A version adds the line `records` when it first opens a store of an earlier one. A store
without `made` comes from version 0.1, which steps over these lines, or got its data from elsewhere: by a restore, a
repair, an import, or as a copy of its leader.

A store's directory (directories 0700, files 0600):

    STORE         this file; created last, so a directory without it was never a store
    LOCK          flock of the writing process, and its pid
    aof/          the segments, DURABLE, and a spare
    checkpoint/   every row as of one LSN; opening the store needs no records of aof/ up to that LSN
    snapshots/    portable copies of checkpoints
    bookmarks/    how far readers of the log in other processes have come
    quarantine/   torn tails that recovery cut from the log, records that a rewind took out of it, stores that a copy
                  of their leader's data has replaced, and everything that a repair in place removed
    resync/       a copy of the leader's data that a follower is fetching
    tidelog.toml  how the store is served (server/config/stored.py); people write it, and it is no part of the data
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import durable, segment
from tidelog.aof.errors import DamagedFile, NotAStore
from tidelog.aof.textfile import TextFile
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

NAME: Final = "STORE"
FORMAT: Final = 1
AOF: Final = "aof"
QUARANTINE: Final = "quarantine"
# exists while a restore into this directory has not finished; there is no STORE yet
RESTORING: Final = "RESTORING"
SWAP: Final = "SWAP"  # exists while another store takes the place of this one (snapshot/swap.py)
CHECKPOINT: Final = "checkpoint"
SNAPSHOTS: Final = "snapshots"
BOOKMARKS: Final = "bookmarks"
RESYNC: Final = "resync"
# How the store is served. It may be there before the store is, and it may be a link.
SETTINGS: Final = "tidelog.toml"
ABOUT: Final = frozenset((SETTINGS, SETTINGS + recipe.BESIDE))
DATA: Final = "data.mdb"  # in a checkpoint and in a snapshot

BYTES_MAX: Final = 64 << 10  # of STORE; a longer one is damaged

# If power fails while a store is created, its directory may contain these names, and no others.
_UNFINISHED: Final = frozenset((NAME + recipe.BESIDE, "LOCK", AOF)) | ABOUT
_UNFINISHED_AOF: Final = frozenset((durable.NAME, durable.NAME + recipe.BESIDE))
_TEXT: Final = TextFile("tidelog store", FORMAT, DamagedFile)
_SERVED: Final = "fsync always"
# Raise it when a version begins to write records that the version before refuses.
RECORDS: Final = 2
_MADE: Final = re.compile(r"(?m)^made ([0-9]{1,9})\n")
_RECORDS: Final = re.compile(r"(?m)^records ([0-9]{1,9})\n")
_LINES: Final = re.compile(r"(?:.*\n)*?uuid ([0-9a-f]{32})\n(?:.*\n)*")


def render(uuid: bytes, *, served: bool = False, new: bool = False) -> bytes:
    """The content of the file. `served`: a server creates the store; `new`: it begins without data from elsewhere."""
    fsync, by = f"{_SERVED}\n" if served else "", "made" if new else "records"
    return _TEXT.render(f"uuid {uuid.hex()}\n{fsync}{by} {RECORDS}\n")


class Identity(NamedTuple):
    """The content of a STORE file.

    uuid      of the store, 16 bytes
    served    a server has created it
    made      RECORDS of the version that created it; 0: it was 0.1, or the data come from elsewhere
    newest    RECORDS of the newest version that opened it to write; 0: 0.1
    lines     those of its own
    """

    uuid: bytes
    served: bool
    made: int
    newest: int
    lines: str

    @property
    def is_earlier(self) -> bool:
        """Whether only versions that know fewer records have opened the store to write."""
        return self.newest < RECORDS


def adopt(disk: Disk, root: Path, found: Identity) -> None:
    """Note in STORE that this version opens a store of an earlier one to write. Raises OSError."""
    kept = _RECORDS.sub("", found.lines)
    recipe.publish(disk, root / NAME, _TEXT.render(f"{kept}records {RECORDS}\n"))


def parse(path: Path, data: bytes) -> Identity:
    """Read the text of a STORE file. Raises NotAStore, DamagedFile, NewerFormat."""
    if not _TEXT.is_named_by(data):
        raise NotAStore(path.parent, f"{path.name} is not a tidelog file, or its start is damaged")
    lines = _TEXT.parse(path, data)
    uuid = _LINES.fullmatch(lines)
    if uuid is None:
        raise DamagedFile(path, 0, _TEXT.malformed)
    made, records = (
        0 if line is None else int(line[1])
        for line in (_MADE.search(lines), _RECORDS.search(lines))
    )
    served = f"\n{_SERVED}\n" in f"\n{lines}"
    return Identity(bytes.fromhex(uuid[1]), served, made, max(made, records), lines)


def read(disk: Disk, root: Path) -> bytes:
    """The uuid of the store in `root`. Raises as `look`."""
    return look(disk, root).uuid


def look(disk: Disk, root: Path) -> Identity:
    """Read STORE of the store in `root`. Raises NotAStore, DamagedFile, NewerFormat, OSError.

    A directory with segments but no valid STORE is a damaged store, which can be repaired. Exception: after an
    unfinished restore or import it is not a store.
    """
    path = root / NAME
    try:
        return parse(path, recipe.read(disk, path, BYTES_MAX))
    except NotAStore:
        if _has_segments(disk, root):
            raise DamagedFile(
                path, 0, f"the file does not begin like a tidelog {NAME} file"
            ) from None
        raise
    except (FileNotFoundError, NotADirectoryError):
        if disk.exists(root / SWAP):
            raise NotAStore(
                root,
                "a copy of its leader's data is taking its place",
                "Nothing is lost. Open the store for writing: that finishes it",
            ) from None
        if disk.exists(root / RESTORING):
            raise NotAStore(
                root,
                "it contains an unfinished restore or import",
                "Run the same command again, or delete the directory",
            ) from None
        if _has_segments(disk, root):
            raise DamagedFile(
                path, 0, f"the file is missing, but {AOF}/ contains segments"
            ) from None
        raise NotAStore(root, _absence(disk, root)) from None


def _has_segments(disk: Disk, root: Path) -> bool:
    try:
        names = disk.listdir(root / AOF)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(segment.first_lsn_of(name) is not None for name in names)


def _absence(disk: Disk, root: Path) -> str:
    """The reason why `root` has no STORE, for the error message."""
    try:
        names = set(disk.listdir(root)) - ABOUT
        return f"it contains no file {NAME}" if names else "it is empty"
    except FileNotFoundError:
        return "the directory does not exist"
    except NotADirectoryError:
        return "it is not a directory"


def is_new(disk: Disk, root: Path) -> bool:
    """Whether a store may be created in `root`: it is missing, empty, or left by an interrupted creation. It
    may say already how the store is to be served.

    Raises NotAStore if `root` is a file.
    """
    if not disk.exists(root):
        return True
    try:
        names = disk.listdir(root)
    except NotADirectoryError:
        raise NotAStore(root, "it is not a directory") from None
    if not _UNFINISHED.issuperset(names):
        return False
    return AOF not in names or _UNFINISHED_AOF.issuperset(disk.listdir(root / AOF))


def create(disk: Disk, root: Path, uuid: bytes, *, served: bool = False, new: bool = False) -> None:
    """Make the existing directory `root` a store with the random `uuid` (16 bytes). The caller holds LOCK.

    served    a server creates it
    new       it begins without data from elsewhere

    DURABLE is created before STORE, so that a store whose aof/ was emptied can be told from a new one.
    """
    assert len(uuid) == 16
    recipe.make_directory(disk, root / AOF)
    recipe.publish(disk, root / AOF / durable.NAME, bytes(durable.FILE_BYTES))
    recipe.publish(disk, root / NAME, render(uuid, served=served, new=new))
