"""Still: the checkpoint and the log of a store as of one moment, for readers beside its writer.

The writer makes checkpoints and then removes segments, so a reader that looks at one and then at the other may find a
gap between them that never was on the disk. Here a read transaction holds the checkpoint, and open files hold the log:
the segments lead from the checkpoint, or from an earlier place, to the end of the log at that moment or later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import durable, identity, segment
from tidelog.aof.errors import AofError
from tidelog.disk.interface import Disk
from tidelog.disk.still import stilled
from tidelog.snapshot.rows.opened import Opened, open_copy

_ATTEMPTS: Final = 100


class Still(NamedTuple):
    """The store as of one moment.

    disk     the disk, on which the log does
    opened   the checkpoint; None if there is none, or it cannot be opened
    fault    why it cannot be opened
    """

    disk: Disk
    opened: Opened | None
    fault: AofError | None


@contextmanager
def still(disk: Disk, root: Path, directory: Path | None = None) -> Iterator[Still]:
    """Hold the store in `root` inside the block, which only reads. `directory`: that of its log, default aof/.

    Damage is not looked for: what is damaged is held as it is. Raises OSError.
    """
    directory = root / identity.AOF if directory is None else directory
    with ExitStack() as stack:
        for _ in range(_ATTEMPTS):
            stack.close()
            opened, fault = _checkpoint(disk, root)
            if opened is not None:
                stack.callback(opened.close)
            kept = (durable.NAME,)
            log = stack.enter_context(
                stilled(disk, directory, kept=kept, nbytes=durable.FILE_BYTES)
            )
            if _continues(log, directory, opened) or _number(disk, root) == _number_of(opened):
                break  # else the writer has released segments for a checkpoint made since
        yield Still(log, opened, fault)


def _continues(log: Disk, directory: Path, opened: Opened | None) -> bool:
    try:
        names = log.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    lsns = [lsn for name in names if (lsn := segment.first_lsn_of(name)) is not None]
    return min(lsns, default=1) <= (0 if opened is None else opened.meta.start.lsn) + 1


def _checkpoint(disk: Disk, root: Path) -> tuple[Opened | None, AofError | None]:
    if not disk.exists(root / identity.CHECKPOINT / identity.DATA):
        return None, None
    try:
        return open_copy(disk, root / identity.CHECKPOINT), None
    except FileNotFoundError:  # nothing was committed to it yet
        return None, None
    except AofError as error:
        return None, error


def _number(disk: Disk, root: Path) -> int | None:
    opened, _ = _checkpoint(disk, root)
    if opened is None:
        return None
    try:
        return _number_of(opened)
    finally:
        opened.close()


def _number_of(opened: Opened | None) -> int | None:
    return None if opened is None else opened.rows.number()
