"""Values: what a key can hold, a `Stream` or `bytes` for a string."""

from __future__ import annotations

from tidelog.engine.integers import read_int64
from tidelog.engine.streams.stream import Stream

_EMBEDDED_BYTES_MAX = 44  # Redis stores a string of up to this length together with its header
# Approximate overhead in CPython, in bytes.
KEY_BYTES = 150
GROUP_BYTES = 2000
_CONSUMER_BYTES = 700
PENDING_BYTES = 64


class RawString(bytes):
    """A string that APPEND has changed. Only OBJECT ENCODING distinguishes it from other strings."""

    __slots__ = ()


def type_name(value: Stream | bytes) -> bytes:
    """The reply of TYPE."""
    return b"string" if isinstance(value, bytes) else b"stream"


def encoding_name(value: Stream | bytes) -> bytes:
    """The reply of OBJECT ENCODING."""
    if not isinstance(value, bytes):
        return b"stream"
    if isinstance(value, RawString):
        return b"raw"
    if read_int64(value) is not None:
        return b"int"
    return b"embstr" if len(value) <= _EMBEDDED_BYTES_MAX else b"raw"


def memory_bytes(key: bytes, value: Stream | bytes) -> int:
    """The approximate memory of a key and its value, in bytes."""
    if isinstance(value, bytes):
        return KEY_BYTES + len(key) + len(value)
    groups = sum(
        GROUP_BYTES + _CONSUMER_BYTES * len(group.consumers) + PENDING_BYTES * len(group.pending)
        for group in value.groups.values()
    )
    return KEY_BYTES + len(key) + value.memory() + groups
