"""The files of a damaged store, as a repair reads them: with the headers and names that they must have had.

Nothing on the disk is changed for that (tools/repair/in_place.py does it, if asked).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from tidelog.aof import durable, identity, lock
from tidelog.aof.durable import Promise
from tidelog.aof.errors import AofError, DamagedFile, MissingSegment, NewerFormat
from tidelog.aof.reading.reader import read_header
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows.meta import Meta
from tidelog.tools.logfiles import Header, LogFiles
from tidelog.tools.repair.mend import Mend, mends


class MendedFiles(LogFiles):
    """The files of a store of which anything may be damaged.

    store    what is wrong with the file STORE; None if it is sound. `uuid` is then that of the other files
    mends    what was mended in the log; known after `headers` was called

    Raises as LogFiles does, and what that raises for STORE if no other file tells the uuid.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        disk = RealDisk() if disk is None else disk
        root = _above_aof(disk, root)
        self.store: DamagedFile | None = None
        self.mends: list[Mend] = []
        try:
            super().__init__(root, disk=disk)
        except DamagedFile as error:
            super().__init__(root, uuid=b"", disk=disk)
            found = uuids(self)
            if not found:
                raise
            self.uuid, self.store = found.most_common(1)[0][0], error
        else:
            found = uuids(self)
            mine = durable.read(disk, self.directory, self.uuid)
            if len(found) == 1 and self.uuid not in found and not mine:
                (uuid,) = found
                path = self.root / identity.NAME
                reason = f"the file names the store {self.uuid.hex()}, but all other files belong to {uuid.hex()}"
                self.uuid, self.store = uuid, DamagedFile(path, 0, reason)
        self._headers: tuple[list[Promise], list[Header]] | None = None

    def paths(self) -> list[Path]:
        """As of LogFiles; none if the directory is missing."""
        try:
            return super().paths()
        except MissingSegment:
            return []

    def headers(self) -> tuple[list[Promise], list[Header]]:
        """As of LogFiles, mended. They are read once."""
        if self._headers is None:
            promises, found = super().headers()
            meta = self.meta
            found, self.mends = mends(self, found, None if meta is None else meta.start)
            self._headers = promises, found
        return self._headers

    @cached_property
    def meta(self) -> Meta | None:
        """The row META of the checkpoint; None if it cannot be read or there is none. Raises OSError."""
        try:
            with self.opened_checkpoint() as opened:
                return opened.meta
        except (AofError, FileNotFoundError):
            return None

    @contextmanager
    def still(self) -> Iterator[None]:
        """As of LogFiles. Reads everything again, also what the constructor read."""
        with super().still():
            self._headers, self.mends = None, []
            self.__dict__.pop("meta", None)
            yield


def _above_aof(disk: Disk, root: Path) -> Path:
    """The store's directory for the path of its aof/, also if STORE is gone."""
    if root.name != identity.AOF or disk.exists(root / identity.NAME):
        return root
    marks = (root.parent / identity.CHECKPOINT, root.parent / lock.NAME)
    return root.parent if any(disk.exists(mark) for mark in marks) else root


def uuids(files: MendedFiles) -> Counter[bytes]:
    """How many segments, and the checkpoint, belong to which store. Raises OSError."""
    found: Counter[bytes] = Counter()
    for path in files.paths():
        try:
            found[read_header(files.disk, path).uuid] += 1
        except (DamagedFile, NewerFormat, FileNotFoundError):  # or a writer released it meanwhile
            continue
    if files.meta is not None:
        found[files.meta.uuid] += 1
    return found
