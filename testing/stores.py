"""Stores in a temporary directory, which goes when the block ends, however it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.aof.log import SEGMENT_BYTES
from tidelog.disk.interface import Disk
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.lifetime import close
from tidelog.store.opening import open_store
from tidelog.store.sync import Store

if TYPE_CHECKING:
    from tidelog.store.aio import AsyncStore


@contextmanager
def store(
    clock: Clock | None = None,
    *,
    fsync: str = "no",
    decode_responses: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
    disk: Disk | None = None,
) -> Iterator[Store]:
    """An empty store; closed, and its directory removed, at the end of the block.

    clock   a `testing.Clock`; None = the system's
    fsync   `no`, since what is thrown away need not survive a power cut
    disk    a file system of the test's own, such as one that fails; None = the real one

    The other options, and what is raised, are those of `tidelog.open`.
    """
    with (
        _directory(disk) as place,
        open_store(
            place / "store",
            fsync=fsync,
            decode_responses=decode_responses,
            segment_bytes=segment_bytes,
            disk=disk,
            clock=clock or SYSTEM,
        ) as db,
    ):
        yield db


@asynccontextmanager
async def astore(
    clock: Clock | None = None,
    *,
    fsync: str = "no",
    decode_responses: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
    disk: Disk | None = None,
) -> AsyncIterator[AsyncStore]:
    """`store` for asyncio, with the options of `tidelog.aopen`."""
    from tidelog.store.aio import aopen_store  # not with the rest: see tidelog.__getattr__

    with _directory(disk) as place:
        async with aopen_store(
            place / "store",
            fsync=fsync,
            decode_responses=decode_responses,
            segment_bytes=segment_bytes,
            disk=disk,
            clock=clock or SYSTEM,
        ) as db:
            try:
                yield db
            finally:
                # In the loop's thread: a task that is cancelled while another thread closes the store
                # would remove the directory under it.
                close(db._core)


@contextmanager
def _directory(disk: Disk | None) -> Iterator[Path]:
    """A directory of its own, on `disk` too, for the length of the block."""
    owner = os.getpid()
    place = Path(tempfile.mkdtemp(prefix="tidelog-"))
    try:
        if disk is not None:
            for folder in [*reversed(place.parents), place]:
                if not disk.exists(folder):  # a simulated disk begins empty
                    disk.mkdir(folder)
        yield place
    finally:
        if os.getpid() == owner:  # not in a forked child that unwinds: this is the parent's
            shutil.rmtree(place)
