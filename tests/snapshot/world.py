"""Helpers of this folder's tests: environments in a directory, and rows in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import lmdb
import msgpack

from tidelog.disk.real import RealDisk
from tidelog.engine.rowkeys import META
from tidelog.snapshot.rows.environment import ColdRows, Environment, open_environment
from tidelog.snapshot.rows.seal import sealed

DISK = RealDisk()


@contextmanager
def environment(directory: Path, *, read_only: bool = False) -> Iterator[Environment]:
    env = open_environment(DISK, directory, read_only=read_only)
    try:
        yield env
    finally:
        env.close()


@contextmanager
def cold(env: Environment) -> Iterator[ColdRows]:
    rows = ColdRows(env)
    try:
        yield rows
    finally:
        rows.close()


def write(env: Environment, rows: dict[bytes, bytes]) -> None:
    writing = env.write()
    for key, payload in rows.items():
        writing.put(key, payload)
    writing.commit()
    env.extend()


def without_sums(folder: Path, *dropped: bytes, put: Mapping[bytes, bytes] = {}) -> None:
    """Make of a checkpoint one of a version that did not say which rows it holds; drop rows from it, and put others."""
    with lmdb.Environment(str(folder), map_size=1 << 30) as env, env.begin(write=True) as txn:
        fields = msgpack.unpackb((txn.get(META) or b"")[:-4], strict_map_key=False)
        del fields["sums"]
        txn.put(META, sealed(META, msgpack.packb(fields)))
        for row in dropped:
            assert txn.delete(row)
        for row, payload in put.items():
            txn.put(row, sealed(row, payload))
