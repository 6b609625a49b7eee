"""Bases: the states from which the log can be followed. LSN 1, the kept snapshots, and the checkpoint.

A base and the log behind it give the state at every later moment, as long as the log has what follows the base.
Nothing is written; rows of a base are read when they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import identity
from tidelog.aof.errors import AofError
from tidelog.aof.segment import HEADER_BYTES
from tidelog.aof.start import Start
from tidelog.engine.keys.state import State
from tidelog.snapshot.portable import Snapshot, open_snapshot, snapshots
from tidelog.tools.logfiles import LogFiles

BEGINNING: Final = Start(0, 0, 1, HEADER_BYTES, 0)


class Base(NamedTuple):
    """A state that is there as a whole.

    start    where the log continues
    folder   the directory of its data.mdb; None: the empty state before LSN 1
    name     for messages
    """

    start: Start
    folder: Path | None
    name: str
    is_snapshot: bool = False


def bases(files: LogFiles) -> list[Base]:
    """Every base that opens, in the order of the LSN; among equals the snapshot first, the checkpoint last.

    A checkpoint of another store is none. Raises MissingSegment if aof/ is missing; NewerFormat, OSError.
    """
    found: list[Base] = []
    if files.snapshot is not None:
        return [_of_snapshot(files.snapshot)]
    headers = files.headers()[1]
    if not headers or headers[0].first_lsn == 1:
        found.append(Base(BEGINNING, None, "the beginning of the log"))
    if files.disk.exists(files.root / identity.SNAPSHOTS):
        for item in snapshots(files.disk, files.root / identity.SNAPSHOTS):
            if isinstance(item, Snapshot) and item.manifest.uuid == files.uuid:
                found.append(_of_snapshot(item))
    base = checkpoint(files)
    if base is not None:
        found.append(base)
    return sorted(found, key=lambda base: base.start.lsn)


def checkpoint(files: LogFiles) -> Base | None:
    """The checkpoint of the store; None if there is none, it cannot be opened, or it is another store's."""
    if not files.has_checkpoint:
        return None
    try:
        with files.opened_checkpoint() as opened:
            if opened.meta.uuid != files.uuid:
                return None
            return Base(opened.meta.start, files.checkpoint.parent, "the checkpoint")
    except (AofError, FileNotFoundError):
        return None


def _of_snapshot(snapshot: Snapshot) -> Base:
    return Base(snapshot.manifest.start, snapshot.path, f"snapshot {snapshot.path.name}", True)


@contextmanager
def state_of(files: LogFiles, base: Base) -> Iterator[tuple[State, Start]]:
    """The state of a base and where the log continues. It may be used inside the block only.

    A checkpoint may be newer than when the base was listed, unless the files stand still. Raises AofError, OSError.
    """
    if base.folder is None:
        yield State(), base.start
        return
    if not base.is_snapshot:
        with files.opened_checkpoint() as opened:
            yield opened.state(), opened.meta.start
        return
    with closing(open_snapshot(files.disk, base.folder)) as opened:
        yield opened.state(), opened.meta.start
