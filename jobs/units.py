"""Units: how much of a queue's data goes into one unit, and so into one frame of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from tidelog.aof.frame import BODY_BYTES_MAX
from tidelog.store.errors import PayloadTooLarge

T = TypeVar("T")

UNIT_BYTES: Final = 4 << 20  # of values; a larger value gets its own unit
# Of one value or result. The rest of a unit is for what stands beside it: headers, and the evidence of a dead job. So a
# job that could be put can also die.
PAYLOAD_BYTES_MAX: Final = BODY_BYTES_MAX - (1 << 20)


def checked_payload(queue: str, data: bytes) -> bytes:
    """An encoded value or result that a job of the queue can have. Raises PayloadTooLarge."""
    if len(data) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLarge(
            f"queue {queue!r}: a value of {len(data)} bytes is too large, a job takes at most {PAYLOAD_BYTES_MAX}; "
            "store it elsewhere, and put its place into the queue"
        )
    return data


def in_units(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Split the items, in order, into parts of at most UNIT_BYTES. A larger item is a part of its own; no part is
    empty.
    """
    part: list[T] = []
    total = 0
    for item in items:
        nbytes = size(item)
        if part and total + nbytes > UNIT_BYTES:
            yield part
            part, total = [], 0
        part.append(item)
        total += nbytes
    if part:
        yield part
