"""Stores in a temporary directory, which is removed at the end of the block, also after an exception."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.aof.log import SEGMENT_BYTES
from tidelog.api.opening import open_store
from tidelog.api.sync import Store
from tidelog.disk.interface import Disk
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.lifetime import close

if TYPE_CHECKING:
    from tidelog.api.aio import AsyncStore


@contextmanager
def store(
    clock: Clock | None = None,
    *,
    fsync: str = "no",
    decode_responses: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
    disk: Disk | None = None,
) -> Iterator[Store]:
    """An empty store in a temporary directory, which is closed and removed at the end of the block.

    Args:
        clock: A `testing.Clock`; None = the system clock.
        fsync: `no` by default, since a temporary store need not survive a power cut.
        decode_responses: As in `tidelog.open`.
        segment_bytes: As in `tidelog.open`.
        disk: The test's own file system, for example one that fails; None = the real one.

    Raises:
        DataError: An option is invalid.
        CannotOpen: The operating system refuses.
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
    """An empty store in a temporary directory, for asyncio: `async with`. As `testing.store`."""
    from tidelog.api.aopening import aopen_store  # here: synchronous tests need no asyncio

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
                # Close the store in the loop's thread. If another thread closed it, a cancelled task would remove the
                # directory while the store is still open.
                close(db._core)


@contextmanager
def _directory(disk: Disk | None) -> Iterator[Path]:
    """A temporary directory for the length of the block, created on `disk` too."""
    owner = os.getpid()
    place = Path(tempfile.mkdtemp(prefix="tidelog-"))
    try:
        if disk is not None:
            for folder in [*reversed(place.parents), place]:
                if not disk.exists(folder):  # a simulated disk begins empty
                    disk.mkdir(folder)
        yield place
    finally:
        if os.getpid() == owner:  # a forked child must not remove the directory of its parent
            shutil.rmtree(place)
