"""How should a frame of a hundred bytes get into the kernel? Measured, alone and beside a busy thread.

Run `python -m tidelog.tools.bench.processes.append [DIRECTORY]`; docs/decisions/ holds the page that its
figures decided. Four ways to append to a zero-filled file of 64 MiB are compared, each one call
per frame, in interleaved slices, medians over the rounds:

    os.pwrite       gives up the interpreter lock around the system call
    mmap slice      a memory copy into a shared mapping; keeps the lock
    PyDLL pwrite    the same system call through ctypes.PyDLL, which keeps the lock
    os.write        into a growing file, for comparison

"beside" runs one CPU-bound Python thread in the same process, as a consumer of an embedded store is.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable

FRAME = bytes(range(118))
FILE_BYTES = 64 << 20
ROUNDS = 7
SLICE_S = 0.25


def zero_filled(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    zeros = bytes(32 << 10)  # larger pieces would make every later small write slower
    for _ in range(FILE_BYTES // len(zeros)):
        os.write(fd, zeros)
    os.fsync(fd)
    return fd


def rate(append: Callable[[int], object]) -> float:
    """Appends per second over one slice."""
    limit = FILE_BYTES - len(FRAME)
    offset = calls = 0
    start = time.perf_counter()
    end = start + SLICE_S
    while time.perf_counter() < end:
        for _ in range(64):
            append(offset)
            offset += len(FRAME)
            if offset > limit:
                offset = 0
        calls += 64
    return calls / (time.perf_counter() - start)


def spin(stop: threading.Event) -> None:
    n = 0
    while not stop.is_set():
        for _ in range(1000):
            n += 1


def methods(directory: str) -> dict[str, Callable[[int], object]]:
    fd = zero_filled(os.path.join(directory, "prefilled"))
    mapped = mmap.mmap(fd, FILE_BYTES)
    grown = os.open(os.path.join(directory, "grown"), os.O_WRONLY | os.O_CREAT, 0o600)
    c_pwrite = ctypes.PyDLL(None, use_errno=True).pwrite
    c_pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_longlong)
    c_pwrite.restype = ctypes.c_ssize_t
    pwrite, write, frame, size = os.pwrite, os.write, FRAME, len(FRAME)

    def by_mmap(offset: int) -> None:
        mapped[offset : offset + size] = frame

    return {
        "os.pwrite": lambda offset: pwrite(fd, frame, offset),
        "mmap slice": by_mmap,
        "PyDLL pwrite": lambda offset: c_pwrite(fd, frame, size, offset),
        "os.write, growing": lambda offset: write(grown, frame),
    }


def main() -> None:
    where = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=where) as directory:
        ways = methods(directory)
        alone: dict[str, list[float]] = {name: [] for name in ways}
        beside: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, append in ways.items():
                alone[name].append(rate(append))
            stop = threading.Event()
            thread = threading.Thread(target=spin, args=(stop,), daemon=True)
            thread.start()
            for name, append in ways.items():
                beside[name].append(rate(append))
            stop.set()
            thread.join()
    print(f"{'append of 118 bytes':22}{'alone, /s':>14}{'beside, /s':>14}{'beside/alone':>14}")
    for name in ways:
        one, two = statistics.median(alone[name]), statistics.median(beside[name])
        print(f"{name:22}{one:14,.0f}{two:14,.0f}{two / one:14.3f}")


if __name__ == "__main__":
    main()
