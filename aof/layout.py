"""Checks that every name in a store's directory is a plain file or a directory, and not a link or anything else.

The settings by which a store is served (tidelog.toml) are the one name that may be a link.

The disk refuses other kinds when they are used (`Disk.guard`). This check runs before the store is opened, so that
a store whose `spare` is a link is refused at open and not by a later write. `tidelog verify` reports everything that
opening refuses. The path to the root itself may contain links.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidelog.aof import durable, identity, lock, segment
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.plain import Kind, NotPlain

REPLICA: Final = "REPLICA"  # whether the store leads or follows (store/role.py)
SHARED: Final = (
    "serve.sock"  # the socket of the server of this store; the one name that is no plain file
)
SHARED_LOG: Final = "serve.log"  # messages of a server that a client started
LMDB_LOCK: Final = "lock.mdb"  # LMDB creates it beside a checkpoint's data
# beside a checkpoint's data: names the commit whose structure a check found sound
CHECKED: Final = "checked"
WORK: Final = "work"  # in snapshots/: the snapshot being made
FOLD: Final = "fold"  # in snapshots/: a copy of the checkpoint, into which the log is folded
FOLLOWERS: Final = "FOLLOWERS"  # in snapshots/: which were made for followers (snapshot/passing.py)

# Each directory comes before its contents.
# fmt: off
PLACES: Final[tuple[tuple[str, Kind], ...]] = (
    (identity.NAME,                                   Kind.FILE),
    (identity.NAME + recipe.BESIDE,                   Kind.FILE),
    (REPLICA,                                         Kind.FILE),
    (REPLICA + recipe.BESIDE,                         Kind.FILE),
    (identity.SWAP,                                   Kind.FILE),
    (identity.SWAP + recipe.BESIDE,                   Kind.FILE),
    (identity.RESTORING,                              Kind.FILE),
    (lock.NAME,                                       Kind.FILE),
    (SHARED_LOG,                                      Kind.FILE),
    (identity.SETTINGS,                               Kind.FILE),
    (identity.SETTINGS + recipe.BESIDE,               Kind.FILE),
    (identity.AOF,                                    Kind.DIRECTORY),
    (f"{identity.AOF}/{durable.NAME}",                Kind.FILE),
    (f"{identity.AOF}/{durable.NAME}{recipe.BESIDE}", Kind.FILE),
    (f"{identity.AOF}/{segment.SPARE}",               Kind.FILE),
    (identity.CHECKPOINT,                             Kind.DIRECTORY),
    (f"{identity.CHECKPOINT}/{identity.DATA}",        Kind.FILE),
    (f"{identity.CHECKPOINT}/{identity.DATA}{recipe.BESIDE}", Kind.FILE),
    (f"{identity.CHECKPOINT}/{LMDB_LOCK}",            Kind.FILE),
    (f"{identity.CHECKPOINT}/{LMDB_LOCK}{recipe.BESIDE}", Kind.FILE),
    (f"{identity.CHECKPOINT}/{CHECKED}",              Kind.FILE),
    (identity.SNAPSHOTS,                              Kind.DIRECTORY),
    (f"{identity.SNAPSHOTS}/{lock.NAME}",             Kind.FILE),
    (f"{identity.SNAPSHOTS}/{FOLLOWERS}",             Kind.FILE),
    (f"{identity.SNAPSHOTS}/{FOLLOWERS}{recipe.BESIDE}", Kind.FILE),
    (f"{identity.SNAPSHOTS}/{WORK}",                  Kind.DIRECTORY),
    (f"{identity.SNAPSHOTS}/{FOLD}",                  Kind.DIRECTORY),
    (identity.BOOKMARKS,                              Kind.DIRECTORY),
    (identity.QUARANTINE,                             Kind.DIRECTORY),
    (identity.RESYNC,                                 Kind.DIRECTORY),
)
# fmt: on
# A mounted secret is a link. Only the reader of the settings follows it, and a store never writes through it.
LINKS: Final = frozenset((identity.SETTINGS,))


def misplaced(disk: Disk, root: Path) -> Iterator[NotPlain]:
    """A NotPlain for each name of the store in `root` that has the wrong kind. Raises OSError."""
    try:
        # Most of the names are seldom there, and one listing costs less than a question for each.
        present = set(disk.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, wanted in PLACES:
        if name.partition("/")[0] not in present:
            continue
        kind = disk.kind(root / name)
        if kind is Kind.LINK and name in LINKS:
            continue
        if kind not in (None, wanted):
            present.discard(name)  # what is below it is not checked
            yield NotPlain(root / name, kind, wanted)


def check(disk: Disk, root: Path) -> None:
    """Raise NotPlain for the first name of the wrong kind; OSError. Segments are checked when they are opened."""
    for error in misplaced(disk, root):
        raise error


def all_misplaced(disk: Disk, root: Path) -> Iterator[NotPlain]:
    """As `misplaced`, with the segments. Raises OSError."""
    yield from misplaced(disk, root)
    directory = root / identity.AOF
    if disk.kind(directory) is not Kind.DIRECTORY:
        return
    for name in disk.listdir(directory):
        if segment.first_lsn_of(name) is None:
            continue
        kind = disk.kind(directory / name)
        if kind not in (None, Kind.FILE):
            yield NotPlain(directory / name, kind, Kind.FILE)
