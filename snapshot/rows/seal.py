"""The checksum of a row: CRC-32C of key and payload, 4 bytes little-endian, behind the payload in the row's value.

LMDB has no checksums of its own. A mismatch raises a CorruptBlock that names the row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.rows.rownames import row_name

CRC_BYTES: Final = 4


def sealed(key: bytes, payload: bytes) -> bytes:
    """A row's value: its payload and checksum."""
    return payload + crc32c_after(crc32c_of(key), payload).to_bytes(CRC_BYTES, "little")


def opened(path: Path | str, key: bytes, value: bytes) -> bytes:
    """The payload in a row's value. Raises CorruptBlock."""
    payload = value[:-CRC_BYTES]
    if crc32c_after(crc32c_of(key), payload) != int.from_bytes(value[-CRC_BYTES:], "little"):
        raise CorruptBlock(f"{path}: {row_name(key)} does not match its checksum")
    return payload
