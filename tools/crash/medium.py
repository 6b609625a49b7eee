"""Medium: says what the disk of a directory is: its file system, its mount options, its cache, and the cost of a sync.

Whether the drive obeys a flush cannot be seen from a program.
"""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.disk.interface import File
from tidelog.disk.real import RealDisk

MOUNTS: Final = Path("/proc/self/mountinfo")
DEVICES: Final = Path("/sys/dev/block")
BYTES_MAX: Final = 1 << 20
BLOCK: Final = 4096
SYNCS: Final = 15
FILE: Final = "SYNCED"


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo."""

    device: str  # major:minor
    where: str
    options: str
    kind: str
    source: str


def mount_of(path: Path, text: str) -> Mount | None:
    """The mount that holds an absolute path, by the text of mountinfo; None if no line fits."""
    found = None
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, more = left.split(), right.split()
        if len(fields) < 6 or len(more) < 2:
            continue
        where = fields[4].replace("\\040", " ")
        inside = path == Path(where) or Path(where) in path.parents
        # A later mount hides an earlier one in the same place.
        if inside and (found is None or len(where) >= len(found.where)):
            found = Mount(fields[2], where, fields[5], more[0], more[1])
    return found


def words_of(directory: Path) -> str:
    """The disk of an existing directory, in words. Writes a file to it and removes that. Raises OSError."""
    mount = mount_of(directory.absolute(), _read(MOUNTS))
    growing, prepared = sync_costs(directory)
    parts = ["unknown file system"]
    if mount is not None:
        parts = [f"{mount.kind} ({mount.options}) on {mount.source}", _cache(mount)]
        if mount.kind in ("tmpfs", "ramfs"):
            parts.append("in memory, so a sync costs nothing and shows nothing")
    parts.append(
        f"fdatasync {growing:.2f} ms in a growing file, {prepared:.2f} ms in a prepared one"
    )
    return ", ".join(part for part in parts if part)


def sync_costs(directory: Path) -> tuple[float, float]:
    """Median milliseconds of a write of 4 KiB and its fdatasync, in a growing file and in a prepared one."""
    disk = RealDisk()
    path = directory / FILE
    file = disk.create(path)
    try:
        growing = _syncs(file)
        file.fsync()
        prepared = _syncs(file)
    finally:
        file.close()
        disk.unlink(path)
    return growing, prepared


def _syncs(file: File) -> float:
    times = []
    for number in range(SYNCS):
        started = time.perf_counter()
        file.write(number * BLOCK, b"x" * BLOCK)
        file.fdatasync()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def _cache(mount: Mount) -> str:
    """The cache of the device as the kernel has it; "" if it does not say."""
    for path in (DEVICES / mount.device, DEVICES / mount.device / ".."):
        text = _read(path / "queue" / "write_cache").strip()
        if text:
            kind = "volatile" if text == "write back" else "no volatile"
            return f"{kind} cache ({text})"
    return ""


def _read(path: Path) -> str:
    """The text of a file of the kernel, whose size is not known; "" if there is none."""
    try:
        file = RealDisk().open(path)
    except OSError:
        return ""
    with closing(file):
        return file.pread(BYTES_MAX, 0).decode(errors="replace")
