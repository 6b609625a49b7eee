"""Keepers: everything besides the checkpoint and retention that keeps segments of the log, in one table.

kind        needs the log behind             at most
snapshot    the oldest of the store's        any number of bytes: `keep_snapshots` limits them
passing     the oldest made for followers    any number of bytes: it goes when no follower fetches it
bookmark    what its reader has committed    `retain_bookmark_bytes` of log; a bookmark further behind is void
follower    what it has fsynced              `repl-backlog-size`, and `repl-backlog-ttl` after it was seen last

While less than a tenth of the disk, or of `maxdisk`, is free, the log that only followers need is deleted, oldest
first: a follower can get a copy of the store, and a leader with a full disk takes no writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import identity
from tidelog.aof.bookmarks import Unusable, bookmarks
from tidelog.aof.reading.reader import segment_paths, segments
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.store.options import Options

SPARE: Final = 10  # one tenth of the disk, and of the quota, is not for followers


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
        from tidelog.snapshot import passing, portable

        others = passing.names(disk, directory)
        for kind, of_followers in (("snapshot", False), ("passing", True)):
            lsns = [
                lsn
                for lsn in portable.lsns(disk, directory)
                if (portable.directory_name(lsn) in others) is of_followers
            ]
            if lsns:
                found.append(Keeper(kind, portable.directory_name(min(lsns)), min(lsns), None))
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


def kept_bytes(disk: Disk, root: Path, found: list[Keeper]) -> int:
    """Bytes of the segments that these need; those that are void need none. Raises MissingSegment, OSError."""
    beyond = void(disk, root, found)
    least = min((each.lsn for each in found if each not in beyond), default=None)
    if least is None:
        return 0
    paths = segment_paths(disk, root / identity.AOF)
    begun = sum(int(path.stem) <= least + 1 for path in paths)
    return sum(recipe.size(disk, path) for path in paths[max(begun - 1, 0) :])


class Pin(NamedTuple):
    """A keeper without which a part of the log could go.

    since_ms   unix ms: its oldest segment was begun then
    nbytes     of the segments that it needs and the checkpoint does not
    """

    kind: str
    name: str
    lsn: int
    since_ms: int
    nbytes: int

    def facts(self) -> dict[str, str | int]:
        """As INFO and `tidelog info` show it; `since` in unix seconds."""
        return {
            "kind": self.kind,
            "name": self.name,
            "lsn": self.lsn,
            "since": self.since_ms // 1000,
            "bytes": self.nbytes,
        }


def pins(disk: Disk, root: Path, uuid: bytes, found: list[Keeper], covered: int) -> list[Pin]:
    """Those of the keepers that keep log which the checkpoint, through the LSN `covered`, does not need.

    Raises AofError, OSError.
    """
    beyond = void(disk, root, found)
    infos = segments(disk, root / identity.AOF, uuid)
    begins = [info.header.first_lsn for info in infos]

    def begun(lsn: int) -> int:
        return max(sum(first <= lsn + 1 for first in begins) - 1, 0)

    pinned: list[Pin] = []
    for each in found:
        needed = infos[begun(each.lsn) : begun(covered)]
        if needed and each not in beyond:
            nbytes = sum(recipe.size(disk, info.path) for info in needed)
            pinned.append(Pin(each.kind, each.name, each.lsn, needed[0].header.time, nbytes))
    return pinned


def lacking(disk: Disk, root: Path) -> int:
    """Bytes that are missing until a tenth of the disk is free; 0 or less: none. Raises OSError."""
    return disk.capacity(root) // SPARE - disk.free(root)


def in_the_way(
    disk: Disk, root: Path, followers: list[Keeper], needed_from: int, nbytes: int
) -> dict[Keeper, str]:
    """The followers that keep nothing, so that the oldest segments, of `nbytes` together, can be deleted.

    needed_from    the log behind this LSN is needed by the checkpoint, or by a keeper that is no follower
    Raises MissingSegment, OSError.
    """
    paths = segment_paths(disk, root / identity.AOF)
    begin = 0  # of what stays
    for path, behind in zip(paths, paths[1:], strict=False):
        if nbytes <= 0 or int(behind.stem) > needed_from + 1:
            break
        nbytes -= recipe.size(disk, path)
        begin = int(behind.stem)
    why = "less than a tenth of the disk, or of the quota, is free"
    return {each: why for each in followers if each.lsn + 1 < begin}
