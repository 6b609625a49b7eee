"""Pieces: a file that is read once from front to back, a pipe included."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tidelog.tools import console

PIECE_BYTES: Final = 256 << 10
WRITER_S = 10.0  # how long a FIFO may have no writer
POLL_S: Final = 0.02


class Pieces:
    """The bytes that an open file has when it is opened. `size` is their number, None for a pipe.

    Bytes that come later may be a part of a command. So they are not read.
    """

    def __init__(
        self, file: BinaryIO, size: int | None, advance: console.Advance, head: bytes = b""
    ) -> None:
        """`head` are bytes that were read from the file before."""
        self.size = size
        self._file = file
        self._advance = advance
        self._head = head
        self._left = sys.maxsize if size is None else size

    def pull(self) -> bytes:
        """The next piece, b"" at the end."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._read(PIECE_BYTES)

    def peek(self, nbytes: int) -> bytes:
        """The first bytes, as many as asked for if there are; `pull` returns them all the same."""
        while len(self._head) < nbytes:
            piece = self._read(nbytes - len(self._head))
            if not piece:
                break
            self._head += piece
        return self._head[:nbytes]

    def _read(self, nbytes: int) -> bytes:
        piece = self._file.read(min(nbytes, self._left))
        self._left -= len(piece)
        self._advance(len(piece))
        return piece


@contextmanager
def pieces_of(path: Path) -> Iterator[Pieces]:
    """Open a file. Raises OSError, also if nobody opens a FIFO for writing in WRITER_S."""
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        found = os.fstat(file.fileno())
        head = _begun(file, path) if stat.S_ISFIFO(found.st_mode) else b""
        os.set_blocking(file.fileno(), True)
        size = found.st_size if stat.S_ISREG(found.st_mode) else None
        with console.progress("importing", size or 0, size=True) as advance:
            yield Pieces(file, size, advance, head)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _begun(file: BinaryIO, path: Path) -> bytes:
    """Wait until somebody writes to a FIFO or may do so. Returns what was read of it."""
    end = time.monotonic() + WRITER_S
    while True:
        found: bytes | None = file.read(PIECE_BYTES)
        if found is None:  # none yet, and somebody has it open
            return b""
        if found:
            return found
        if time.monotonic() > end:
            words = f"nobody opened this FIFO for writing in {WRITER_S:g} s"
            raise OSError(errno.ETIMEDOUT, words, str(path))
        time.sleep(POLL_S)
