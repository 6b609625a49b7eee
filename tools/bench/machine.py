"""The machine of the measurement. A figure without its machine and file system says nothing."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}


def file_system(directory: Path) -> str:
    """The type of the file system that holds `directory`, such as "ext4". "unknown" without /proc."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    found = "unknown"
    for line in lines:
        mount, _, rest = line.partition(" - ")
        if mount.split()[2] == wanted:
            found = rest.split()[0]
    return found


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe(directory: Path) -> dict[str, str]:
    """Facts for the head of the report, in reading order."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "directory": str(directory),
        "file system": file_system(directory),
        "processor": f"{processor()}, {cores} cores",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}",
        "load": f"{os.getloadavg()[0]:.2f} before the run",
        "switch interval": f"{sys.getswitchinterval() * 1000:g} ms",
    }
