"""A served store on a simulated disk that a test can hold up, fill and break."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.server.conftest import Running

import tidelog
import tidelog.testing
from tidelog.disk.simulated import SimulatedDisk


class Gate:
    """The disk's syncs wait while it is shut. `fails`: which operations raise which error."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.open = threading.Event()
        self.open.set()
        self.held = 0  # syncs that wait for it
        self.fails: dict[str, int] = {}
        disk.before = self

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "fdatasync":
            self.held += 1
            try:
                assert self.open.wait(60)
            finally:
                self.held -= 1
        if operation in self.fails:
            raise OSError(self.fails[operation], "injected", str(path))


@contextmanager
def simulated(fsync: str, **options: Any) -> Iterator[tuple[Running, Gate]]:
    """A server over a simulated disk."""
    disk = SimulatedDisk(1)
    store = {"clock": options.pop("clock")} if "clock" in options else {}
    db = tidelog.open("/db", fsync=fsync, disk=disk, **store)
    gate = Gate(disk)
    served = tidelog.serve(db, port=0, **options)
    try:
        with ExitStack() as stack:
            yield Running(db, served, served.port, Path("/db"), stack), gate
    finally:
        gate.open.set()
        gate.fails.clear()
        served.close()
        with suppress(tidelog.StorePoisoned):
            db.close()


def full(gate: Gate) -> None:
    gate.fails = dict.fromkeys(("create", "fill", "rename", "mkdir"), errno.ENOSPC)
