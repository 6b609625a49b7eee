"""Windows: a segment's bytes for those who read it, a piece at a time.

Reading needs memory for one window, or for one frame where that is longer, and never for the whole file: a segment may
have been extended to any length. Holes are skipped where the file system tells them, since they read as zeros.

The file stays open from the first look until `close`, so what a writer releases meanwhile can be read to its end. What
was read into the window is not read again: beside a writer, `forget` it to see what was written since.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidelog.disk.interface import Disk, File

WINDOW_BYTES: Final = 1 << 20
_BLANK: Final = bytes(WINDOW_BYTES)


def is_blank(piece: bytes) -> bool:
    """Whether at most WINDOW_BYTES bytes are all zeros."""
    return piece == _BLANK[: len(piece)]


class Windows:
    """One file, read by windows. `size` is its length in bytes when it was opened, or last forgotten.

    Raises FileNotFoundError, NotPlain, OSError; after `close` any call opens the file again by its name.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._file: File | None = disk.open(path)
        self._data = b""
        self._base = 0  # where `_data` begins in the file
        self._last = False  # and the file ends with it
        self.size = self._file.size()

    def at(self, offset: int, nbytes: int = 1) -> tuple[bytes, int]:
        """A window that holds `nbytes` from `offset` on, fewer only at the end; and the offset where it begins."""
        data, base = self._data, self._base
        end = base + len(data)
        if offset < base or (offset + nbytes > end and not (self._last and offset <= end)):
            wanted = max(nbytes, WINDOW_BYTES)
            data, base = self._opened().pread(wanted, offset), offset
            self._data, self._base, self._last = data, base, len(data) < wanted
        return data, base

    def read(self, offset: int, nbytes: int) -> bytes:
        """So many bytes, fewer only at the end, without moving the window: for what may be longer than one."""
        data, base = self._data, self._base
        if base <= offset and offset + nbytes <= base + len(data):
            return data[offset - base : offset - base + nbytes]
        return self._opened().pread(nbytes, offset)

    def pieces(self, start: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of all that is not zeros from `start` to the end, at most WINDOW_BYTES at a time."""
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
        """Whether only zeros follow from `start` on, or nothing. What is in the window is not read again."""
        data, base = self.at(start)
        if data.count(0, start - base) < base + len(data) - start:
            return False
        return next(self.pieces(base + len(data)), None) is None

    def data_end(self, start: int) -> int:
        """Where the zeros begin that reach to the end of the file; `start` if they reach back to it."""
        end = start
        for offset, piece in self.pieces(start):
            end = offset + len(piece.rstrip(b"\0"))
        return end

    def find(self, needle: bytes, start: int) -> int:
        """Where `needle`, which has no zero byte, comes first at or after `start`; -1 if nowhere."""
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
        """Read anew what is asked for from now on, and the size."""
        self._data, self._last = b"", False
        self.size = self._opened().size()

    def close(self) -> None:
        """Give up the descriptor, and the window. Closing twice is allowed."""
        self._data, self._last = b"", False
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def __del__(self) -> None:
        # A scan that nobody goes through to its end must not keep its descriptor.
        if getattr(self, "_file", None) is not None:
            self.close()
