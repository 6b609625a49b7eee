"""Sealed: a published snapshot, read with plain reads: without LMDB, without a mapping, and without creating a file.

So it can be read where LMDB cannot: in an object store, in a process with limited address space, and while another
process may shorten the file. Rows that are read in order cost one read per MiB (snapshot/rows/windows.py).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import NewerFormat
from tidelog.aof.identity import DATA
from tidelog.engine.keys.freeze import load_state
from tidelog.engine.keys.state import State
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot.errors import (
    DamagedCheckpoint,
    NewerSnapshot,
    NotASnapshot,
    SnapshotDamaged,
)
from tidelog.snapshot.manifest import Manifest
from tidelog.snapshot.place import LOCAL_READ_BYTES, Place
from tidelog.snapshot.rows import datafile
from tidelog.snapshot.rows.meta import Meta, read_meta
from tidelog.snapshot.rows.rowfile import RowFile
from tidelog.snapshot.rows.windows import Windows

# A worker opens the same snapshot for each of its tasks, and a manifest lists up to 10,000 streams.
_parsed = lru_cache(maxsize=1)(manifests.parse)

META_PAGES_BYTES: Final = 8192  # with pages of 4 KiB, as nearly everywhere


class Sealed(NamedTuple):
    """A snapshot that is open for reading. The caller must `close` it.

    rows   an `engine.cold.ColdStore`; one thread at a time
    """

    place: Place
    manifest: Manifest
    meta: Meta
    rows: RowFile

    def state(self) -> State:
        """The state in the snapshot. Nothing of it is in memory yet."""
        return load_state(self.rows, self.meta.tables)

    def close(self) -> None:
        """Close the place."""
        self.place.close()


def read_manifest(place: Place) -> Manifest:
    """Read a snapshot's manifest and make the quick checks: its name, and the size of its data.

    Raises NotASnapshot, SnapshotDamaged, NewerSnapshot, OSError.
    """
    path = f"{place.name}/{manifests.NAME}"
    try:
        size = place.size(manifests.NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise NotASnapshot(place.name, _absence(place)) from None
    manifests.check_size(path, size)
    manifest = _parsed(path, place.read_at(manifests.NAME, 0, size))
    manifests.check_name(place.name, manifest)
    try:
        data_bytes: int | None = place.size(DATA)
    except FileNotFoundError:
        data_bytes = None
    manifests.check_data(f"{place.name}/{DATA}", data_bytes, manifest)
    return manifest


def _absence(place: Place) -> str:
    try:
        names = place.names()
    except FileNotFoundError:
        return "the directory does not exist"
    except NotADirectoryError:
        return "it is not a directory"
    return manifests.absence(names)


def open_sealed(place: Place, *, sparing: bool = False) -> Sealed:
    """Open the snapshot at a place. The returned object owns the place; it is closed too if this raises.

    Only quick checks are made: the manifest, the size of the data, and that both are of the same store and position.
    Each row is checked when it is read. With `sparing`, no page of the tree is read ahead: for
    a caller that reads little of the file. Raises NotASnapshot, SnapshotDamaged, NewerSnapshot, OSError.
    """
    try:
        return open_place(place, sparing=sparing)
    except BaseException:
        place.close()
        raise


def open_place(place: Place, *, sparing: bool = False) -> Sealed:
    """As `open_sealed`, for a place that the caller closes."""
    manifest = read_manifest(place)
    data = f"{place.name}/{DATA}"
    file = _Data(place, manifest.data_bytes)
    try:
        # The second meta page follows the first, and other rows may lie behind. Neither is the start of a long read.
        file.pread(META_PAGES_BYTES, 0)
        head = datafile.read_head(file)
        file.windows.settle()
        rows = None
        if head is not None:
            read_at = file.windows.read_at
            rows = RowFile(data, read_at, head, peek=file.peek, sparing=sparing)
        meta = None if rows is None else read_meta(rows, file.path)
    except DamagedCheckpoint as error:
        reason = error.reason.removeprefix(f"{data}: ")
        raise SnapshotDamaged(data, f"byte {error.offset}: {reason}") from error
    except NewerFormat as error:
        raise NewerSnapshot(data, error.found, error.known) from error
    if rows is None or meta is None:
        raise SnapshotDamaged(data, "the file contains no rows")
    fault = manifests.disagreement(manifest, meta)
    if fault:
        raise SnapshotDamaged(place.name, fault)
    return Sealed(place, manifest, meta, rows)


class _Data:
    """The data file of a place, as a `datafile.Readable`."""

    def __init__(self, place: Place, size: int) -> None:
        self.path = Path(DATA)
        self.windows = Windows(
            lambda offset, nbytes: place.read_at(DATA, offset, nbytes), size, place.least
        )
        # On an object store each read is a request, and a request for a few bytes takes as long as one for a window.
        self.peek = self._exactly if place.least <= LOCAL_READ_BYTES else None
        self._place = place
        self._size = size

    def _exactly(self, offset: int, nbytes: int) -> bytes:
        return self._place.read_at(DATA, offset, nbytes)

    def size(self) -> int:
        return self._size

    def pread(self, length: int, offset: int) -> bytes:
        return self.windows.read_at(offset, length)
