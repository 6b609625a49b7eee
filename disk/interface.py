"""The file system interface: two small protocols. tidelog accesses files only through them.

`disk.real` is the operating system. `disk.simulated` records every operation, and can lose power or
fail at each one. Errors are OSError, as the system raises them. A write that cannot be completed raises
and never returns short. Directories are created 0700, files 0600.
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
        """The first offset at or after `offset` that is not in a hole; None if only a hole, or nothing, follows.

        A hole reads as zeros and takes no space. A file system that does not report holes gives `offset`.
        """
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Read `length` bytes; fewer only at the end of the file."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data`, or raise OSError with an unknown part of it written."""
        ...

    def fill(self, start: int, end: int) -> int:
        """Write zeros from `start` to `end`. Return the offset reached: less than `end` if space ran out."""
        ...

    def map(self, length: int) -> None:
        """Make `append` store through a mapping of the first `length` bytes, where that is safe."""
        ...

    def unmap(self) -> None: ...

    def truncate(self, size: int) -> None:
        """Set the file's length to `size`. The file must not be mapped."""
        ...

    def extend(self, size: int) -> None:
        """Extend the file to `size` bytes with a hole. A longer file stays as it is."""
        ...

    def fileno(self) -> int:
        """The descriptor, for code that writes to the file itself. Raises OSError on a disk without descriptors."""
        ...

    def identity(self) -> tuple[int, int]:
        """Identifies the file independent of its name: while it exists, no other file has the same pair."""
        ...

    def times(self) -> tuple[int, int]:
        """(mtime, ctime) in nanoseconds: the last change of its content, and of its content or metadata."""
        ...

    def fdatasync(self) -> None: ...

    def fsync(self) -> None: ...

    def drop_cache(self) -> None:
        """Drop clean pages from the page cache, so that the next read comes from the medium."""
        ...

    def unlock(self) -> None:
        """Release the flock of `Disk.lock`, even if a forked child still has the descriptor open."""
        ...

    def close(self) -> None:
        """Unmap and close. Idempotent."""
        ...


class Disk(Protocol):
    """A file system. `Path` arguments name files and directories on it.

    background   whether the log may prepare files in a thread of its own. If not, the caller does that
                 work at once, so that the order of operations is deterministic
    """

    background: bool

    def guard(self, root: Path) -> None:
        """From now on, follow no link below the directory `root`, and open only plain files there.

        Calls raise NotPlain instead, and never wait for the other end of a FIFO. Links in the path to `root` itself
        are followed. A root below another guarded root changes nothing.
        """
        ...

    def kind(self, path: Path) -> Kind | None:
        """The kind of file that has this name; None if there is none. A link is not followed."""
        ...

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open an existing file."""
        ...

    def create(self, path: Path) -> File:
        """Create an empty file for writing and reading. An existing file is emptied."""
        ...

    def lock(self, path: Path) -> File | None:
        """Open or create `path` and hold its exclusive flock until it is closed. None if another open file holds it."""
        ...

    def hold(self, path: Path, *, shared: bool) -> File | None:
        """Open an existing file and hold its flock, shared or exclusive, until it is closed. Creates nothing.

        None if another open file holds a flock that excludes it. A shared one needs only the right to read the file.
        """
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomically rename `source` to `target`, in the same directory, replacing an existing file."""
        ...

    def move(self, source: Path, target: Path) -> None:
        """Atomically move a file or directory to another directory of the same file system.

        Replaces a file, or an empty directory. Durable after `sync_directory` of the target's directory; before that, a
        power cut leaves it in one of both places.
        """
        ...

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path) -> None: ...

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def listdir(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: Path) -> bool: ...

    def sync_directory(self, path: Path) -> None:
        """Make the creates, renames and unlinks in the directory durable."""
        ...

    def writable(self, path: Path) -> bool:
        """Whether this process may write to an existing file or directory."""
        ...

    def free(self, path: Path) -> int:
        """Bytes that this process may still write to the file system that holds `path`."""
        ...

    def capacity(self, path: Path) -> int:
        """Bytes of the file system that holds `path`, used and free."""
        ...

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        """(disk, path) of the same place in the operating system, for a library that accesses files itself (LMDB).

        None if this disk exists only in memory.
        """
        ...
