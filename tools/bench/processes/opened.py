"""Calls on a store with checkpoints, run in a fresh process: filling, the first call after a restart, cold reads.

Every method returns values that JSON can carry. Times are in seconds unless stated otherwise.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tidelog
from tidelog.tools.bench.bench import EVERYSEC
from tidelog.tools.bench.contenders.ours import CONSUMER, GROUP, STREAM
from tidelog.tools.bench.messages import BATCH, RANDOM, SENSOR, Messages
from tidelog.tools.bench.processes.fresh import timed

# Settings of a store that writes a checkpoint only on request or when it is closed.
BY_HAND: dict[str, Any] = {"checkpoint_bytes": 0, "save": ()}
KINDS: dict[str, Messages] = {"sensors": SENSOR, "random": RANDOM}
DATA = Path("checkpoint", "data.mdb")
PAGE = 1_000  # entries of a page of a scan

FIRST: dict[str, Callable[..., object]] = {
    "XLEN": lambda db: db.xlen(STREAM),
    "last entry": lambda db: db.xrevrange(STREAM, count=1),
    "XADD": lambda db: db.xadd(STREAM, SENSOR.fields[0]),
    "XREADGROUP": lambda db: db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=1),
    "XACK": lambda db, id: db.xack(STREAM, GROUP, id),
}


def first(path: str, what: str, *arguments: object) -> dict[str, float]:
    """Open a store and call one command: the seconds of both, and of the command alone.

    When the store is closed, it has an empty tail again, for the next call.
    """
    call = FIRST[what]
    start = time.perf_counter()
    db: Any = tidelog.open(path, fsync=EVERYSEC)
    opened = time.perf_counter()
    call(db, *arguments)
    done = time.perf_counter()
    if what in ("XADD", "XREADGROUP", "XACK"):
        db.checkpoint()
    db.close()
    return {"both": done - start, "call": done - opened}


class First:
    """`first` as an object for `Fresh`."""

    def first(self, path: str, what: str, *arguments: object) -> dict[str, float]:
        return first(path, what, *arguments)

    def close(self) -> None: ...


class Opened:
    """An open store with one stream and one group, created if missing.

    kind        of the messages added: "sensors" or "random"
    options     of `tidelog.open`; by default nothing but `checkpoint` makes a checkpoint
    """

    def __init__(self, path: str, kind: str = "sensors", **options: Any) -> None:
        self.path = Path(path)
        self.messages = KINDS[kind]
        self.db: Any = tidelog.open(path, fsync=EVERYSEC, **(options or BY_HAND))
        if not self.db.exists(STREAM):
            self.db.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        self._next = b"-"  # where the scan goes on

    def close(self) -> None:
        self.db.close()

    def checkpoint(self) -> float:
        """Seconds of one checkpoint."""
        return timed(self.db.checkpoint)

    def timed(self, method: str, *arguments: Any) -> float:
        """Seconds that another of these methods takes."""
        return timed(getattr(self, method), *arguments)

    # --- adding

    def add(self, count: int, key: str = STREAM) -> None:
        """`count` entries by `xadd_many`."""
        for at in range(0, count, BATCH):
            self.db.xadd_many(key, self.messages.some(min(BATCH, count - at)))

    def fill(self, count: int, samples: int) -> list[str]:
        """Add `count` entries; IDs of about `samples` of them, drawn evenly, in random order."""
        draw = random.Random(count)
        every = max(1, count // samples)
        ids: list[str] = []
        for at in range(0, count, BATCH):
            added = self.db.xadd_many(STREAM, self.messages.some(min(BATCH, count - at)))
            starts = range(-at % every, len(added), every)
            ids += [added[min(i + draw.randrange(every), len(added) - 1)].decode() for i in starts]
        draw.shuffle(ids)
        return ids

    def add_apart(self, count: int, checkpoints: int) -> dict[str, float]:
        """Bytes per entry after `count` entries, one a second, with so many checkpoints on the way.

        on_disk: of the blocks that the file system gave; length: of the file, which may have holes
        """
        draw = random.Random(count)
        ms = 1_700_000_000_000
        for _ in range(checkpoints):
            for _ in range(count // checkpoints // BATCH):
                pipeline = self.db.pipeline(transaction=False)
                for fields in self.messages.some(BATCH):
                    ms += 1_000 + draw.randrange(-3, 4)
                    pipeline.xadd(STREAM, fields, id=f"{ms}-0")
                pipeline.execute()
            self.db.checkpoint()
        found = os.stat(self.path / DATA)
        entries = self.db.xlen(STREAM)
        return {"on_disk": found.st_blocks * 512 / entries, "length": found.st_size / entries}

    def drop_newest(self, count: int) -> None:
        """Delete the `count` newest entries, in the checkpoint too."""
        for at in range(0, count, BATCH):
            newest = self.db.xrevrange(STREAM, count=min(BATCH, count - at))
            self.db.xdel(STREAM, *[id for id, _ in newest])
        self.db.checkpoint()

    # --- consuming

    def take(self, count: int, at_once: int) -> None:
        """`count` entries, read through the group and acknowledged."""
        db = self.db
        for _ in range(count // at_once):
            reply = db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=at_once)
            db.xack(STREAM, GROUP, *[id for id, _ in reply[0][1]])

    def deliver(self, count: int, samples: int = 0) -> list[str]:
        """Have `count` entries pending; IDs of `samples` of them, drawn evenly, in random order."""
        every = count // samples if samples else count
        ids: list[str] = []
        for at in range(0, count, BATCH):
            some = min(BATCH, count - at)
            reply = self.db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=some)
            starts = range(-at % every, some, every) if samples else ()
            ids += [reply[0][1][i][0].decode() for i in starts]
        random.Random(count).shuffle(ids)
        return ids

    def acknowledge(self, count: int) -> None:
        """Acknowledge the `count` oldest pending entries, page by page."""
        db = self.db
        for at in range(0, count, BATCH):
            some = min(BATCH, count - at)
            page = db.xpending_range(STREAM, GROUP, min="-", max="+", count=some)
            db.xack(STREAM, GROUP, *[one["message_id"] for one in page])

    # --- reading

    def scan(self, pages: int) -> float:
        """Entries per second over the next `pages` pages; at the end of the stream it starts again."""
        xrange = self.db.xrange
        found = 0
        start = time.perf_counter()
        for _ in range(pages):
            page = xrange(STREAM, min=self._next, count=PAGE)
            found += len(page)
            self._next = b"(" + page[-1][0] if len(page) == PAGE else b"-"
        return found / (time.perf_counter() - start)

    def read_each(self, ids: list[str]) -> list[float]:
        """Microseconds of reading each of these entries by its ID, in this order. Raises LookupError."""
        xrange, clock = self.db.xrange, time.perf_counter_ns
        spent = []
        for id in ids:
            start = clock()
            page = xrange(STREAM, min=id, max=id)
            spent.append((clock() - start) / 1_000)
            if not page:
                raise LookupError(f"{id} is missing")
        return spent
