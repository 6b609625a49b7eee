"""One thing alone changes between two checkpoints: the second one holds it, and a store opened from it shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import inside

import tidelog
from tidelog import testing

QUIET: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
ENTRIES = 300  # in several chunks of pending entries, and several nodes
NARROW = [f"{n}-1" for n in range(1, ENTRIES + 1)]
WIDE = [f"{n}-{1 << 40}" for n in range(1, ENTRIES + 1)]  # these IDs do not fit 64 bits
AT = ENTRIES // 2
PENDING = 14  # changes that depend on how IDs are kept


class World:
    """A store with a stream `s`, whose entries are pending for `anna`; of `ben` and `idle` nothing is."""

    def __init__(self, path: Path, ids: list[str]) -> None:
        self.path, self.ids = path, ids
        self.clock = testing.Clock()
        self.db = self.opened()
        inside.core(self.db).settings.stream_node_max_entries = 20
        for entry_id in ids:
            self.db.xadd("s", {"n": entry_id}, id=entry_id)
        self.db.xgroup_create("s", "g", id="0")
        for name in ("ben", "idle"):
            self.db.xgroup_createconsumer("s", "g", name)
        self.db.xreadgroup("g", "anna", {"s": ">"})
        self.db.set("k", "v")
        self.delivered = self.clock.time_ns() // 1_000_000
        self.clock.advance(5)

    def opened(self) -> tidelog.Store:
        return tidelog.open(self.path, clock=self.clock, **QUIET)

    def claim(self, ids: list[str], owner: str = "anna", time: int = 0, count: int = 1) -> None:
        """As XCLAIM sets it, whatever it was: by default as it is."""
        words = ["XCLAIM", "s", "g", owner, 0, *ids, "TIME", self.delivered + time]
        self.db.execute_command(*words, "RETRYCOUNT", count, "JUSTID")

    def show(self) -> dict[str, Any]:
        """All that a reader can see, and the digest of the rest."""
        db = self.db
        found: dict[str, Any] = {
            "digest": db.digest(),
            "stream": db.execute_command("XINFO", "STREAM", "s", "FULL", "COUNT", 0),
            "entries": db.xrange("s"),
            "ttl": (db.pexpiretime("s"), db.pexpiretime("k")),
            "k": db.get("k"),
        }
        for group in db.xinfo_groups("s"):
            name = group["name"]
            found[f"group {name}"] = group
            found[f"pending {name}"] = db.xpending_range("s", name, "-", "+", 2 * ENTRIES)
            found[f"consumers {name}"] = db.xinfo_consumers("s", name)
        return found


CHANGES: dict[str, Callable[[World], object]] = {
    # A pending entry, or a run of them.
    "delivery count": lambda w: w.claim([w.ids[AT]], count=7),
    "delivery count of the last": lambda w: w.claim([w.ids[-1]], count=7),
    "delivery counts of a run": lambda w: w.claim(w.ids[AT - 40 : AT + 40], count=7),
    "delivery counts of all": lambda w: w.claim(w.ids, count=7),
    "delivery counts of some": lambda w: w.claim(w.ids[3::9], count=7),
    "delivery time": lambda w: w.claim([w.ids[AT]], time=1),
    "an earlier delivery time": lambda w: w.claim([w.ids[AT]], time=-1),
    "delivery times of a run": lambda w: w.claim(w.ids[AT - 40 : AT + 40], time=1),
    "owner": lambda w: w.claim([w.ids[AT]], owner="ben"),
    "owner of a run": lambda w: w.claim(w.ids[AT - 40 : AT + 40], owner="ben"),
    "acknowledged": lambda w: w.db.xack("s", "g", w.ids[AT]),
    "acknowledged run": lambda w: w.db.xack("s", "g", *w.ids[AT - 40 : AT + 40]),
    "released": lambda w: w.db.execute_command(
        "XNACK", "s", "g", "SILENT", "IDS", 1, w.ids[AT]
    ),
    "history read again": lambda w: w.db.xreadgroup("g", "anna", {"s": w.ids[AT]}, count=1),
    # These were PENDING. A consumer, or a group.
    "seen-time": lambda w: w.claim([w.ids[AT]]),
    "new consumer": lambda w: w.db.xgroup_createconsumer("s", "g", "new"),
    "consumer gone": lambda w: w.db.xgroup_delconsumer("s", "g", "idle"),
    "last delivered": lambda w: w.db.xgroup_setid("s", "g", w.ids[AT]),
    "entries read": lambda w: w.db.xgroup_setid("s", "g", w.ids[-1], entries_read=7),
    "new group": lambda w: w.db.xgroup_create("s", "h", id="0"),
    "group gone": lambda w: w.db.xgroup_destroy("s", "g"),
    # The stream.
    "deleted entry": lambda w: w.db.xdel("s", w.ids[AT]),
    "deleted last entry": lambda w: w.db.xdel("s", w.ids[-1]),
    "trimmed": lambda w: w.db.xtrim("s", maxlen=ENTRIES - 1, approximate=False),
    "last ID": lambda w: w.db.execute_command("XSETID", "s", "999-0"),
    "entries added": lambda w: w.db.execute_command("XSETID", "s", w.ids[-1], "ENTRIESADDED", 999),
    "max deleted ID": lambda w: w.db.execute_command(
        "XSETID", "s", w.ids[-1], "MAXDELETEDID", w.ids[3]
    ),
    "dedup ID": lambda w: w.db.execute_command(
        "XADD", "s", "IDMP", "p", "i", "MAXLEN", "=", ENTRIES, "*", "f", "v"
    ),
    # A key.
    "expiry": lambda w: w.db.pexpire("s", 10_000_000),
    "expiry of a string": lambda w: w.db.pexpire("k", 10_000_000),
    "string": lambda w: w.db.set("k", "w"),
    "string that grew": lambda w: w.db.append("k", "w"),
}  # fmt: skip


CASES = [
    (name, wide, cold)
    for at, name in enumerate(CHANGES)
    for wide in (False, True)
    for cold in (False, True)
    if not wide or at < PENDING
]


@pytest.mark.parametrize("name, wide, cold", CASES)
def test_it_is_in_the_second_checkpoint(tmp_path: Path, name: str, wide: bool, cold: bool) -> None:
    world = World(tmp_path / "s", WIDE if wide else NARROW)
    try:
        world.db.checkpoint()
        if cold:
            world.db.close()
            world.db = world.opened()
        before = world.show()
        CHANGES[name](world)
        changed = world.show()
        assert changed != before, "the test changes nothing"
        world.db.checkpoint()
        assert world.show() == changed
        world.db.close()
        world.db = world.opened()
        assert world.show() == changed
    finally:
        world.db.close()
