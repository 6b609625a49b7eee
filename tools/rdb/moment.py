"""The state of a store as of an LSN: a checkpoint, a snapshot or LSN 1, and the log from there on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidelog.aof import identity
from tidelog.aof.start import Start
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import State
from tidelog.snapshot.portable import Snapshot, snapshots
from tidelog.snapshot.rows.opened import open_copy
from tidelog.snapshot.tail import Bound, follow, last_bytes
from tidelog.tools import console, exits
from tidelog.tools.failed import Failed
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.replay import Contents, contents


class NoSuchMoment(Failed):
    """Neither the log nor a checkpoint reaches the LSN."""

    exit_code = exits.REFUSED


@contextmanager
def contents_at(files: LogFiles, lsn: int | None) -> Iterator[Contents]:
    """The state after the last unit that ends at or before `lsn`; after the last record if it is None.

    Nothing is written, and cold rows stay cold. Raises as `contents`, and NoSuchMoment.
    """
    if lsn is None:
        with contents(files) as newest:
            yield newest
        return
    with ExitStack() as stack:
        state, start = State(), Start(0, 0, 0, 0, 0)
        base = _base(files, lsn)
        if base is not None:
            opened = open_copy(files.disk, base)
            stack.callback(opened.close)
            state, start = opened.state(), opened.meta.start
        reached, now = start.lsn, start.now
        if reached < lsn and files.snapshot is None:
            with console.progress(
                "replaying", last_bytes(files.disk, files.directory, files.uuid, start), size=True
            ) as advance:
                tail = follow(
                    *(files.disk, files.directory, files.uuid, start, applier(state)),
                    *(Bound(lsn), advance),
                )
            reached, now = tail.position.lsn, tail.now
            if reached < lsn and not tail.bound:
                raise NoSuchMoment(
                    f"the log of {files.root} ends with LSN {reached}, before LSN {lsn}; choose an LSN up to {reached}"
                )
        elif reached != lsn:
            raise NoSuchMoment(
                f"{files.root} is a snapshot of LSN {reached}, and has no log behind it"
            )
        yield Contents(state, reached, now, start.lsn)


def _base(files: LogFiles, lsn: int) -> Path | None:
    """The folder of the newest checkpoint or snapshot at or before `lsn`; None to begin with LSN 1."""
    bases: list[tuple[int, Path]] = []
    if files.has_checkpoint:
        folder = files.checkpoint.parent
        opened = open_copy(files.disk, folder)
        try:
            bases.append((opened.meta.position.lsn, folder))
        finally:
            opened.close()
    kept = files.root / identity.SNAPSHOTS
    if files.snapshot is None and files.disk.exists(kept):
        for found in snapshots(files.disk, kept):
            if isinstance(found, Snapshot) and found.manifest.uuid == files.uuid:
                bases.append((found.lsn, found.path))
    log = files.survey()[1]
    first = log[0].header.first_lsn if log else 1
    usable = [base for base in bases if base[0] <= lsn and base[0] + 1 >= first]
    if usable:
        return max(usable)[1]
    if first == 1 and files.snapshot is None:
        return None
    oldest = min((base[0] for base in bases if base[0] + 1 >= first), default=None)
    told = "" if oldest is None else f"; the oldest moment that can be had is LSN {oldest}"
    raise NoSuchMoment(f"the log of {files.root} up to LSN {first - 1} was released{told}")
