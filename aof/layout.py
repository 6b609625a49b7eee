"""What must lie under the names of a store's directory: plain files and directories, no links and nothing else.

A disk refuses the rest when it is used (`Disk.guard`). Here it is looked for before anything is used, so that a store
whose `spare` is a link is refused when it is opened and not by a later write; and `tidelog verify` reports whatever
opening refuses. The root itself may be reached through links.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidelog.aof import durable, identity, lock, segment
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.plain import Kind, NotPlain

LMDB_LOCK: Final = "lock.mdb"  # which LMDB puts beside a checkpoint's data
CHECKED: Final = "checked"  # beside a checkpoint's data: which commit was found sound
WORK: Final = "work"  # in snapshots/: the next snapshot in the making
FOLD: Final = "fold"  # in snapshots/: a copy of the checkpoint that the log is folded into

# Each directory stands before what lies in it.
# fmt: off
PLACES: Final[tuple[tuple[str, Kind], ...]] = (
    (identity.NAME,                                   Kind.FILE),
    (identity.NAME + recipe.BESIDE,                   Kind.FILE),
    (identity.RESTORING,                              Kind.FILE),
    (lock.NAME,                                       Kind.FILE),
    (identity.AOF,                                    Kind.DIRECTORY),
    (f"{identity.AOF}/{durable.NAME}",                Kind.FILE),
    (f"{identity.AOF}/{durable.NAME}{recipe.BESIDE}", Kind.FILE),
    (f"{identity.AOF}/{segment.SPARE}",               Kind.FILE),
    (identity.CHECKPOINT,                             Kind.DIRECTORY),
    (f"{identity.CHECKPOINT}/{identity.DATA}",        Kind.FILE),
    (f"{identity.CHECKPOINT}/{identity.DATA}{recipe.BESIDE}", Kind.FILE),
    (f"{identity.CHECKPOINT}/{LMDB_LOCK}",            Kind.FILE),
    (f"{identity.CHECKPOINT}/{CHECKED}",              Kind.FILE),
    (identity.SNAPSHOTS,                              Kind.DIRECTORY),
    (f"{identity.SNAPSHOTS}/{lock.NAME}",             Kind.FILE),
    (f"{identity.SNAPSHOTS}/{WORK}",                  Kind.DIRECTORY),
    (f"{identity.SNAPSHOTS}/{FOLD}",                  Kind.DIRECTORY),
    (identity.QUARANTINE,                             Kind.DIRECTORY),
)
# fmt: on


def misplaced(disk: Disk, root: Path) -> Iterator[NotPlain]:
    """Everything under a name of the store in `root` that does not belong there. Raises OSError."""
    refused: set[str] = set()  # directories that are none: nothing below them is looked at
    missing: set[str] = set()
    for name, wanted in PLACES:
        above = name.rpartition("/")[0]
        if above in refused or above in missing:
            continue
        kind = disk.kind(root / name)
        if kind is None:
            missing.add(name)
        elif kind is not wanted:
            refused.add(name)
            yield NotPlain(root / name, kind, wanted)


def check(disk: Disk, root: Path) -> None:
    """Raise NotPlain, OSError if something does not lie where it belongs. Segments say so when they are opened."""
    for error in misplaced(disk, root):
        raise error


def all_misplaced(disk: Disk, root: Path) -> Iterator[NotPlain]:
    """The same, with the segments. Raises OSError."""
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
