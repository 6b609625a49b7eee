"""A disk that calls a hook around every operation, where the hook may raise an error or end the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import Kind
from tidelog.disk.real import OUT_OF_SPACE
from tidelog.snapshot.rows.environment import Writing

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


class HookedDisk:
    """A `disk.interface.Disk` over another one. It has no threads, so the order of operations is always the same.

    `commits_hooked` adds the commits of LMDB. Other operations of LMDB are not seen.
    """

    def __init__(self, inner: Disk, hook: Hook) -> None:
        self.background = False
        self.hook = hook
        self._inner = inner

    def _do(self, operation: str, path: Path, call: Callable[[], T]) -> T:
        self.hook.before(operation, path)
        result = call()
        self.hook.after(operation, path)
        return result

    def _file(self, operation: str, path: Path, call: Callable[[], File | None]) -> File | None:
        file = self._do(operation, path, call)
        return file and HookedFile(self, path, file)

    def guard(self, root: Path) -> None:
        self._inner.guard(root)

    def kind(self, path: Path) -> Kind | None:
        return self._inner.kind(path)

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

    def exists(self, path: Path) -> bool:
        return self._inner.exists(path)

    def sync_directory(self, path: Path) -> None:
        self._do("sync_directory", path, lambda: self._inner.sync_directory(path))

    def writable(self, path: Path) -> bool:
        return self._inner.writable(path)

    def free(self, path: Path) -> int:
        return self._inner.free(path)

    def capacity(self, path: Path) -> int:
        return self._inner.capacity(path)

    def beneath(self, path: Path) -> tuple[Disk, Path] | None:
        found = self._inner.beneath(path)
        return None if found is None or found[1] != path else (self, path)


class HookedFile:
    """A `disk.interface.File` of a HookedDisk."""

    def __init__(self, disk: HookedDisk, path: Path, inner: File) -> None:
        self._disk = disk
        self._path = path
        self._inner = inner
        self.append: Callable[[int, bytes], None] = self._append

    @property
    def path(self) -> Path:
        return self._path

    @path.setter
    def path(self, path: Path) -> None:
        self._path = self._inner.path = path

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

    def size(self) -> int:
        return self._inner.size()

    def next_data(self, offset: int) -> int | None:
        return self._inner.next_data(offset)

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

    def unmap(self) -> None:
        self._inner.unmap()

    def truncate(self, size: int) -> None:
        self._do("truncate", lambda: self._inner.truncate(size))

    def extend(self, size: int) -> None:
        self._do("extend", lambda: self._inner.extend(size))

    def fileno(self) -> int:
        return self._inner.fileno()

    def identity(self) -> tuple[int, int]:
        return self._inner.identity()

    def times(self) -> tuple[int, int]:
        return self._inner.times()

    def fdatasync(self) -> None:
        self._do("fdatasync", self._inner.fdatasync)

    def fsync(self) -> None:
        self._do("fsync", self._inner.fsync)

    def drop_cache(self) -> None:
        self._inner.drop_cache()

    def unlock(self) -> None:
        self._inner.unlock()

    def close(self) -> None:
        self._inner.close()


@contextmanager
def commits_hooked() -> Iterator[None]:
    """Meanwhile, commits of LMDB to hooked disks are operations too."""
    original = Writing.commit

    def commit(self: Writing) -> None:
        disk, path = self._environment._disk, self._environment.path
        if isinstance(disk, HookedDisk):
            disk._do(COMMIT, path, lambda: original(self))
        else:
            original(self)

    setattr(Writing, "commit", commit)  # noqa: B010  # mypy forbids an assignment to a method
    try:
        yield
    finally:
        setattr(Writing, "commit", original)  # noqa: B010
