"""Memory of this process as the operating system counts it.

CPython's allocator keeps no useful totals, so all figures are the kernel's. Memory that the process has allocated is
its anonymous memory. Resident memory also includes the pages of mapped files that are in RAM, such as the
checkpoint's; the kernel reclaims those when it needs them.
"""

from __future__ import annotations

import os
import resource
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.disk.real import RealDisk

_STATUS: Final = Path("/proc/self/status")


class Memory(NamedTuple):
    """Bytes: allocated, resident, and peak resident."""

    used: int
    resident: int
    peak: int


def measure() -> Memory:
    """Measure the memory of this process."""
    try:
        with closing(RealDisk().open(_STATUS)) as file:
            text = file.pread(1 << 16, 0)
    except OSError:  # no /proc: only the peak is known
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return Memory(peak, peak, peak)
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(b":")
        if name in (b"RssAnon", b"VmRSS", b"VmHWM"):
            found[name] = int(value.split()[0]) << 10
    resident = found.get(b"VmRSS", 0)
    return Memory(found.get(b"RssAnon", resident), resident, found.get(b"VmHWM", resident))


def system_memory() -> int:
    """Bytes of RAM in this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
