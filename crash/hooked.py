"""A disk that calls a hook around every operation, where the hook may raise an error or end the process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from tidelog.crash.commits import commits_through
from tidelog.crash.passing import PassingDisk, PassingFile
from tidelog.disk.interface import Disk, File
from tidelog.disk.real import OUT_OF_SPACE

COMMIT = "commit"  # the name of a commit of LMDB, which does its operations by itself

T = TypeVar("T")


class Hook(Protocol):
    def before(self, operation: str, path: Path) -> None:
        """Called before an operation. If it raises, the operation has no effect."""
        ...

    def inside(self, operation: str, path: Path, length: int) -> int | None:
        """Called before a write. None, or how many bytes of it are written before `broken` is called."""
        ...

    def broken(self, operation: str, path: Path) -> None:
        """Called after a part of a write. It must raise, or end the process."""
        ...

    def after(self, operation: str, path: Path) -> None:
        """Called after an operation."""
        ...


class HookedDisk(PassingDisk):
    """A `disk.interface.Disk` over another one. It has no threads, so the order of operations is always the same.

    `commits_hooked` adds the commits of LMDB. Other operations of LMDB are not seen.
    """

    def __init__(self, inner: Disk, hook: Hook) -> None:
        super().__init__(inner)
        self.hook = hook

    def _do(self, operation: str, path: Path, call: Callable[[], T]) -> T:
        self.hook.before(operation, path)
        result = call()
        self.hook.after(operation, path)
        return result

    def _file(self, operation: str, path: Path, call: Callable[[], File | None]) -> File | None:
        file = self._do(operation, path, call)
        return file and HookedFile(self, path, file)

    def open(self, path: Path, *, write: bool = False) -> File:
        return self._do(
            "open", path, lambda: HookedFile(self, path, self._inner.open(path, write=write))
        )

    def create(self, path: Path) -> File:
        return self._do("create", path, lambda: HookedFile(self, path, self._inner.create(path)))

    def lock(self, path: Path) -> File | None:
        return self._file("lock", path, lambda: self._inner.lock(path))

    def hold(self, path: Path, *, shared: bool) -> File | None:
        return self._file("hold", path, lambda: self._inner.hold(path, shared=shared))

    def rename(self, source: Path, target: Path) -> None:
        self._do("rename", target, lambda: self._inner.rename(source, target))

    def move(self, source: Path, target: Path) -> None:
        self._do("move", target, lambda: self._inner.move(source, target))

    def unlink(self, path: Path) -> None:
        self._do("unlink", path, lambda: self._inner.unlink(path))

    def mkdir(self, path: Path) -> None:
        self._do("mkdir", path, lambda: self._inner.mkdir(path))

    def rmdir(self, path: Path) -> None:
        self._do("rmdir", path, lambda: self._inner.rmdir(path))

    def listdir(self, path: Path) -> list[str]:
        return self._do("listdir", path, lambda: self._inner.listdir(path))

    def sync_directory(self, path: Path) -> None:
        self._do("sync_directory", path, lambda: self._inner.sync_directory(path))

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        return (self, path) if self._beneath(path) else None


class HookedFile(PassingFile):
    """A `disk.interface.File` of a HookedDisk."""

    def __init__(self, disk: HookedDisk, path: Path, inner: File) -> None:
        super().__init__(path, inner)
        self._disk = disk

    def _do(self, operation: str, call: Callable[[], T]) -> T:
        return self._disk._do(operation, self._path, call)

    def _write(
        self,
        operation: str,
        length: int,
        write: Callable[[int], object],
    ) -> None:
        """`write` writes the first bytes, as many as it is given."""
        hook = self._disk.hook
        hook.before(operation, self._path)
        part = hook.inside(operation, self._path, length)
        if part is not None:
            write(part)
            hook.broken(operation, self._path)
        write(length)
        hook.after(operation, self._path)

    def pread(self, length: int, offset: int) -> bytes:
        return self._do("pread", lambda: self._inner.pread(length, offset))

    def write(self, offset: int, data: bytes) -> None:
        self._write("write", len(data), lambda n: self._inner.write(offset, data[:n]))

    def _append(self, offset: int, data: bytes) -> None:
        self._write("append", len(data), lambda n: self._inner.append(offset, data[:n]))

    def fill(self, start: int, end: int) -> int:
        reached = start

        def fill(length: int) -> None:
            nonlocal reached
            reached = self._inner.fill(start, start + length)

        try:
            self._write("fill", end - start, fill)
        except OSError as error:
            # The contract of `fill`: without space it returns how far it got.
            if error.errno not in OUT_OF_SPACE:
                raise
        return reached

    def map(self, length: int) -> None:
        self._do("map", lambda: self._inner.map(length))

    def truncate(self, size: int) -> None:
        self._do("truncate", lambda: self._inner.truncate(size))

    def extend(self, size: int) -> None:
        self._do("extend", lambda: self._inner.extend(size))

    def fdatasync(self) -> None:
        self._do("fdatasync", self._inner.fdatasync)

    def fsync(self) -> None:
        self._do("fsync", self._inner.fsync)


def commits_hooked() -> AbstractContextManager[None]:
    """Meanwhile, commits of LMDB to hooked disks are operations too."""
    return commits_through(
        HookedDisk,
        lambda disk, writing, commit: disk._do(COMMIT, writing._environment.path, commit),
    )
