"""The IDs that `xadd_many` returns: a sequence that formats an ID only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, overload

from tidelog.api.types import TextT


class IdRange(Sequence[TextT], Generic[TextT]):
    """The IDs of entries that `xadd_many` added: a sequence that formats an ID only when it is asked for.

    It holds `ms-seq`, `ms-(seq+1)` and so on, and is equal to a list of the same IDs.

    Attributes:
        ms: Time part of all IDs, Unix time in ms.
        seq: Sequence number of the first ID.
        length: How many there are.
    """

    __slots__ = ("ms", "seq", "length", "_decode")

    def __init__(self, ms: int, seq: int, length: int, decode: bool) -> None:
        self.ms, self.seq, self.length, self._decode = ms, seq, length, decode

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> TextT: ...
    @overload
    def __getitem__(self, index: slice) -> list[TextT]: ...

    def __getitem__(self, index: int | slice) -> TextT | list[TextT]:
        if isinstance(index, slice):
            return [self._text(at) for at in range(*index.indices(self.length))]
        at = index + self.length if index < 0 else index
        if not 0 <= at < self.length:
            raise IndexError(index)
        return self._text(at)

    def __iter__(self) -> Iterator[TextT]:
        return map(self._text, range(self.length))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IdRange):
            mine = (self.ms, self.seq, self.length, self._decode)
            return mine == (other.ms, other.seq, other.length, other._decode)
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not self.length:
            return "IdRange()"
        return f"IdRange({self.ms}-{self.seq} .. {self.ms}-{self.seq + self.length - 1})"

    def _text(self, at: int) -> TextT:
        text = b"%d-%d" % (self.ms, self.seq + at)
        return text.decode() if self._decode else text  # type: ignore[return-value]
