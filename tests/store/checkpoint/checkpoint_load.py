"""The process that test_checkpoint_sigkill kills: threads that change everything while checkpoints are written.

    python checkpoint_load.py DIRECTORY POLICY WAY

WAY is a word of: loop (checkpoints back to back), triggers (small ones), snapshots (and checkpoints, back to back);
with -budget behind it memory has a tiny budget; with -released no segment of the log stays longer than it has to.
Each promise is told as one line *after* the call returned, in one write(2):

    a T N    thread T: the entry with number N is in stream w:T, and all before it
    k T ID   thread T: ID was acknowledged in w:T
    x T N    thread T: the entry with number N was deleted from w:T
    m T N    thread T: w:T was trimmed of all entries with numbers below N
    g T N    thread T: stream d:T was deleted and made again N times, each time with N entries of number N, N % 7 + 1
    b T N    thread T: one unit set one:T and two:T to N, and added N to u:T
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import tidelog

THREADS = 3
BUDGET = 1 << 20
KEPT = 500  # entries that a trim leaves


def options(policy: str, way: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "fsync": policy,
        "segment_bytes": 256 << 10,
        "retain_bytes": 0 if "released" in way else 1 << 40,
        "checkpoint_bytes": 0,
        "save": (),
    }
    if "triggers" in way:
        found |= {"checkpoint_bytes": 64 << 10, "save": ((0.05, 1),)}
    if "budget" in way:
        found["memory_budget"] = BUDGET
    return found


def tell(*words: object) -> None:
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


class Worker:
    """One thread, going on where the process before it was killed."""

    def __init__(self, db: tidelog.Store, thread: int) -> None:
        self.db, self.thread = db, thread
        self.stream, self.remade, self.unit = f"w:{thread}", f"d:{thread}", f"u:{thread}"
        if not db.exists(self.stream):
            db.xgroup_create(self.stream, "g", id="0", mkstream=True)
        self.number = 0
        for _, fields in db.xrevrange(self.stream, count=1):
            self.number = int(fields[b"n"]) + 1
        self.made = int(next(iter(db.xrange(self.remade, count=1)), (0, {b"n": 0}))[1][b"n"])
        self.both = int(db.get(f"one:{thread}") or 0)

    def run(self) -> None:
        while True:
            for way in (self.add, self.add_many, self.read, self.remake, self.together, self.trim):
                way()

    def entry(self) -> dict[str, Any]:
        self.number += 1
        n = self.number - 1
        return {"n": n, "pad": "x" * (n * 37 % 300)}

    def add(self) -> None:
        for _ in range(5):
            self.db.xadd(self.stream, self.entry())
            tell("a", self.thread, self.number - 1)

    def add_many(self) -> None:
        self.db.xadd_many(self.stream, [self.entry() for _ in range(self.number % 90 + 1)])
        tell("a", self.thread, self.number - 1)

    def read(self) -> None:
        for _, entries in self.db.xreadgroup("g", "c", {self.stream: ">"}, count=40):
            got = list(entries)
            for entry_id, _ in got[::3]:
                self.db.xack(self.stream, "g", entry_id)
                tell("k", self.thread, entry_id.decode())
            if len(got) > 1:  # the last one of a stream says where to go on
                entry_id, fields = got[0]
                self.db.xdel(self.stream, entry_id)
                tell("x", self.thread, int(fields[b"n"]))

    def remake(self) -> None:
        n = self.made + 1
        with self.db.pipeline(transaction=True) as unit:
            unit.delete(self.remade)
            for _ in range(n % 7 + 1):
                unit.xadd(self.remade, {"n": n})
            unit.execute()
        self.made = n
        tell("g", self.thread, n)

    def together(self) -> None:
        self.both += 1
        with self.db.pipeline(transaction=True) as unit:
            unit.set(f"one:{self.thread}", self.both).set(f"two:{self.thread}", self.both)
            unit.xadd(self.unit, {"n": self.both}, maxlen=50, approximate=False).execute()
        tell("b", self.thread, self.both)

    def trim(self) -> None:
        if self.number % 5:
            return
        first = next(iter(self.db.xrange(self.stream, count=1)), None)
        last = next(iter(self.db.xrevrange(self.stream, count=1)), None)
        if first is None or last is None or int(last[1][b"n"]) - int(first[1][b"n"]) < 3000:
            return
        entry_id, fields = list(self.db.xrevrange(self.stream, count=KEPT))[-1]
        self.db.xtrim(self.stream, minid=entry_id, approximate=False)
        tell("m", self.thread, int(fields[b"n"]))


def checkpoints(db: tidelog.Store, way: str) -> None:
    while True:
        db.checkpoint()
        tell("c")
        if "snapshots" in way:
            db.snapshot()
            tell("s")


def main() -> None:
    directory, policy, way = sys.argv[1:]
    db = tidelog.open(directory, **options(policy, way))
    targets = [Worker(db, t).run for t in range(THREADS)]
    if "triggers" not in way:
        targets.append(lambda: checkpoints(db, way))
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    tell("ready")
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
