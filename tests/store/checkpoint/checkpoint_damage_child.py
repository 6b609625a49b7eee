"""Opens a store whose checkpoint was damaged, over and over, and compares all it can be asked with what is right.

    python checkpoint_damage_child.py DIRECTORY FIRST LAST

One line of output per seed, flushed: LMDB may end this process at any of them.

    SEED right      every answer was right             SEED damaged TEXT     some calls, or the open, said StoreDamaged
    SEED wrong TEXT an answer was not right, or an error of another kind
"""

from __future__ import annotations

import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import tidelog

STREAMS = [f"s{n}" for n in range(4)]
KEYS = [f"k{n}" for n in range(60)]


def fill(directory: Path, **options: Any) -> None:
    """A store with everything in its checkpoint and nothing in memory or in the log."""
    r = random.Random(5)
    with tidelog.open(
        directory, fsync="no", checkpoint_bytes=0, save=(), retain_bytes=0, **options
    ) as db:
        for n, key in enumerate(STREAMS):
            for i in range(6):
                db.xadd_many(key, [{"n": j, "pad": r.randbytes(40)} for j in range(120 * n + 3)])
            if n:
                db.xgroup_create(key, "g", id="0")
                db.xgroup_create(key, "h", id="0")
                db.xreadgroup("g", "c1", {key: ">"}, count=300 * n)
                db.xreadgroup("g", "c2", {key: ">"}, count=100)
            if n == 2:
                db.checkpoint()
            ids = [entry_id for entry_id, _ in db.xrange(key)]
            db.xdel(key, *r.sample(ids, len(ids) // 20 + 1))
            if n == 3:
                db.xtrim(key, minid=ids[len(ids) // 5])
        for n, key in enumerate(KEYS):
            db.set(key, r.randbytes(n * 20))
            if n % 3 == 0:
                db.pexpire(key, 10**12)
        db.checkpoint()


def questions(db: tidelog.Store) -> list[tuple[str, Any]]:
    """(what, a call) for everything that a store can be asked."""
    found: list[tuple[str, Any]] = [
        ("dbsize", db.dbsize),
        ("keys", lambda: sorted(db.keys("*"))),
        ("scan", lambda: sorted(db.scan_iter(count=7))),
    ]
    for key in KEYS + ["none"]:
        found.append((f"get {key}", lambda key=key: db.get(key)))
        found.append((f"ttl {key}", lambda key=key: db.ttl(key) > 0))
        found.append((f"exists {key}", lambda key=key: db.exists(key)))
    for key in STREAMS:
        found += [
            (f"xlen {key}", lambda key=key: db.xlen(key)),
            (f"type {key}", lambda key=key: db.type(key)),
            (f"xrange {key}", lambda key=key: list(db.xrange(key))),
            (f"xrevrange {key}", lambda key=key: list(db.xrevrange(key))),
            (f"xinfo {key}", lambda key=key: db.xinfo_stream(key)),
            (f"xread {key}", lambda key=key: [(k, list(v)) for k, v in db.xread({key: "0"})]),
        ]
        for group in ("g", "h"):
            if key != STREAMS[0]:
                found += [
                    (f"groups {key}", lambda key=key: db.xinfo_groups(key)),
                    (f"pending {key} {group}", lambda key=key, g=group: db.xpending(key, g)),
                    (
                        f"pending range {key} {group}",
                        lambda key=key, g=group: [
                            (row["message_id"], row["consumer"], row["times_delivered"])
                            for row in db.xpending_range(key, g, min="-", max="+", count=9999)
                        ],
                    ),
                ]
    return found


def ids_questions(db: tidelog.Store, ids: dict[str, list[bytes]]) -> list[tuple[str, Any]]:
    r = random.Random(7)
    return [
        (f"xrange {key} {one!r}", lambda key=key, one=one: list(db.xrange(key, one, one)))
        for key, them in ids.items()
        for one in r.sample(them, min(10, len(them)))
    ]


def answers(directory: Path) -> tuple[dict[str, Any], dict[str, list[bytes]]]:
    with tidelog.open(directory, read_only=True) as db:
        ids = {key: [entry_id for entry_id, _ in db.xrange(key)] for key in STREAMS}
        asked = questions(db) + ids_questions(db, ids)
        return {what: call() for what, call in asked}, ids


def flips(data: bytes, seed: int) -> list[tuple[int, int]]:
    """(offset, new byte): one or a few of them, a third in the meta pages, a third in the pages of the trees."""
    r = random.Random(seed)
    pages = [
        at
        for at in range(8192, len(data), 4096)
        if int.from_bytes(data[at : at + 8], "little") == at // 4096 and data[at + 10] & 3
    ]
    found = []
    for _ in range(r.choice((1, 1, 1, 4))):
        way = seed % 3
        if way == 0:
            at = r.choice((0, 4096)) + r.randrange(152)
        elif way == 1:
            at = r.choice(pages) + min(r.randrange(4096), r.randrange(4096))
        else:
            at = r.randrange(len(data))
        found.append((at, data[at] ^ (1 << r.randrange(8))))
    return found


def ask(
    directory: Path, right: dict[str, Any], ids: dict[str, list[bytes]], r: random.Random
) -> str:
    damaged = ""
    try:
        with tidelog.open(directory, read_only=bool(r.randrange(2)), fsync="no", save=()) as db:
            asked = questions(db) + ids_questions(db, ids)
            r.shuffle(asked)
            for what, call in asked:
                try:
                    if (answer := call()) != right[what]:
                        return f"wrong {what}: {str(answer)[:300]} and not {str(right[what])[:300]}"
                except tidelog.StoreDamaged as error:
                    damaged = damaged or f"{what}: {error}"
    except (tidelog.StoreDamaged, tidelog.CannotOpen) as error:
        damaged = damaged or f"open: {error}"
    return "damaged " + damaged if damaged else "right"


def main(directory: Path, first: int, last: int) -> None:
    right, ids = pickle.loads((directory / "answers").read_bytes())
    path = directory / "store" / "checkpoint" / "data.mdb"
    data = path.read_bytes()
    for seed in range(first, last):
        changed = bytearray(data)
        for at, byte in flips(data, seed):
            changed[at] = byte
        path.write_bytes(changed)
        try:
            told = ask(directory / "store", right, ids, random.Random(seed))
        except BaseException as error:
            told = f"wrong error {error!r}"
            if len(sys.argv) > 4:
                raise
        os.write(1, f"{seed} {' '.join(told.split())}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
