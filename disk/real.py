"""The operating system's files.

`append` stores through a shared mapping where that is safe, and that is decided by the kind of file
system: on ext4, xfs and tmpfs a page that `fill` wrote has its block, so a store into it cannot run
out of space. On copy-on-write, network and unknown file systems it could, as SIGBUS, so there
`append` is a pwrite. docs/decisions/append.md has the measurements.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from tidelog.disk.interface import Disk

P = ParamSpec("P")
T = TypeVar("T")

# Zeros are written in small pieces: after pieces of 1 MiB the page cache holds large folios, and
# every later small write costs two to three times as much; after these, a tenth more. Smaller ones cost
# a thread that fills space beside a busy one a turn of the interpreter lock each.
ZEROS: Final = bytes(256 << 10)
READ_BYTES_MAX: Final = 1 << 30  # read(2) moves at most 2 GiB at a time

OUT_OF_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
# No descriptor was free, or `_check_place` found another directory: of these, too, the disk knows nothing.
NOT_BEGUN: Final = OUT_OF_SPACE | {errno.EMFILE, errno.ENFILE, errno.ESTALE}

MOVED: Final = (
    "the directory was moved away or replaced, or its LOCK removed, since it was opened; what has its name now is "
    "left alone: close the store, and open it where it is"
)

# statfs(2) f_type: ext2/3/4, xfs, tmpfs
MAPS_ARE_SAFE: Final = frozenset((0xEF53, 0x58465342, 0x01021994))


def file_system_magic(path: Path) -> int:
    """The f_type that statfs(2) reports for `path`, 0 if it cannot be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(512)
    if not hasattr(libc, "statfs") or libc.statfs(os.fsencode(path), buffer) != 0:
        return 0
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


def _naming(
    call: Callable[Concatenate[RealFile, P], T],
) -> Callable[Concatenate[RealFile, P], T]:
    """Calls on a descriptor fail without saying of which file: say it."""

    @wraps(call)
    def named(self: RealFile, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(self, *args, **kwargs)
        except OSError as error:
            error.filename = str(self.path)
            raise

    return named


class RealFile:
    """A `disk.interface.File` over a descriptor."""

    __slots__ = ("path", "append", "_fd", "_map", "_may_map")

    def __init__(self, path: Path, fd: int, *, may_map: bool) -> None:
        self.path = path
        self.append: Callable[[int, bytes], None] = self.write
        self._fd = fd
        self._map: mmap.mmap | None = None
        self._may_map = may_map

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @_naming
    def pread(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, min(length, READ_BYTES_MAX), offset)
        if len(data) == length or not data:
            return data
        pieces = [data]
        done = len(data)
        while done < length:
            data = os.pread(self._fd, min(length - done, READ_BYTES_MAX), offset + done)
            if not data:
                break
            pieces.append(data)
            done += len(data)
        return b"".join(pieces)

    def write(self, offset: int, data: bytes) -> None:
        try:  # as `_naming`, a call less: with `fdatasync` it is what a synced command waits for
            done = os.pwrite(self._fd, data, offset)
            while done < len(data):  # a short write: the rest either goes in or says why not
                done += os.pwrite(self._fd, data[done:], offset + done)
        except OSError as error:
            error.filename = str(self.path)
            raise

    @_naming
    def fill(self, start: int, end: int) -> int:
        zeros = memoryview(ZEROS)
        while start < end:
            try:
                start += os.pwrite(self._fd, zeros[: end - start], start)
            except OSError as error:
                if error.errno in OUT_OF_SPACE:
                    break
                raise
        return start

    @_naming
    def map(self, length: int) -> None:
        if not self._may_map:
            return
        mapped = mmap.mmap(self._fd, length)
        self.unmap()
        self._map = mapped

        # A closure over the mapping, since this is called once per command.
        def append(offset: int, data: bytes) -> None:
            mapped[offset : offset + len(data)] = data

        self.append = append

    def unmap(self) -> None:
        if self._map is not None:
            self.append = self.write
            self._map.close()
            self._map = None

    @_naming
    def truncate(self, size: int) -> None:
        assert self._map is None, "a store into a mapping beyond the end of its file is SIGBUS"
        os.ftruncate(self._fd, size)

    @_naming
    def extend(self, size: int) -> None:
        if os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)

    @_naming
    def fileno(self) -> int:
        return self._fd

    def identity(self) -> tuple[int, int]:
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def has_its_name(self) -> bool:
        """Does the path lead to this file, and to no other or none?"""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity()

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            error.filename = str(self.path)
            raise

    @_naming
    def fsync(self) -> None:
        os.fsync(self._fd)

    def drop_cache(self) -> None:
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def unlock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        self.unmap()
        # Forgotten first: interrupted in between, a descriptor leaks. Closed twice, it would be somebody else's.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """A `disk.interface.Disk` over the operating system."""

    def __init__(self) -> None:
        self.background = True
        self._may_map: dict[Path, bool] = {}
        self._locks: dict[Path, RealFile] = {}  # by their directories

    def open(self, path: Path, *, write: bool = False) -> RealFile:
        if write:
            self._check_place(path)
        return self._file(path, os.O_RDWR if write else os.O_RDONLY)

    def create(self, path: Path) -> RealFile:
        self._check_place(path)
        return self._file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def lock(self, path: Path) -> RealFile | None:
        self._check_place(path)
        file = self._file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locks[path.parent] = file
        except OSError as error:
            file.close()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        except BaseException:  # an interrupt: the lock may be held
            file.close()
            raise
        return file

    def rename(self, source: Path, target: Path) -> None:
        self._check_place(target)
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        self._check_place(path)
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        self._check_place(path)
        os.mkdir(path, 0o700)

    def listdir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def writable(self, path: Path) -> bool:
        return os.access(path, os.W_OK)

    def free(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        return self, path

    def _check_place(self, path: Path) -> None:
        """Before a name is changed in or below a directory whose lock is held: is it still that directory?

        Somebody may have moved it away and put another in its place, whose files would be taken for this one's.
        """
        for directory, lock in list(self._locks.items()):
            if lock.closed:
                self._locks.pop(directory, None)
            elif directory in path.parents and not lock.has_its_name():
                raise OSError(errno.ESTALE, MOVED, str(directory))

    def _file(self, path: Path, flags: int) -> RealFile:
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        may_map = self._may_map.get(path.parent)
        if may_map is None:
            may_map = file_system_magic(path.parent) in MAPS_ARE_SAFE
            self._may_map[path.parent] = may_map
        return RealFile(path, fd, may_map=may_map)
