"""Windows: read a segment one piece at a time.

A reader needs memory for one window, or for one frame if that is longer, and never for the whole file: a segment may
have been extended to any length. Holes are skipped where the file system reports them, since they read as zeros.

The file stays open until `close`, so a reader can finish a segment that the writer releases meanwhile. The window is
not read again: a reader beside a writer calls `forget` to see later writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidelog.disk.interface import Disk, File

WINDOW_BYTES: Final = 1 << 20
_BLANK: Final = bytes(WINDOW_BYTES)


def is_blank(piece: bytes) -> bool:
    """Whether `piece`, of at most WINDOW_BYTES bytes, is all zeros."""
    return piece == _BLANK[: len(piece)]


class Windows:
    """One file, read in windows. `size` is its length in bytes at the open or at the last `forget`.

    If a read ends before that, the file has become shorter, and `size` is where the read ended.

    `at` reads windows of `nbytes`, then of four times as many each, up to WINDOW_BYTES. A reader that expects little
    begins with small ones.

    Raises FileNotFoundError, NotPlain, OSError. After `close`, a call that needs the file opens it again by its name.
    """

    def __init__(self, disk: Disk, path: Path, nbytes: int = WINDOW_BYTES) -> None:
        self.path = path
        self._nbytes = nbytes
        self._disk = disk
        self._file: File | None = disk.open(path)
        self._data = b""
        self._base = 0  # where `_data` begins in the file
        self._last = False  # whether `_data` reaches the end of the file
        self.size = self._file.size()

    def at(self, offset: int, nbytes: int = 1) -> tuple[bytes, int]:
        """(window, its file offset). The window holds `nbytes` from `offset` on, fewer only at the file's end."""
        data, base = self._data, self._base
        end = base + len(data)
        if offset < base or (offset + nbytes > end and not (self._last and offset <= end)):
            wanted = max(nbytes, self._nbytes)
            self._nbytes = min(4 * self._nbytes, WINDOW_BYTES)
            data, base = self._opened().pread(wanted, offset), offset
            self._data, self._base, self._last = data, base, len(data) < wanted
            if self._last:
                self.size = min(self.size, base + len(data))
        return data, base

    def read(self, offset: int, nbytes: int) -> bytes:
        """`nbytes` bytes at `offset`, fewer only at the file's end, without moving the window. May exceed a window."""
        data, base = self._data, self._base
        if base <= offset and offset + nbytes <= base + len(data):
            return data[offset - base : offset - base + nbytes]
        return self._opened().pread(nbytes, offset)

    def pieces(self, start: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of every piece with a nonzero byte from `start` to the end; at most WINDOW_BYTES each."""
        file = self._opened()
        offset = start
        while (found := file.next_data(offset)) is not None:
            piece = file.pread(WINDOW_BYTES, found)
            if not piece:
                return
            if not is_blank(piece):
                yield found, piece
            offset = found + len(piece)

    def blank(self, start: int) -> bool:
        """Whether there are only zeros, or no bytes, from `start` on. Bytes in the window are not read again."""
        data, base = self.at(start)
        if data.count(0, start - base) < base + len(data) - start:
            return False
        return next(self.pieces(base + len(data)), None) is None

    def data_end(self, start: int) -> int:
        """The offset after the last nonzero byte at or after `start`; `start` if there is none."""
        end = start
        for offset, piece in self.pieces(start):
            end = offset + len(piece.rstrip(b"\0"))
        return end

    def find(self, needle: bytes, start: int) -> int:
        """The first offset of `needle` at or after `start`, -1 if there is none. `needle` has no zero byte."""
        offset = start
        while True:
            data, base = self.at(offset, len(needle))
            at = data.find(needle, offset - base)
            if at >= 0:
                return base + at
            end = base + len(data)
            if end - offset < len(needle):
                return -1
            found = self._opened().next_data(end - len(needle) + 1)
            if found is None:
                return -1
            offset = found

    def forget(self) -> None:
        """Drop the window and read the size again, so that later calls see new writes."""
        self._data, self._last = b"", False
        self.size = self._opened().size()

    def close(self) -> None:
        """Close the file and drop the window. Idempotent."""
        self._data, self._last = b"", False
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def __del__(self) -> None:
        # A scan that is dropped before its end must still close its file.
        if getattr(self, "_file", None) is not None:
            self.close()
