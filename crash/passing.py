"""Passing: a disk and a file that hand every call on to others, for those that watch or change some calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import Kind


class PassingDisk:
    """A part of `disk.interface.Disk`: the calls that neither change the disk nor open a file, and `beneath`."""

    def __init__(self, inner: Disk, *, background: bool = False) -> None:
        self.background = background
        self._inner = inner

    def guard(self, root: Path) -> None:
        self._inner.guard(root)

    def kind(self, path: Path) -> Kind | None:
        return self._inner.kind(path)

    def listdir(self, path: Path) -> list[str]:
        return self._inner.listdir(path)

    def exists(self, path: Path) -> bool:
        return self._inner.exists(path)

    def writable(self, path: Path) -> bool:
        return self._inner.writable(path)

    def free(self, path: Path) -> int:
        return self._inner.free(path)

    def capacity(self, path: Path) -> int:
        return self._inner.capacity(path)

    def _beneath(self, path: Path) -> bool:
        """Whether the inner disk is the operating system, with the same path: then a library may open it there."""
        found = self._inner.beneath(path)
        return found is not None and found[1] == path


class PassingFile:
    """A `disk.interface.File` that hands every call on. `append` calls the method `_append` of a subclass."""

    def __init__(self, path: Path, inner: File) -> None:
        self._path = path
        self._inner = inner
        self.append: Callable[[int, bytes], None] = self._append

    @property
    def path(self) -> Path:
        return self._path

    @path.setter
    def path(self, path: Path) -> None:
        self._path = self._inner.path = path

    def _append(self, offset: int, data: bytes) -> None:
        self._inner.append(offset, data)

    def size(self) -> int:
        return self._inner.size()

    def next_data(self, offset: int) -> int | None:
        return self._inner.next_data(offset)

    def pread(self, length: int, offset: int) -> bytes:
        return self._inner.pread(length, offset)

    def map(self, length: int) -> None:
        self._inner.map(length)

    def unmap(self) -> None:
        self._inner.unmap()

    def fileno(self) -> int:
        return self._inner.fileno()

    def identity(self) -> tuple[int, int]:
        return self._inner.identity()

    def times(self) -> tuple[int, int]:
        return self._inner.times()

    def drop_cache(self) -> None:
        self._inner.drop_cache()

    def unlock(self) -> None:
        self._inner.unlock()

    def close(self) -> None:
        self._inner.close()
