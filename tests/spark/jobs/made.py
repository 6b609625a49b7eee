"""A store with a busy group and a slow one, its snapshots, and what happened as rows of the table `events`."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import tidelog
from tidelog.testing import Clock

EVENTS = (
    "lsn BIGINT, unit_end BOOLEAN, ts TIMESTAMP, db INT, event STRING, stream BINARY, `group` BINARY, "
    "consumer BINARY, id STRING, delivery_count BIGINT, delivered_at TIMESTAMP, "
    "fields ARRAY<STRUCT<name: BINARY, value: BINARY>>"
)
Event = tuple[Any, ...]


class Told(NamedTuple):
    """The facts about the store that are known without reading its files.

    groups      for each snapshot: its path, LSN, and group -> (lag, pending, entries read)
    pending     (group, id) -> (consumer or b"", when it was delivered, how often), at the last snapshot
    entries     (stream, id, fields) at the last snapshot
    events      rows of the schema EVENTS
    deleted     IDs of deleted entries
    """

    path: Path
    groups: list[tuple[str, int, dict[bytes, tuple[Any, int, Any]]]]
    pending: dict[tuple[bytes, str], tuple[bytes, datetime, int]]
    entries: list[tuple[bytes, str, dict[bytes, bytes]]]
    events: list[Event]
    deleted: set[str]


class Shop:
    """Adds orders and works on them, and writes down what it did."""

    def __init__(self, path: Path, seed: int) -> None:
        self.r = random.Random(seed)
        self.clock = Clock()
        self.db = tidelog.open(path, fsync="no", clock=self.clock)
        self.events: list[Event] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.open: dict[str, dict[str, str]] = {"packers": {}, "billing": {}}
        self.deleted: set[str] = set()

    def note(
        self, event: str, id: str, group: str | None = None, worker: str | None = None
    ) -> None:
        now, count = self.clock.now(), None
        if group is not None:
            count = self.counts.get((group, id))
        delivered = None if worker is None else now
        row = (
            *(len(self.events) + 1, True, now, 0, event, b"orders"),
            *(group and group.encode(), worker and worker.encode(), id, count, delivered, None),
        )
        self.events.append(row)

    def step(self) -> None:
        r, db = self.r, self.db
        self.clock.advance(r.choice((0.001, 0.25, 3, 47)))
        group = r.choice(("packers", "packers", "packers", "billing"))
        worker, held = r.choice(("ann", "ben")), self.open[group]
        what = r.random()
        if what < 0.35:
            size = r.choice((3, 40))
            fields = {"user": f"u{r.randrange(9)}", "note": "x" * r.randrange(size)}
            added: Any = db.xadd("orders", fields)
            self.note("added", added.decode())
        elif what < 0.65:
            found = db.xreadgroup(group, worker, {"orders": ">"}, count=2)
            for raw, _ in found[0][1] if found else ():
                id = raw.decode()
                self.counts[group, id] = 1
                held[id] = worker
                self.note("delivered", id, group, worker)
        elif what < 0.84 and held:
            id = r.choice(sorted(held)[:2])
            db.xclaim("orders", group, worker, 0, [id])
            if id in self.deleted:  # a claim drops what is gone
                del held[id]
                return
            self.counts[group, id] += 1
            held[id] = worker
            self.note("claimed", id, group, worker)
        elif what < 0.94 and held:
            id = r.choice(sorted(held))
            db.xack("orders", group, id)
            del held[id]
            self.note("acknowledged", id, group)
        elif held:
            self.delete(r.choice(sorted(held)))

    def delete(self, id: str) -> None:
        self.db.xdel("orders", id)
        self.deleted.add(id)


def made(path: Path, seed: int = 10) -> Told:
    shop = Shop(path, seed)
    db = shop.db
    for group in shop.open:
        db.xgroup_create("orders", group, id="0", mkstream=True)
    groups = []
    for last in (False, False, True):
        for _ in range(100):
            shop.step()
        if last:
            shop.delete(max(shop.open["packers"], key=lambda id: shop.counts["packers", id]))
        snapshot = db.snapshot()
        found = {
            each["name"]: (each["lag"], each["pending"], each["entries-read"])
            for each in db.xinfo_groups("orders")
        }
        groups.append((str(snapshot.path), snapshot.lsn, found))
    pending = {}
    for group in shop.open:
        for row in db.xpending_range("orders", group, "-", "+", 10_000):
            since = row["time_since_delivered"]
            at = shop.clock.now().timestamp() * 1000 - since
            moment = datetime.fromtimestamp(round(at) / 1000, shop.clock.now().tzinfo)
            key = group.encode(), row["message_id"].decode()
            pending[key] = row["consumer"], moment, row["times_delivered"]
    entries = [(b"orders", id.decode(), fields) for id, fields in db.xrange("orders")]
    db.close()
    return Told(path, groups, pending, entries, shop.events, shop.deleted)


def ms_of(id: str) -> int:
    return int(id.partition("-")[0])


def unix_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def rank(values: list[int], share: float) -> int | None:
    """The value at this share of the sorted values, by the nearest rank."""
    return sorted(values)[max(0, -int(-share * len(values) // 1) - 1)] if values else None
