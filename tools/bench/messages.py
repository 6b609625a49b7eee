"""The messages that every contender stores: the same content, in the form that suits each.

SMALL      two small fields, as an event of an application has them
RANDOM     one field of 100 random bytes
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

DISTINCT: Final = 1_000  # messages repeat after so many; enough that no cache helps
BATCH: Final = 1_000  # messages in one batch, everywhere


@dataclass(frozen=True)
class Messages:
    """A thousand different messages, as fields for streams and as one blob for plain queues."""

    name: str
    fields: list[dict[str, str | bytes]]
    blobs: list[bytes]

    def some(self, count: int) -> list[dict[str, str | bytes]]:
        """`count` messages as fields, repeating after `DISTINCT`."""
        whole, rest = divmod(count, DISTINCT)
        return self.fields * whole + self.fields[:rest]

    def some_blobs(self, count: int) -> list[bytes]:
        """The same messages as blobs."""
        whole, rest = divmod(count, DISTINCT)
        return self.blobs * whole + self.blobs[:rest]


def _small(number: int) -> dict[str, str | bytes]:
    return {"user": str(100_000 + number), "qty": str(number % 10)}


def _blob(fields: dict[str, str | bytes]) -> bytes:
    values = (value if isinstance(value, bytes) else value.encode() for value in fields.values())
    return b"\0".join(values)


def _make(name: str, fields: list[dict[str, str | bytes]]) -> Messages:
    return Messages(name, fields, [_blob(one) for one in fields])


_random = random.Random(5)
SMALL: Final = _make("two small fields", [_small(number) for number in range(DISTINCT)])
RANDOM: Final = _make(
    "100 random bytes", [{"body": _random.randbytes(100)} for _ in range(DISTINCT)]
)
