"""Small stores with a little of everything, for tests of snapshots on real files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import tidelog
from tidelog.disk.real import RealDisk

DISK = RealDisk()


def opened(root: Path, **options: Any) -> tidelog.Store:
    """A store that makes checkpoints only when it is asked to."""
    return tidelog.open(root, **{"fsync": "no", "checkpoint_bytes": 0, "save": (), **options})


def work(db: tidelog.Store, rng: random.Random, steps: int) -> None:
    """Random commands of many kinds, some of them units of several records."""
    for _ in range(steps):
        key = f"s{rng.randrange(5)}"
        way = rng.random()
        if way < 0.45:
            db.xadd(key, {"n": rng.randrange(1000), "pad": "x" * rng.randrange(60)})
        elif way < 0.55:
            db.xadd_many(key, [{"n": i} for i in range(rng.randrange(1, 30))])
        elif way < 0.65:
            with db.pipeline(transaction=True) as unit:
                for i in range(rng.randrange(2, 5)):
                    unit.xadd(f"s{rng.randrange(5)}", {"i": i})
                unit.execute()
        elif way < 0.75:
            if not db.exists(key) or not db.xinfo_groups(key):
                db.xgroup_create(key, "g", id="0", mkstream=True)
            for _, entries in db.xreadgroup("g", f"c{rng.randrange(3)}", {key: ">"}, count=7):
                if rng.random() < 0.5:
                    db.xack(key, "g", *(entry_id for entry_id, _ in entries))
        elif way < 0.82:
            db.xtrim(key, maxlen=rng.randrange(40, 400))
        elif way < 0.88:
            found = db.xrange(key, count=9)
            if found:
                db.xdel(key, *(entry_id for entry_id, _ in found[::2]))
        elif way < 0.90:
            found = db.xrevrange(key, count=rng.randrange(2, 20))[::-1]
            if len(found) > 1:  # the IDs of the newest entries are given again
                last = db.xinfo_stream(key)["last-generated-id"]
                with db.pipeline(transaction=True) as unit:
                    unit.xdel(key, *(entry_id for entry_id, _ in found[1:]))
                    unit.execute_command("XSETID", key, last, "MAXDELETEDID", "0-1")
                    unit.execute_command("XSETID", key, found[0][0])
                    for entry_id, _ in found[1:]:
                        unit.xadd(key, {"again": 1}, id=entry_id)
                    unit.execute()
        elif way < 0.94:
            db.set(f"k{rng.randrange(9)}", "v" * rng.randrange(50))
        elif way < 0.96:
            db.pexpire(f"k{rng.randrange(9)}", 10_000_000)
        elif way < 0.98:
            db.delete(f"k{rng.randrange(9)}")
        else:
            db.delete(key)
