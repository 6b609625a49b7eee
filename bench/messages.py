"""The messages that every contender stores: the same content, in the form that suits each.

SMALL      two small fields, as an event of an application has them
RANDOM     one field of 100 random bytes
TEXT       one field of 100 random letters and digits, for queues that store nothing but text
TINY       one field of 16 bytes, where the number of messages is what matters
DICTS      a small dict each, which every contender encodes as JSON itself, inside the measured time
"""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass
from typing import Any, Final

DISTINCT: Final = 1_000  # messages repeat after this many, which is too many for caches to help
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

    def some_values(self, count: int) -> list[Any]:
        """The same messages as values for a queue with a codec."""
        return self.some_blobs(count)


@dataclass(frozen=True)
class JsonMessages(Messages):
    """Values that are encoded at each use, so that every contender's time includes the encoding."""

    values: list[Any]

    def some(self, count: int) -> list[dict[str, str | bytes]]:
        return [{"value": blob} for blob in self.some_blobs(count)]

    def some_blobs(self, count: int) -> list[bytes]:
        return [json.dumps(value).encode() for value in self.some_values(count)]

    def some_values(self, count: int) -> list[Any]:
        whole, rest = divmod(count, DISTINCT)
        return self.values * whole + self.values[:rest]


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
TEXT: Final = _make(
    "100 letters",
    [{"value": base64.b64encode(_random.randbytes(75))} for _ in range(DISTINCT)],
)
TINY: Final = _make("16 bytes", [{"value": b"%016d" % number} for number in range(DISTINCT)])
DICTS: Final = JsonMessages(
    "a small dict as JSON",
    [],
    [],
    [{"item": "tea", "amount": number % 10, "to": "harbour"} for number in range(DISTINCT)],
)
MESSAGES: Final = {"SMALL": SMALL, "RANDOM": RANDOM, "TEXT": TEXT, "TINY": TINY, "DICTS": DICTS}
