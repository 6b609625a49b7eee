"""The contents of a store's files, read from docs/FORMAT.md with struct, msgpack and lmdb alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lmdb
import msgpack

SEGMENT_BYTES: Final = 80
MAGIC: Final = 0xA1F4D71E
FRAME: Final = struct.Struct("<IIQIQQIII")
assert FRAME.size == 48


def without_preparation(data: bytes) -> bytes:
    """A segment without the zeros behind its last frame. A thread cuts them off some time after a segment ends."""
    at = SEGMENT_BYTES
    while at + FRAME.size <= len(data):
        magic, size, *_ = FRAME.unpack_from(data, at)
        if magic != MAGIC:
            break
        at += FRAME.size + size
    return data if data[at:].strip(b"\0") else data[:at]


def units(root: Path) -> Iterator[tuple[bytes, str]]:
    """(bytes, text) of every segment header and every frame of a log that was closed, and of what follows them."""
    for path in sorted((root / "aof").glob("*.aof")):
        data = without_preparation(path.read_bytes())
        yield data[:SEGMENT_BYTES], f"{path.name} header {data[:SEGMENT_BYTES].hex()}"
        at = SEGMENT_BYTES
        while at + FRAME.size <= len(data):
            magic, size, lsn, count, now, synced, before, _, _ = FRAME.unpack_from(data, at)
            if magic != MAGIC:
                break
            end = at + FRAME.size + size
            unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=size + 1)
            unpacker.feed(data[at + FRAME.size : end])
            records = " ".join(map(repr, unpacker))
            yield (
                data[at:end],
                f"{path.name} byte {at}: LSN {lsn}, {count} records, now {now}, synced {synced}, "
                f"after {before:08x}: {records}",
            )
            at = end
        yield data[at:], f"{path.name} byte {at}: {len(data) - at} bytes behind the last frame"


def rows(folder: Path) -> Iterator[tuple[bytes, str]]:
    """(bytes, text) of every row of a checkpoint or snapshot, in the order of the keys; nothing if there is none."""
    if not (folder / "data.mdb").exists():
        return
    with lmdb.open(str(folder), readonly=True, lock=False, max_dbs=0) as env:
        with env.begin() as txn:
            for key, value in txn.cursor():
                payload = value[:-4]
                if key[:1] in b"de":  # DATA and EXPIRY are no msgpack
                    text = payload.hex()
                else:
                    text = repr(msgpack.unpackb(payload, raw=True, strict_map_key=False))
                yield key + value, f"{key[:1].decode()} {key[1:].hex()}: {text}"
