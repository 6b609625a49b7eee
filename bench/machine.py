"""The machine of the measurement. A figure without its machine and file system says nothing."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
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


def optimised() -> str:
    """Whether the interpreter was built with PGO, which makes it up to 1.44 times as fast: "yes", "no", "unknown"."""
    told = sysconfig.get_config_var("CONFIG_ARGS")
    if told is None:
        return "unknown"
    if "--enable-optimizations" in told:
        return "yes"
    # Debian and Ubuntu start the profiled build themselves. Then they take the compiler's flag for it out of the
    # recorded configuration, in which every other build has it, used or not.
    return "yes" if sysconfig.get_config_var("PGO_PROF_USE_FLAG") == "" else "no"


def interpreter() -> str:
    """The interpreter, its version and its build."""
    built = {"yes": "built with PGO", "no": "built without PGO", "unknown": "PGO unknown"}
    return f"{platform.python_implementation()} {platform.python_version()}, {built[optimised()]}"


def describe(directory: Path) -> dict[str, str]:
    """Facts for the head of the report, in reading order."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "directory": str(directory),
        "file system": file_system(directory),
        "processor": f"{processor()}, {cores} cores",
        "python": interpreter(),
        "system": f"{platform.system()} {platform.release()}",
        "load": f"{os.getloadavg()[0]:.2f} before the run",
        "switch interval": f"{sys.getswitchinterval() * 1000:g} ms",
    }
