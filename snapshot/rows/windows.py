"""Windows: read ahead in front of a `read_at`, so that reading rows in order costs one read for each MiB.

A read that begins in a piece that was read before, or shortly behind one, is sequential: it fetches a whole window.
Any other read fetches `least` bytes, so that a look-up does not fetch a MiB. The last pieces are kept. Several are
needed, because the rows of one leaf come in order, but each leaf lies behind the values of its rows (LMDB's compact
copy writes them so).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

WINDOW_BYTES: Final = 1 << 20
KEPT: Final = 4
# a read that begins at most this far behind a kept piece counts as sequential
GAP_BYTES: Final = 64 << 10


class _Piece(NamedTuple):
    """Bytes of the file from `start` on.

    end      where the read ended in the file. If it returned too many bytes to keep, `data` is empty. Beyond the file
             if no read follows this one
    ahead    whether a read that goes on beyond the end of this piece fetches a whole window. False for the first
             piece of a place: it may be the header of a value, and the read of the value that follows it does not
             mean that the bytes behind the value are wanted too
    """

    start: int
    data: bytes
    end: int
    ahead: bool


class Windows:
    """Reads of one file. Not safe for use by several threads at once.

    least   the fewest bytes that one read fetches
    reads   how many reads were made
    """

    def __init__(self, read_at: Callable[[int, int], bytes], size: int, least: int) -> None:
        self.reads = 0
        self._fetch, self._size, self._least = read_at, size, least
        self._kept: list[_Piece] = []  # the last used one first
        self._start, self._data = 0, b""  # of the last used one

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Read `nbytes` bytes from `offset` on; fewer only at the end of the file. Raises what the file raises."""
        at = offset - self._start
        if 0 <= at and at + nbytes <= len(self._data):
            return self._data[at : at + nbytes]
        end = min(offset + nbytes, self._size)
        if end <= offset:
            return b""
        found = self._beginning(offset)
        if found is None:
            follows = self._follows(offset)
            return self._more(offset, end, window=follows, ahead=follows)[: end - offset]
        head = found.data[offset - found.start : end - found.start]
        missing = offset + len(head)
        if missing == end:
            self._keep(found)
            return head
        return head + self._more(missing, end, window=found.ahead, ahead=True)[: end - missing]

    def settle(self) -> None:
        """Treat the reads until now as look-ups: nothing behind them is read ahead."""
        self._kept = [piece._replace(end=self._size + 1) for piece in self._kept]

    def _beginning(self, offset: int) -> _Piece | None:
        """The kept piece that holds the byte at `offset`."""
        for piece in self._kept:
            if 0 <= offset - piece.start < len(piece.data):
                return piece
        return None

    def _follows(self, offset: int) -> bool:
        return any(0 <= offset - piece.end <= GAP_BYTES for piece in self._kept)

    def _more(self, offset: int, end: int, *, window: bool, ahead: bool) -> bytes:
        """Fetch the bytes up to `end` or more, and keep them."""
        need = end - offset
        nbytes = min(max(need, WINDOW_BYTES if window else self._least), self._size - offset)
        self.reads += 1
        data = self._fetch(offset, nbytes)
        # Do not keep a value that is larger than a window: it is read only once, so it would only take memory.
        kept = data if len(data) <= WINDOW_BYTES else b""
        self._keep(_Piece(offset, kept, offset + len(data), ahead))
        return data

    def _keep(self, piece: _Piece) -> None:
        rest = [each for each in self._kept if each is not piece]
        self._kept = [piece, *rest[: KEPT - 1]]
        self._start, self._data = piece.start, piece.data
