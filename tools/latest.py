"""Latest: the name that stands for the newest snapshot of a folder, as in orders-data/snapshots/latest.

A snapshot that cannot be read is not passed over: the newest one is then an error, and an older one has to be named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.aof import identity
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.snapshot.errors import NotASnapshot
from tidelog.snapshot.place import is_url, local
from tidelog.snapshot.portable import directory_name, newest_lsn

LATEST: Final = "latest"


def newest(disk: Disk, path: Path) -> Path:
    """The path of the newest snapshot if `path` ends with `latest` and is not there; else `path`.

    Raises NotASnapshot if a store's folder snapshots/ holds none; OSError.
    """
    if path.name != LATEST or disk.exists(path):
        return path
    lsn = newest_lsn(disk, path.parent)
    if lsn is not None:
        return path.parent / directory_name(lsn)
    if path.parent.name == identity.SNAPSHOTS:
        raise NotASnapshot(path, f"{path.parent} holds no snapshots")
    return path


def named(place: str) -> str:
    """As `newest`, for a path or a URL. A URL of an object store is returned as it is."""
    if is_url(place):
        return place
    path = local(place)
    found = newest(RealDisk(), path)
    return place if found is path else str(found)
