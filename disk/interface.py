"""What tidelog asks of a file system: two small protocols, and nothing else reaches files.

`disk.real` is the operating system; `disk.simulated` records every operation and can lose power or
fail at each. All errors are OSError as the system raises them; a write that cannot be completed
raises and never returns short. Directories are created 0700, files 0600.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidelog.disk.plain import Kind


class File(Protocol):
    """One open file. Offsets and sizes are bytes."""

    path: Path

    append: Callable[[int, bytes], None]
    """`append(offset, data)` puts data into space that `fill` prepared: a copy into the mapped file
    after `map`, a pwrite otherwise. After it returns the kernel has the bytes: they survive the
    process, and power loss once `fdatasync` has returned."""

    def size(self) -> int: ...

    def next_data(self, offset: int) -> int | None:
        """The first offset, at or after `offset`, that does not lie in a hole; None if a hole reaches to the end.

        A hole reads as zeros and takes no space. A file system that does not tell holes answers `offset`.
        """
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """At most `length` bytes; fewer only at the end of the file."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`, or OSError with an unknown part of it written."""
        ...

    def fill(self, start: int, end: int) -> int:
        """Write zeros from `start` to `end`. Return how far it got: short of `end` if space ran out."""
        ...

    def map(self, length: int) -> None:
        """Let `append` store through a mapping of the first `length` bytes, where that is safe."""
        ...

    def unmap(self) -> None: ...

    def truncate(self, size: int) -> None:
        """Cut the file; it must not be mapped."""
        ...

    def extend(self, size: int) -> None:
        """Let the file be at least `size` bytes long, with a hole where it ended. A longer one stays as it is."""
        ...

    def fileno(self) -> int:
        """The descriptor, for what writes by itself. Raises OSError on a disk that has none."""
        ...

    def identity(self) -> tuple[int, int]:
        """Which file this is, whatever its names: the same pair only for the same file, while it exists."""
        ...

    def times(self) -> tuple[int, int]:
        """When its content, and when anything of it, was changed last, in nanoseconds: mtime and ctime."""
        ...

    def fdatasync(self) -> None: ...

    def fsync(self) -> None: ...

    def drop_cache(self) -> None:
        """Forget clean cached pages, so that the next read asks the medium."""
        ...

    def unlock(self) -> None:
        """Give up the flock of `Disk.lock`, also where a forked child still holds the descriptor."""
        ...

    def close(self) -> None:
        """Unmap and close. Closing twice is allowed."""
        ...


class Disk(Protocol):
    """A file system. `Path` arguments name files and directories on it.

    background   may a thread of the log's own work on files? If not, what could be done ahead is done
                 by the caller, at once and in an order that repeats
    """

    background: bool

    def guard(self, root: Path) -> None:
        """From now on, names below the directory `root` lead to what lies there and nowhere else.

        No link below `root` is followed, and only plain files are opened: all calls raise NotPlain instead, and
        never wait for the other end of a FIFO. Links that lead to `root` itself are followed. A root below another
        guarded root changes nothing.
        """
        ...

    def kind(self, path: Path) -> Kind | None:
        """What lies under a name, links not followed; None if there is nothing."""
        ...

    def open(self, path: Path, *, write: bool = False) -> File:
        """An existing file."""
        ...

    def create(self, path: Path) -> File:
        """A new empty file for writing and reading; what lies under the name is emptied."""
        ...

    def lock(self, path: Path) -> File | None:
        """Open or create `path` and hold its exclusive flock until closed; None if another holds it."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomically give `source` the name `target` in the same directory, replacing what is there."""
        ...

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path) -> None: ...

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def exists(self, path: Path) -> bool: ...

    def sync_directory(self, path: Path) -> None:
        """Make names created, renamed and unlinked in the directory durable."""
        ...

    def writable(self, path: Path) -> bool:
        """May this process write to a file or directory that is there?"""
        ...

    def free(self, path: Path) -> int:
        """Bytes that this process may still write to the file system that holds `path`."""
        ...

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        """The same place for a library that works on files by itself: the operating system's disk, and the path
        there. None if there is none, since this disk lies in memory.
        """
        ...
