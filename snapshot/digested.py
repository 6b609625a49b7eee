"""Digested: the digest of a store's state at one LSN, computed by a child process from checkpoint and log.

It reads beside the writer, and changes nothing. The whole state is read once, so it takes about as long as a snapshot.

The child writes the line OPENED when it has opened the checkpoint: from then on it needs no other one. Then it writes a
JSON object: `lsn`, `crc` and `digest`; or `error` and `beyond`: the LSN of the checkpoint if that holds more than the
wanted state, else 0.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.aof import identity
from tidelog.aof.errors import AofError, Vanished
from tidelog.aof.segment import HEADER_BYTES
from tidelog.aof.start import Start
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import State
from tidelog.snapshot.child import start_child
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.rows.opened import open_copy
from tidelog.snapshot.tail import NO_BOUND, Bound, follow

COMMAND: Final = ("-m", "tidelog.snapshot.digested")
OPENED: Final = b"opened\n"
ATTEMPTS: Final = 3  # the writer may release segments while they are read
_BEGINNING: Final = Start(0, 0, 1, HEADER_BYTES, 0, (), 0)


class Digested(NamedTuple):
    """The state of a store behind the frame that ends with `lsn` and has the header checksum `crc`."""

    lsn: int
    crc: int
    digest: str


class Beyond(Exception):
    """The checkpoint of the store holds more: the state at the wanted LSN is gone.

    lsn   the last one in the checkpoint
    """

    def __init__(self, lsn: int) -> None:
        super().__init__(f"the checkpoint holds everything through LSN {lsn} already")
        self.lsn = lsn


class NotDigested(Exception):
    """The state cannot be read, and why."""


class Digesting:
    """A child process that computes a digest."""

    def __init__(self, disk: Disk, root: Path, lsn: int = NO_BOUND) -> None:
        """Start it. By default it reads to the end of the log. Raises CheckpointError."""
        place = disk.beneath(root)
        if place is None:
            raise CheckpointError(f"{root}: a digest beside the writer needs a real disk")
        _, self._root = place
        words = (*COMMAND, str(self._root), str(lsn))
        self._child = start_child(words, self._root, buffered=False)
        self._first = b""  # line that it has written
        self._read = threading.Lock()  # held while a thread reads what it writes

    def opened(self) -> None:
        """Wait until it has opened the checkpoint, or has failed. Let no other checkpoint be written meanwhile."""
        assert self._child.stdout is not None
        with self._read:
            self._first = self._child.stdout.readline()

    def result(self) -> Digested:
        """Wait for it. Raises Beyond, NotDigested."""
        with self._read:
            out, errors = self._child.communicate()
        try:
            told: dict[str, Any] = json.loads((self._first + out).removeprefix(OPENED))
            if "digest" in told:
                return Digested(**told)
        except (ValueError, TypeError):
            lines = errors.decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else f"it ended with code {self._child.returncode}"
            raise NotDigested(f"the process that reads {self._root} failed: {why}") from None
        if told["beyond"]:
            raise Beyond(told["beyond"])
        raise NotDigested(told["error"])

    def end(self) -> None:
        """Kill it, if it still runs. From any thread."""
        assert self._child.stdout is not None
        self._child.kill()
        with self._read:
            if not self._child.stdout.closed:
                self._child.communicate()


def at(disk: Disk, root: Path, lsn: int, ready: Callable[[], object] = lambda: None) -> Digested:
    """The digest at `lsn`, or at the end of the log if that is before it.

    ready   called when the checkpoint is open
    Raises Beyond, AofError, CorruptBlock, OSError.
    """
    uuid = identity.read(disk, root)
    state, start = State(), _BEGINNING
    try:
        opened = open_copy(disk, root / identity.CHECKPOINT)
    except FileNotFoundError:
        opened = None
    try:
        if opened is not None:
            state, start = opened.state(), opened.meta.start
        if start.lsn > lsn:
            raise Beyond(start.lsn)
        ready()
        place = start.position
        if start.lsn < lsn:
            directory = root / identity.AOF
            place = follow(disk, directory, uuid, start, applier(state), Bound(lsn)).position
        return Digested(place.lsn, place.crc, digest(state))
    finally:
        if opened is not None:
            opened.close()


def main(root: Path, lsn: int) -> dict[str, Any]:
    """The work of the child."""
    os.nice(10)  # the store's own processes go first
    disk = RealDisk()

    def ready() -> None:
        sys.stdout.buffer.write(OPENED)
        sys.stdout.buffer.flush()

    for attempt in range(ATTEMPTS):
        try:
            return at(disk, root, lsn, ready if not attempt else lambda: None)._asdict()
        except Beyond as error:
            return {"error": str(error), "beyond": error.lsn}
        except (Vanished, FileNotFoundError) as error:
            if attempt == ATTEMPTS - 1:
                return {"error": str(error), "beyond": 0}
        except (AofError, CorruptBlock, OSError) as error:
            return {"error": str(error), "beyond": 0}
    raise AssertionError("the last attempt returns")


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
