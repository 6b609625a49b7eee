"""Errors of the RDB codec. Each says at which byte of the image, and why."""

from __future__ import annotations


class RdbError(Exception):
    """An RDB image cannot be read. `offset` is the byte at which reading stopped."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"byte {offset}: {reason}")
        self.offset, self.reason = offset, reason


class RdbDamaged(RdbError):
    """The bytes contradict themselves, or a checksum: take another copy."""


class RdbCut(RdbDamaged):
    """The image ends in the middle."""


class RdbUnknown(RdbError):
    """The image has a version, a type or an opcode that this codec does not know: a newer Redis wrote it."""
