"""The operating system's files.

`append` stores through a shared mapping where the file system makes that safe. On ext4, xfs and tmpfs a
page that `fill` wrote has its block, so a store into it cannot run out of space. On copy-on-write,
network and unknown file systems it can, which raises SIGBUS, so `append` is a pwrite there.
docs/decisions/append.md has the measurements.

Below a guarded root, each directory is opened relative to its parent without following a link, and the name is
then looked up relative to that descriptor. The kind of a file is checked before the open, since opening a device
can have side effects, and again after it, since the file may have been replaced in between.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from tidelog.disk.interface import Disk
from tidelog.disk.plain import Kind, NotPlain, kind_of

P = ParamSpec("P")
T = TypeVar("T")

# The disk writes zeros in pieces of this size. After pieces of 1 MiB the page cache holds large folios, and each later
# small write costs two to three times as much; after pieces of this size, only a tenth more. Smaller pieces are slow
# beside a busy thread, because the filling thread waits for the interpreter lock once per piece.
ZEROS: Final = bytes(256 << 10)
READ_BYTES_MAX: Final = 1 << 30  # read(2) moves at most 2 GiB at a time

OUT_OF_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
# Errors after which the disk is unchanged: no space, no free descriptor, or ESTALE from `_check_place`.
NOT_BEGUN: Final = OUT_OF_SPACE | {errno.EMFILE, errno.ENFILE, errno.ESTALE}

MOVED: Final = (
    "the directory was moved or replaced, or its LOCK was deleted, after the store was opened. Nothing was "
    "written to the directory that has this name now. Close the store and open it where it is now"
)

# O_NONBLOCK: without it, opening a FIFO would wait for a process at the other end. With it, the FIFO opens at once and
# is refused.
ONLY_PLAIN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
ONLY_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

PARENTS_MAX: Final = 1000  # size of the cache of guarded directories

# statfs(2) f_type: ext2/3/4, xfs, tmpfs
MAPS_ARE_SAFE: Final = frozenset((0xEF53, 0x58465342, 0x01021994))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def file_system_magic(path: Path) -> int:
    """The f_type that statfs(2) reports for `path`, 0 if it fails."""
    libc = _libc()
    buffer = ctypes.create_string_buffer(512)
    if not hasattr(libc, "statfs") or libc.statfs(os.fsencode(path), buffer) != 0:
        return 0
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


def _naming(
    call: Callable[Concatenate[RealFile, P], T],
) -> Callable[Concatenate[RealFile, P], T]:
    """Add the file's path to an OSError, since calls on a descriptor fail without it."""

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
    def next_data(self, offset: int) -> int | None:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno == errno.EINVAL:
                return offset
            raise

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
        # Does what `_naming` does, without the cost of a call, because every synced command waits for this method and
        # `fdatasync`.
        try:
            done = os.pwrite(self._fd, data, offset)
            # after a short write, a second write either succeeds or raises the error
            while done < len(data):
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

        # A closure and not a method, because a closure is faster and each command calls it once.
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

    def times(self) -> tuple[int, int]:
        found = os.fstat(self._fd)
        return found.st_mtime_ns, found.st_ctime_ns

    def has_its_name(self) -> bool:
        """Whether the path still leads to this file."""
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
        # Clear the field before the close. If an interrupt comes in between, a descriptor leaks. In the other order, a
        # second close could hit another file that got the same number.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """A `disk.interface.Disk` over the operating system."""

    def __init__(self) -> None:
        self.background = True
        self._may_map: dict[Path, bool] = {}
        self._locks: dict[Path, RealFile] = {}  # directory -> its lock file
        self._roots: tuple[Path, ...] = ()  # guarded
        # parent of a path -> result of `_below`
        self._found: dict[Path, tuple[str, ...] | None] = {}

    def guard(self, root: Path) -> None:
        if self._below(root) is None and root not in self._roots:
            self._roots = (*self._roots, root)
            self._found.clear()

    def kind(self, path: Path) -> Kind | None:
        try:
            with self._place(path) as (at, name):
                return kind_of(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None

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
            if not _flock(file, fcntl.LOCK_EX):
                file.close()
                return None
            self._locks[path.parent] = file
        except BaseException:
            # Close the file after an interrupt too, because the file may have the lock already.
            file.close()
            raise
        return file

    def hold(self, path: Path, *, shared: bool) -> RealFile | None:
        try:
            # On NFS an exclusive flock needs a descriptor that is open for writing.
            file = self._file(path, os.O_RDONLY if shared else os.O_RDWR)
        except PermissionError:
            # An operator made the file read-only. On a local file system a read-only descriptor can hold the lock too.
            file = self._file(path, os.O_RDONLY)
        try:
            if _flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        return None

    def rename(self, source: Path, target: Path) -> None:
        self._check_place(target)
        with self._place(source) as (at, name), self._place(target) as (to, new_name):
            os.rename(name, new_name, src_dir_fd=at, dst_dir_fd=to)

    def move(self, source: Path, target: Path) -> None:
        self._check_place(source)
        self.rename(source, target)

    def unlink(self, path: Path) -> None:
        self._check_place(path)
        with self._place(path) as (at, name):
            os.unlink(name, dir_fd=at)

    def mkdir(self, path: Path) -> None:
        self._check_place(path)
        with self._place(path) as (at, name):
            os.mkdir(name, 0o700, dir_fd=at)

    def rmdir(self, path: Path) -> None:
        self._check_place(path)
        with self._place(path) as (at, name):
            os.rmdir(name, dir_fd=at)

    def listdir(self, path: Path) -> list[str]:
        if self._below(path) is None:
            return sorted(os.listdir(path))
        fd = self._directory(path)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def exists(self, path: Path) -> bool:
        if self._below(path) is None:
            return os.path.exists(path)
        return self.kind(path) is not None

    def sync_directory(self, path: Path) -> None:
        fd = self._directory(path)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def writable(self, path: Path) -> bool:
        return os.access(path, os.W_OK)

    def free(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def capacity(self, path: Path) -> int:
        found = os.statvfs(path)
        # without the blocks that only root may use, as `free`
        return (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        return self, path

    def _check_place(self, path: Path) -> None:
        """Raise OSError(ESTALE) if `path` is below a directory that is locked here, and its LOCK is no longer there.

        Called before a change of a name. An operator may have moved the directory away and put another in its place,
        whose files must not be changed.
        """
        for directory, lock in list(self._locks.items()):
            if lock.closed:
                self._locks.pop(directory, None)
            elif directory in path.parents and not lock.has_its_name():
                raise OSError(errno.ESTALE, MOVED, str(directory))

    def _below(self, path: Path) -> tuple[str, ...] | None:
        """The outermost guarded root above `path`, then each directory name down to its parent; None if unguarded."""
        if not self._roots:
            return None
        parent = path.parent
        try:
            return self._found[parent]
        except KeyError:
            above = (*reversed(parent.parents), parent)
            root = next((each for each in above if each in self._roots), None)
            found = None if root is None else (str(root), *parent.relative_to(root).parts)
            if len(self._found) >= PARENTS_MAX:
                self._found.clear()
            self._found[parent] = found
            return found

    @contextmanager
    def _place(self, path: Path) -> Iterator[tuple[int | None, str]]:
        """(directory descriptor, name of `path` relative to it); the descriptor is None for the working directory.

        In an OSError that the block raises, the file name becomes the whole path. Raises NotPlain.
        """
        below = self._below(path)
        at, name = None, str(path)
        # If the path is more than one level below the root, a directory on the way could also be a link. So open each
        # level singly.
        if below is not None and len(below) > 1:
            at, name = _descend(below, os.O_PATH), path.name
        try:
            yield at, name
        except NotPlain:
            raise
        except OSError as error:
            error.filename, error.filename2 = str(path), None
            raise
        finally:
            if at is not None:
                os.close(at)

    def _directory(self, path: Path) -> int:
        """A descriptor of a directory, opened without following a link below a guarded root. Raises NotPlain."""
        below = self._below(path)
        if below is None:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return _descend((*below, path.name), os.O_RDONLY)

    def _file(self, path: Path, flags: int) -> RealFile:
        guarded = self._below(path) is not None
        flags |= os.O_CLOEXEC
        empty = flags & os.O_TRUNC
        if guarded:  # check the kind of the file before emptying it
            flags = flags & ~os.O_TRUNC | ONLY_PLAIN
        with self._place(path) as (at, name):
            if guarded:
                _refuse(path, name, at, Kind.FILE)
            try:
                fd = os.open(name, flags, 0o600, dir_fd=at)
            except OSError as error:
                if guarded and error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                    _refuse(path, name, at, Kind.FILE)  # it was replaced since the first check
                raise
            if guarded:
                try:
                    kind = kind_of(os.fstat(fd).st_mode)
                    if kind is not Kind.FILE:
                        raise NotPlain(path, kind, Kind.FILE)
                    if empty:
                        os.ftruncate(fd, 0)
                except BaseException:
                    os.close(fd)
                    raise
        may_map = self._may_map.get(path.parent)
        if may_map is None:
            may_map = file_system_magic(path.parent) in MAPS_ARE_SAFE
            self._may_map[path.parent] = may_map
        return RealFile(path, fd, may_map=may_map)


def _flock(file: RealFile, kind: int) -> bool:
    """Take a flock without waiting. False if another open file excludes it. Raises OSError."""
    try:
        fcntl.flock(file.fileno(), kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        error.filename = str(file.path)
        raise
    return True


def _descend(parts: tuple[str, ...], flags: int) -> int:
    """A descriptor of the directory at a root and the names below it. Raises NotPlain if one of the names is a link or
    not a directory."""
    root, *names = parts
    at, path = None, root
    for depth, part in enumerate(names, 1):
        above, path = at, os.path.join(path, part)
        name = path if above is None else part
        try:
            how = flags if depth == len(names) else os.O_PATH
            at = os.open(name, how | ONLY_DIRECTORY, dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                _refuse(Path(path), name, above, Kind.DIRECTORY)
            error.filename = path
            raise
        finally:
            if above is not None:
                os.close(above)
    assert at is not None, "the root itself may be reached through links"
    return at


def _refuse(path: Path, name: str, at: int | None, wanted: Kind) -> None:
    """Raise NotPlain if `name` exists and is not of the kind `wanted`."""
    try:
        kind = kind_of(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return  # not found: the caller's own call reports it
    if kind is not wanted:
        raise NotPlain(path, kind, wanted) from None
