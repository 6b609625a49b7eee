"""Bare system calls: what the kernel allows, with no queue around them."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.tools.bench.race import Contender

LINE = b"x" * 79 + b"\n"  # about as long as the record of one XADD of two small fields
SEGMENT_BYTES = 8 * 1024 * 1024
# larger writes would leave large folios in the page cache, which slow all later small writes
FILL_BYTES = 64 * 1024


class Bare:
    """A file written with system calls. `close()` removes nothing; the bench deletes the run's directory."""

    def __init__(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self._growing = os.open(directory / "growing", flags, 0o600)
        self._filled = os.open(directory / "filled", flags, 0o600)
        for _ in range(SEGMENT_BYTES // FILL_BYTES):
            os.write(self._filled, bytes(FILL_BYTES))
        os.fsync(self._filled)
        self._offset = 0

    def close(self) -> None:
        os.close(self._growing)
        os.close(self._filled)

    def writing(self) -> Contender:
        """One os.write of 80 bytes after another, never synced, into a growing file."""
        return Contender("os.write", self._write, self._start_over)

    def syncing_filled(self) -> Contender:
        """pwrite + fdatasync into a file that is already full of zeros: a sync of data alone."""
        return Contender("bare, preallocated", self._sync_filled)

    def syncing_growing(self) -> Contender:
        """pwrite + fdatasync at the end of a file: each sync also writes the new size."""
        return Contender("bare, growing", self._sync_growing, self._start_over)

    def _start_over(self, count: int) -> None:
        os.ftruncate(self._growing, 0)
        os.lseek(self._growing, 0, os.SEEK_SET)

    def _write(self, count: int) -> None:
        write, fd = os.write, self._growing
        for _ in range(count):
            write(fd, LINE)

    def _sync_filled(self, count: int) -> None:
        fd, offset, size = self._filled, self._offset, len(LINE)
        for _ in range(count):
            if offset + size > SEGMENT_BYTES:
                offset = 0
            os.pwrite(fd, LINE, offset)
            os.fdatasync(fd)
            offset += size
        self._offset = offset

    def _sync_growing(self, count: int) -> None:
        fd, offset = self._growing, 0
        for _ in range(count):
            os.pwrite(fd, LINE, offset)
            os.fdatasync(fd)
            offset += len(LINE)
