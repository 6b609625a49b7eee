"""A real disk that counts what is read from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.disk.interface import File
from tidelog.disk.real import RealDisk


class Counting(RealDisk):
    """Counts the bytes that are read, the reads, and the files that are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.reads = self.opened = 0

    def open(self, path: Path, *, write: bool = False) -> Any:
        self.opened += 1
        return Counted(super().open(path, write=write), self)

    def take(self) -> int:
        """The bytes since the last call."""
        read = self.read
        self.read = self.reads = self.opened = 0
        return read


class Counted:
    def __init__(self, file: File, disk: Counting) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, length: int, offset: int) -> bytes:
        data = self._file.pread(length, offset)
        self._disk.read += len(data)
        self._disk.reads += 1
        return data
