"""Snapshots: which snapshots the paths of a read mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from tidelog.aof import identity
from tidelog.aof.errors import AofError
from tidelog.disk.real import RealDisk
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot.beside import create_beside
from tidelog.snapshot.place import is_url, local, place_of
from tidelog.snapshot.portable import Snapshot, Unreadable, snapshots
from tidelog.snapshot.sealed import Sealed, open_sealed
from tidelog.spark.errors import TidelogSparkError

SNAPSHOT: Final = "TIDELOG_SNAPSHOT"
DAMAGED: Final = "TIDELOG_DAMAGED"
IO: Final = "TIDELOG_IO"


def resolve(paths: tuple[str, ...], which: str) -> tuple[str, ...]:
    """The paths of the snapshots to read. `paths` are snapshots or stores; `which` chooses among a store's.

    which   "latest", "all", "now" (make one) or an LSN
    Raises TidelogSparkError.
    """
    found = [each for path in paths for each in _resolve(path, which)]
    twice = sorted({path for path in found if found.count(path) > 1})
    if twice:
        raise TidelogSparkError(SNAPSHOT, f"{twice[0]} is named twice")
    return tuple(found)


def _resolve(path: str, which: str) -> list[str]:
    if is_url(path):
        return [path]
    disk, root = RealDisk(), local(path).absolute()
    with telling(path):
        if not disk.exists(root / identity.NAME):
            if not disk.exists(root / manifests.NAME):
                raise TidelogSparkError(SNAPSHOT, f"{path} is neither a store nor a snapshot")
            return [str(root)]
        if which == "now":
            return [str(create_beside(disk, root).path)]
        folder = root / identity.SNAPSHOTS
        listed = snapshots(disk, folder)
        if which.isdigit():
            for each in listed:
                if not isinstance(each, Unreadable) and each.lsn == int(which):
                    return [str(each.path)]
            raise TidelogSparkError(
                SNAPSHOT, f"{path} has no snapshot of LSN {which}; {_others(listed)}"
            )
        whole = [str(each.path) for each in listed if not isinstance(each, Unreadable)]
        if not whole:
            raise TidelogSparkError(
                SNAPSHOT,
                f"{path} is a store without a readable snapshot ({_others(listed)}). Make one with `tidelog snapshot "
                f"create {path}`, or set the option snapshot=now",
            )
        if which == "all":
            return whole
        newest = listed[-1]
        if isinstance(newest, Unreadable):
            raise TidelogSparkError(DAMAGED, f"the newest snapshot cannot be read: {newest.error}")
        return whole[-1:]


def _others(listed: Sequence[Snapshot | Unreadable]) -> str:
    if not listed:
        return "it has none"
    return f"it has {', '.join(each.path.name.lstrip('0') or '0' for each in listed)}"


@contextmanager
def opened(path: str, *, sparing: bool = False) -> Iterator[Sealed]:
    """Open a snapshot and hold it, so that it is not pruned meanwhile. Raises TidelogSparkError.

    sparing   little of it will be read
    """
    with telling(path):
        place = place_of(path)
        with place.hold():
            sealed = open_sealed(place, sparing=sparing)
            try:
                yield sealed
            finally:
                sealed.close()


@contextmanager
def telling(path: str) -> Iterator[None]:
    """Raise the errors of reading a snapshot as TidelogSparkError, whose text survives the way through Spark."""
    path = shown(path)
    try:
        yield
    except CorruptBlock as error:
        text = str(error)
        raise TidelogSparkError(DAMAGED, text if path in text else f"{path}: {text}") from error
    except AofError as error:
        raise TidelogSparkError(SNAPSHOT, str(error)) from error
    except OSError as error:
        raise TidelogSparkError(IO, f"{path}: {error.strerror or error}") from error


def shown(path: str) -> str:
    """A path, or a URL without credentials and options."""
    if "://" not in path:
        return path
    parts = urlsplit(path)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
