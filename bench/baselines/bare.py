"""Bare system calls: what the kernel allows, with no queue around them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LINE: Final = b"x" * 79 + b"\n"  # about as long as the record of one XADD of two small fields
SEGMENT_BYTES: Final = 8 * 1024 * 1024
# larger writes would leave large folios in the page cache, which slow all later small writes
FILL_BYTES: Final = 64 * 1024


class Bare:
    """A growing file that is written with one os.write of 80 bytes after another, never synced."""

    def __init__(self, directory: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self._fd = os.open(Path(directory) / "bare", flags, 0o600)

    def before_add(self, count: int) -> None:
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)

    def add(self, count: int) -> None:
        write, fd = os.write, self._fd
        for _ in range(count):
            write(fd, LINE)

    def close(self) -> None:
        os.close(self._fd)


class Growing(Bare):
    """pwrite + fdatasync at the end of the file: each sync also writes the new size."""

    def add(self, count: int) -> None:
        fd, offset = self._fd, 0
        for _ in range(count):
            os.pwrite(fd, LINE, offset)
            os.fdatasync(fd)
            offset += len(LINE)


class Filled(Bare):
    """pwrite + fdatasync into a file that is already full of zeros: a sync of data alone."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        for _ in range(SEGMENT_BYTES // FILL_BYTES):
            os.write(self._fd, bytes(FILL_BYTES))
        os.fsync(self._fd)
        self._offset = 0

    def before_add(self, count: int) -> None: ...

    def add(self, count: int) -> None:
        fd, offset, size = self._fd, self._offset, len(LINE)
        for _ in range(count):
            if offset + size > SEGMENT_BYTES:
                offset = 0
            os.pwrite(fd, LINE, offset)
            os.fdatasync(fd)
            offset += size
        self._offset = offset
