"""Pieces: a file that is read once from front to back, a pipe included."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tidelog.tools import console

PIECE_BYTES: Final = 256 << 10


class Pieces:
    """The bytes of an open file. `size` is None for a pipe."""

    def __init__(self, file: BinaryIO, size: int | None, advance: console.Advance) -> None:
        self.size = size
        self._file = file
        self._advance = advance
        self._head = b""

    def pull(self) -> bytes:
        """The next piece, b"" at the end."""
        if self._head:
            head, self._head = self._head, b""
            return head
        piece = self._file.read(PIECE_BYTES)
        self._advance(len(piece))
        return piece

    def peek(self, nbytes: int) -> bytes:
        """The first bytes; `pull` returns them all the same."""
        while len(self._head) < nbytes:
            piece = self._file.read(nbytes - len(self._head))
            if not piece:
                break
            self._advance(len(piece))
            self._head += piece
        return self._head


@contextmanager
def pieces_of(path: Path) -> Iterator[Pieces]:
    """Open a file. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        size = found.st_size if stat.S_ISREG(found.st_mode) else None
        with console.progress("importing", size or 0, size=True) as advance:
            yield Pieces(file, size, advance)
