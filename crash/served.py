"""Served: open what a crash left with the real engine, and read everything that it serves.

A stage is where such disks are laid out: in memory, where a store has no checkpoints, or in a directory of the
operating system, where LMDB opens its file. A directory on tmpfs is best, since a sync costs nothing there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from tidelog.api.opening import open_store
from tidelog.api.sync import Store
from tidelog.crash.model import DATABASES, Contents, place
from tidelog.crash.oracle import Served
from tidelog.crash.trace import Tree, lay
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.plain import NotPlain
from tidelog.disk.real import RealDisk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.store.checkpoints import Checkpoints
from tidelog.store.clock import SYSTEM, Clock

STORE: Final = "store"  # the directory of the store below that of a trace
SEGMENT_BYTES: Final = 8192  # so that a short life has several segments
# Of idempotent production.
ONCE: Final = ("idmp-duration", "idmp-maxsize", "iids-added", "iids-duplicates", "iids-tracked")
KEPT: Final = 2  # snapshots; a further one removes the oldest
PENDING_MAX: Final = 1 << 30


class Stage(Protocol):
    """A place for disks. Each `lay` forgets the one before."""

    def lay(self, tree: Tree) -> tuple[Disk, Path]:
        """A disk that holds `tree`, and the directory in which it lies."""
        ...

    def clear(self) -> None: ...


class Memory:
    """Disks in memory. A store on them has no checkpoints."""

    def lay(self, tree: Tree) -> tuple[Disk, Path]:
        return SimulatedDisk.of({f"/{name}": content for name, content in tree.items()}), Path("/")

    def clear(self) -> None:
        pass


class Files:
    """Disks in directories below `scratch`, which exists."""

    def __init__(self, scratch: Path) -> None:
        self._disk = RealDisk()
        self._scratch = scratch
        self._number = 0

    def lay(self, tree: Tree) -> tuple[Disk, Path]:
        self.clear()
        self._number += 1
        # A disk remembers the directories that it guards, and compares each path with all of them.
        self._disk = RealDisk()
        root = self._root
        self._disk.mkdir(root)
        lay(self._disk, root, tree)
        return self._disk, root

    @property
    def _root(self) -> Path:
        return self._scratch / str(self._number)

    def clear(self) -> None:
        try:
            recipe.remove_tree(self._disk, self._root)
        except NotPlain as error:
            raise OSError(str(error)) from error


class Still:
    """A clock whose wall time stands still, so that a workload gets the same IDs in each run."""

    ms: Final = 1_700_000_000_000
    manual = False
    monotonic = staticmethod(time.monotonic)

    def time_ns(self) -> int:
        return self.ms * 1_000_000

    def ticked(self, callback: Callable[[], object]) -> None:
        """Do nothing: the clock is never moved."""


class Jumping:
    """A clock whose wall time is set, forwards and back, as by an administrator or a time server."""

    manual = False
    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.offset_ns = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.offset_ns

    def jump(self, seconds: int) -> None:
        """Set the wall time."""
        self.offset_ns += seconds * 1_000_000_000

    def ticked(self, callback: Callable[[], object]) -> None:
        """Do nothing: waiting goes by the monotonic clock."""


def open_on(
    disk: Disk,
    root: Path,
    policy: str,
    clock: Clock = SYSTEM,
    *,
    read_only: bool = False,
    budget: int | None = None,
) -> Store:
    """Open the store in a trace's directory. It makes no checkpoint by itself, and keeps no released segment.

    budget  bytes of data in memory after a checkpoint, also fewer than an option allows; None for all
    """
    db = open_store(
        root / STORE,
        fsync=policy,
        read_only=read_only,
        segment_bytes=SEGMENT_BYTES,
        checkpoint_bytes=0,
        save=(),
        keep_snapshots=KEPT,
        retain_bytes=0,
        disk=disk,
        clock=clock,
    )
    checkpoints = db._core.checkpoints
    if budget is not None and isinstance(checkpoints, Checkpoints):
        checkpoints.residence.budget = budget
    return db


def contents_of(db: Store) -> Contents:
    """Everything that a store serves, in the form of the model (crash/model.py)."""
    return {
        place(number, key): content_of(view, key)
        for number in range(DATABASES)
        for view in [db.db(number)]
        for key in keys_of(view)
    }


def keys_of(db: Store) -> list[bytes]:
    """The keys of a store that gives bytes, in one database."""
    return [key for key in db.keys() if isinstance(key, bytes)]


def content_of(db: Store, key: bytes) -> Any:
    """Everything that a store serves of one key."""
    ms = db.execute_command("PEXPIRETIME", key)
    content = db.get(key) if db.type(key) == b"string" else _stream(db, key)
    return content if ms < 0 else ("expires", ms, content)


def _stream(db: Store, key: bytes) -> Any:
    info: dict[str, Any] = db.xinfo_stream(key)
    entries = tuple(
        (entry_id, tuple(part for pair in fields.items() for part in pair))
        for entry_id, fields in db.xrange(key)
    )
    groups = tuple(sorted(_group(db, key, each) for each in db.xinfo_groups(key)))
    once = tuple(info[name] for name in ONCE)
    last, deleted = info["last-generated-id"], info["max-deleted-entry-id"]
    return entries, last, info["entries-added"], groups, deleted, once


def _group(db: Store, key: bytes, info: dict[str, Any]) -> tuple[Any, ...]:
    name = info["name"]
    pending = db.xpending_range(key, name, min="-", max="+", count=PENDING_MAX)
    consumers = sorted(each["name"] for each in db.xinfo_consumers(key, name))
    return (
        name,
        info["last-delivered-id"],
        tuple(consumers),
        tuple((each["message_id"], each["consumer"], each["times_delivered"]) for each in pending),
    )


def be_quiet() -> None:
    """Drop the log lines of this process's stores: they tell of torn tails, and here every store has one."""
    logger = logging.getLogger("tidelog")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


def serve(stage: Stage, image: Tree) -> Served:
    """Open the store that a crash left, read it, and close it."""
    disk, root = stage.lay(image)
    try:
        with open_on(disk, root, "no", Still()) as db:
            return Served(contents_of(db))
    except Exception as error:  # whatever it is, a legal crash must not cause it
        return Served(None, f"{type(error).__name__}: {error}")
