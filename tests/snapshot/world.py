"""What the tests of this folder have in common: environments in a directory, and rows in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.disk.real import RealDisk
from tidelog.snapshot.environment import ColdRows, Environment, open_environment

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
