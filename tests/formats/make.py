"""Makes the stores that are kept here as text: small ones, as a version of tidelog wrote them, and what it said.

    python tests/formats/make.py log FILE           a store that is a log alone
    python tests/formats/make.py checkpoint FILE    one with a checkpoint, a snapshot and a log behind both

with the `src` of the version that is to write it on PYTHONPATH. A file is never made anew: it stands for all the stores
that its version has written. A new format gets new ones. Text, since this repository holds no binaries:

    written      what the store was written by
    now          seconds since 1970, when the replies were given
    digest       of the state; `snapshot`: of the state in the snapshot
    reply        a command, as JSON; below it Python's repr of what the store answered
    file         a file of the store; below it its bytes, compressed with zlib, in base64
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tidelog
from tidelog import testing

LINE = 116
# a reply is broken at its blanks
WHOLE: Any = {"break_on_hyphens": False, "break_long_words": False}
PLACES = ("STORE", "aof/*.aof", "aof/DURABLE", "checkpoint/data.mdb", "snapshots/*/*")


def fill(db: Any, clock: Any) -> None:
    """One of each: every kind of record, key, node and pending entry."""
    db.set("flushed", "1")
    db.flushall()
    for n in range(30):
        clock.advance(0.25)
        db.xadd("orders", {"item": "tea", "n": n} if n % 7 else {"note": "only"})
    db.xadd_many("orders", [{"item": "rice", "n": n, "blob": b"\xff\x00"} for n in range(250)])
    db.xadd_many("lines", [{"text": f"line {n}"} for n in range(120)])
    ids = [id for id, _ in db.xrange("orders")]
    db.xdel("orders", *ids[3:6], ids[120], ids[-1])
    db.xtrim("orders", maxlen=265, approximate=False)
    db.xtrim("orders", maxlen=150, approximate=True)
    db.xgroup_create("orders", "packers", id="0")
    for name, count in (("anna", 80), ("ben", 5), ("carl", 3)):
        db.xreadgroup("packers", name, {"orders": ">"}, count=count)
        clock.advance(1)
    given = [each["message_id"] for each in db.xpending_range("orders", "packers", "-", "+", 100)]
    db.xack("orders", "packers", *given[10:20])
    db.xclaim("orders", "packers", "ben", min_idle_time=0, message_ids=given[:2])
    db.execute_command("XNACK", "orders", "packers", "FAIL", "IDS", 2, given[30], given[25])
    db.xgroup_delconsumer("orders", "packers", "carl")
    db.xgroup_create("orders", "readers", id="$", entries_read=7)
    db.xgroup_setid("orders", "readers", ids[150], entries_read=150)
    db.xgroup_createconsumer("orders", "readers", "idle")
    db.xgroup_create("orders", "gone", id="0")
    db.xgroup_destroy("orders", "gone")
    db.xadd("far", {"k": "v"}, id="18446744073709551615-1")
    db.xgroup_create("far", "g", id="0")
    db.xreadgroup("g", "anna", {"far": ">"})
    for n in range(4):
        db.execute_command("XADD", "once", "IDMP", f"p{n % 2}", f"i{n}", "*", "n", n)
    db.execute_command("XADD", "once", "IDMP", "p0", "i0", "*", "n", 0)
    db.execute_command("XIDMPRECORD", "once", "p9", "i9", db.xrange("once")[1][0])
    db.execute_command("XCFGSET", "lines", "IDMP-DURATION", 50)
    db.xgroup_create("empty", "g", id="0", mkstream=True)
    db.execute_command("XSETID", "lines", "1800000000000-0", "ENTRIESADDED", 500)
    db.set("plain", "1", px=600_000)
    db.set("grown", "1")
    db.append("grown", "2")
    db.set("kept", "1", ex=9)
    db.persist("kept")
    db.set("dated", "1")
    db.pexpireat("dated", 1_800_000_000_000)
    db.config_set("stream-node-max-entries", 10)
    short = list(db.xadd_many("reopened", [{"n": n} for n in range(12)]))
    db.config_set("stream-node-max-entries", 100)
    db.xdel("reopened", *short[-2:])
    db.xadd("reopened", {"n": "again"})
    db.set("gone", "1")
    db.delete("gone")
    db.set(b"\xfe" * 600, "a long name")
    db.copy("lines", "copied")
    db.rename("lines", "renamed")
    db.set("moved", "1")
    db.execute_command("MOVE", "moved", 3)
    db.db(5).set("flushed", "1")
    db.db(5).flushdb()
    db.db(6).set("swapped", "1")
    db.execute_command("SWAPDB", 6, 7)
    mails = db.queue("mails", retry_after=30)
    for n in range(6):
        mails.put({"n": n})
    job = mails.get("worker-1", block=0)
    job.ack()
    mails.get("worker-1", block=0).fail("no")
    db.checkpoint() if hasattr(db, "checkpoint") else None


def change(db: Any, clock: Any) -> None:
    """Behind the first checkpoint."""
    ids = [id for id, _ in db.xrange("orders")]
    db.xdel("orders", *ids[60:64])
    db.xreadgroup("packers", "dora", {"orders": ">"}, count=40)
    db.xadd_many("orders", [{"item": "salt", "n": n} for n in range(110)])
    db.delete("copied")
    db.set("plain", "2", px=700_000)
    clock.advance(0.5)


def last(db: Any, clock: Any) -> None:
    """Behind the snapshot."""
    db.xadd("orders", {"item": "oil", "n": 1})
    db.xack(
        "orders", "packers", db.xpending_range("orders", "packers", "-", "+", 1)[0]["message_id"]
    )
    db.set("tail", "1")


ASKED: tuple[tuple[int, tuple[str | int, ...]], ...] = (
    (0, ("DBSIZE",)),
    (3, ("DBSIZE",)),
    (0, ("XLEN", "orders")),
    (0, ("XRANGE", "orders", "-", "+", "COUNT", 5)),
    (0, ("XREVRANGE", "orders", "+", "-", "COUNT", 5)),
    (0, ("XINFO", "STREAM", "orders")),
    (0, ("XINFO", "STREAM", "orders", "FULL", "COUNT", 3)),
    (0, ("XINFO", "GROUPS", "orders")),
    (0, ("XINFO", "CONSUMERS", "orders", "packers")),
    (0, ("XPENDING", "orders", "packers")),
    (0, ("XPENDING", "orders", "packers", "-", "+", 12)),
    (0, ("XPENDING", "far", "g", "-", "+", 5)),
    (0, ("XINFO", "STREAM", "once")),
    (0, ("XINFO", "STREAM", "renamed")),
    (0, ("XINFO", "STREAM", "reopened")),
    (0, ("XRANGE", "mails", "-", "+")),
    (0, ("XLEN", "mails:failures")),
    (0, ("GET", "grown")),
    (0, ("OBJECT", "ENCODING", "grown")),
    (0, ("PEXPIRETIME", "plain")),
    (0, ("TTL", "kept")),
    (0, ("EXISTS", "gone", "lines", "copied", "moved", "tail")),
    (3, ("GET", "moved")),
    (7, ("GET", "swapped")),
)


def told(db: Any) -> Iterator[tuple[int, tuple[str | int, ...], Any]]:
    """(database, command, reply) of everything that is asked."""
    for number, words in ASKED:
        yield number, words, db.db(number).execute_command(*words)


def make(kind: str) -> str:
    clock = testing.Clock()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "s"
        options: dict[str, Any] = {"fsync": "no", "clock": clock, "segment_bytes": 8192}
        if kind == "checkpoint":
            options["retain_bytes"] = 0
        with tidelog.open(root, **options) as db:
            fill(db, clock)
        with tidelog.open(root, **options) as db:  # another life
            change(db, clock)
            if kind == "checkpoint":
                db.snapshot()
                lines.append(f"snapshot {db.digest()}")
            last(db, clock)
        with tidelog.open(root, **options) as db:
            lines.insert(0, f"digest {db.digest()}")
            for number, words, reply in told(db):
                lines.append(f"reply {json.dumps([number, *words])}")
                lines += ["  " + line for line in textwrap.wrap(repr(reply), LINE, **WHOLE)]
        files = [path for place in PLACES for path in sorted(root.glob(place))]
        for path in files:
            lines.append(f"file {path.relative_to(root)}")
            packed = base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()
            lines += ["  " + packed[at : at + LINE] for at in range(0, len(packed), LINE)]
    now = clock.time_ns() / 1e9
    return "\n".join([f"written tidelog 0.1, {kind}", f"now {now}", *lines, ""])


if __name__ == "__main__":
    kind, target = sys.argv[1:]
    assert kind in ("log", "checkpoint")
    with open(target, "x") as file:
        file.write(make(kind))
