"""Keepers: everything besides the checkpoint and retention that keeps segments of the log, in one table.

kind        needs the log behind            at most
snapshot    the oldest kept snapshot        any number of bytes: `keep_snapshots` limits them
bookmark    what its reader has committed   `retain_bookmark_bytes` of log; a bookmark further behind is void
follower    what it has fsynced             `repl-backlog-size`, and `repl-backlog-ttl` after it was seen last
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.aof import identity
from tidelog.aof.bookmarks import Unusable, bookmarks
from tidelog.aof.reading.reader import segment_paths
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.store.options import Options


class Keeper(NamedTuple):
    """Keeps the log behind an LSN, as long as it has at most `nbytes_max` bytes; None: without a limit."""

    kind: str
    name: str
    lsn: int
    nbytes_max: int | None


def keepers(
    disk: Disk, root: Path, uuid: bytes, options: Options
) -> tuple[list[Keeper], list[Unusable]]:
    """Everything that keeps segments, and the files among the bookmarks that do not. Raises OSError.

    A power cut cannot bring back an earlier value of a bookmark that is among them.
    """
    found: list[Keeper] = []
    directory = root / identity.SNAPSHOTS
    if disk.exists(directory):
        # imported only here, because many stores never make a snapshot
        from tidelog.snapshot import portable

        oldest = portable.oldest_lsn(disk, directory)
        if oldest is not None:
            found.append(Keeper("snapshot", directory.name, oldest, None))
    marks, unusable = bookmarks(disk, root, uuid)
    for name, lsn in marks:
        found.append(Keeper("bookmark", name, lsn, options.retain_bookmark_bytes))
    if marks or unusable:
        # The reader may have renamed a file into place and not have synced the directory yet. If segments were deleted
        # now and the power went, the bookmark would name a position that is gone.
        disk.sync_directory(root / identity.BOOKMARKS)
    return found, unusable


def void(disk: Disk, root: Path, found: list[Keeper]) -> dict[Keeper, str]:
    """Those that keep nothing, and why: they are too many bytes behind, or need segments that are gone.

    Raises MissingSegment, OSError.
    """
    paths = segment_paths(disk, root / identity.AOF)
    sizes = [recipe.size(disk, path) for path in paths]
    beyond: dict[Keeper, str] = {}
    for keeper in found:
        if keeper.nbytes_max is None:
            continue
        begun = sum(int(path.stem) <= keeper.lsn + 1 for path in paths)
        if paths and not begun:
            beyond[keeper] = "the log behind it is gone"
        elif sum(sizes[max(begun - 1, 0) :]) > keeper.nbytes_max:
            beyond[keeper] = f"more than {keeper.nbytes_max} bytes lie behind it"
    return beyond
