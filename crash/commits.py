"""Commits: the order in which LMDB writes and syncs a commit, noted by the recorder.

LMDB writes by itself, so the recorder sees that pages changed and not when. A commit of LMDB 0.9 does this:

    1. the changed pages are written          some may have been written before, when the transaction grew large
    2. fdatasync                              not with `sync=False`
    3. one of the two meta pages is written   through a synchronous descriptor; not with `metasync=False`

`commits_noted` has each commit to a recorded disk noted as these operations. Other threads wait meanwhile, so the trace
stays an order in which everything could have happened. `commits_through` has the commits to disks of another kind go
through a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeVar

from tidelog.crash.errors import BenchError
from tidelog.crash.record import RecordingDisk
from tidelog.crash.trace import Size, Write
from tidelog.snapshot.rows.environment import Writing

META_PAGES: Final = 2

D = TypeVar("D")


@contextmanager
def commits_through(
    kind: type[D], take: Callable[[D, Writing, Callable[[], None]], None]
) -> Iterator[None]:
    """Meanwhile, a commit of this process to a disk of this kind calls `take` with the disk, itself and its work."""
    original = Writing.commit

    def commit(self: Writing) -> None:
        disk = self._environment._disk
        if isinstance(disk, kind):
            take(disk, self, lambda: original(self))
        else:
            original(self)

    setattr(Writing, "commit", commit)  # noqa: B010  # mypy forbids an assignment to a method
    try:
        yield
    finally:
        setattr(Writing, "commit", original)  # noqa: B010


def commits_noted() -> AbstractContextManager[None]:
    """Meanwhile, the commits of this process to recorded disks are noted with their syncs."""
    return commits_through(RecordingDisk, _commit)


def _commit(disk: RecordingDisk, writing: Writing, commit: Callable[[], None]) -> None:
    environment = writing._environment
    lmdb = environment._open()
    flags = lmdb.flags()
    if flags["writemap"]:
        raise BenchError(
            f"{environment.path} is written through a mapping (writemap), so its order is unknown"
        )
    page_bytes = lmdb.stat()["psize"]
    with disk.held():
        node = disk.node_of(environment.path)
        if node is None:
            commit()
            return
        before = disk.shadow_bytes(node)
        commit()
        size, pages = disk.changed(environment.path)
        if not pages:
            return  # a commit without a change writes and syncs nothing
        note = disk.operations.append
        end = before
        for offset, page in pages:
            if offset >= META_PAGES * page_bytes:
                note(Write(node, offset, page))
                end = max(end, offset + len(page))
        if size > end:
            note(Size(node, size))
        if flags["sync"]:
            disk.synced(node)
        for offset, page in pages:
            if offset < META_PAGES * page_bytes:
                note(Write(node, offset, page))
                if flags["sync"] and flags["metasync"]:
                    disk.synced(node, offset, offset + len(page))
