"""Snapshots of made-up data, for tests of what goes through disk/ alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidelog.aof.identity import DATA
from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.disk.interface import Disk
from tidelog.snapshot import portable
from tidelog.snapshot.content import Content
from tidelog.snapshot.manifest import Counts, DatabaseCount, Manifest, StreamCount
from tidelog.snapshot.portable import Snapshot

ROOT = Path("/db")
SNAPSHOTS = ROOT / "snapshots"
UUID = bytes(range(16))
T0 = 1_700_000_000_000


def content(lsn: int = 4711) -> Content:
    return Content(
        uuid=UUID,
        position=Position(lsn, 0x89ABCDEF, 1, 12345, 0xA1),
        epochs=(Epoch(1, 0xA1, 1),),
        now_ms=T0 + lsn,
        counts=Counts(
            databases=(DatabaseCount(0, 2, 1),),
            streams=1,
            entries=3,
            groups=1,
            pending=2,
            largest=(StreamCount(0, b"orders", 3, 1, 2),),
        ),
    )


def manifest(lsn: int = 4711) -> Manifest:
    found = content(lsn)
    return Manifest(
        uuid=found.uuid,
        position=found.position,
        epochs=found.epochs,
        now_ms=found.now_ms,
        created_ms=T0,
        data_bytes=8192,
        blake2b="ab" * 32,
        counts=found.counts,
    )


def data_of(lsn: int) -> bytes:
    """The kind of data.mdb that this LSN has here."""
    return b"%020d" % lsn * 1000


def copy(disk: Disk, lsn: int) -> Callable[[Path], None]:
    """Writes made-up data into a folder."""

    def write(folder: Path) -> None:
        file = disk.create(folder / DATA)
        data = data_of(lsn)
        for at in range(0, len(data), 7000):
            file.write(at, data[at : at + 7000])
        file.close()
        disk.create(folder / "lock.mdb").close()

    return write


def make(disk: Disk, lsn: int) -> Snapshot:
    """A snapshot of made-up data."""
    with portable.held(disk, SNAPSHOTS):
        return portable.publish(disk, SNAPSHOTS, copy(disk, lsn), lambda folder: content(lsn), T0)
