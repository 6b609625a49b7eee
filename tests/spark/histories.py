"""Random stores with a snapshot, and what the engine says of each key at that moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests import inside
from tests.oracle.grammar import START_MS, Grammar8

import tidelog
from tidelog import testing
from tidelog.engine.errors import CommandError
from tidelog.engine.streams.entries import Entries

SESSION = frozenset((b"multi", b"exec", b"discard", b"watch", b"unwatch", b"select", b"xaddmany"))
DATABASES = 16  # COPY and MOVE reach each of them


def plain(reply: Any) -> Any:
    if isinstance(reply, CommandError):
        return reply.line
    if isinstance(reply, Entries):
        return [plain(each) for each in reply.pairs()]
    if isinstance(reply, (list, tuple)):
        return [plain(each) for each in reply]
    return reply


class Told(NamedTuple):
    """A snapshot, and its tables as the commands of the open store tell them. Rows are dicts."""

    path: Path
    tables: dict[str, list[dict[str, Any]]]


class Life:
    """A store that random commands change."""

    def __init__(self, root: Path, seed: int) -> None:
        self.r = random.Random(seed)
        self.clock = testing.Clock()
        self.db = tidelog.open(root, fsync="no", clock=self.clock, checkpoint_bytes=0, save=())
        self.core: Any = inside.core(self.db)
        self.number = 0

    def run(self, *args: bytes) -> Any:
        name = args[0].lower()
        if name == b"select" and len(args) == 2 and args[1] in (b"0", b"1", b"2"):
            self.number = int(args[1])
        if name in SESSION:
            return None
        return plain(self.core.command(self.number, list(args))[0])

    def play(self, commands: int) -> None:
        r, settings = self.r, self.core.settings
        before = START_MS
        for turn in Grammar8(r).sequence(commands):
            self.clock.advance((turn.now - before) / 1000)
            before = turn.now
            for args in turn.commands:
                self.run(*args)
            if r.random() < 0.2:
                settings.stream_node_max_entries = r.choice((1, 2, 5, 20, 100))
                settings.stream_node_max_bytes = r.choice((60, 300, 4096))
            if r.random() < 0.2:
                self.many()
            if r.random() < 0.05:
                self.db.checkpoint()

    def many(self) -> None:
        r = self.r
        key = r.choice((b"s", b"t", b"\xff\x00 odd"))
        for at in range(r.choice((5, 30, 150))):
            fields = [b"f", b"%d" % r.randrange(1000)]
            if r.random() < 0.2:
                fields += r.choice(([b"f", b"twice"], [b"", b""], [b"\xff", b"\x80"], [b"n", b"1"]))
            self.run(b"XADD", key, b"*", *fields)
        entries = self.run(b"XRANGE", key, b"-", b"+")
        if not isinstance(entries, list) or not entries:
            return
        ids = [entry_id for entry_id, _ in entries]
        some = r.sample(ids, min(len(ids), r.choice((1, 10, 60))))
        for args in (
            (b"XGROUP", b"CREATE", key, b"g", b"0"),
            (b"XREADGROUP", b"GROUP", b"g", b"bob", b"COUNT", b"40", b"STREAMS", key, b">"),
            (b"XNACK", key, b"g", b"FAIL", b"IDS", b"%d" % len(some), *some),
            (b"XDEL", key, *some),
            (b"XTRIM", key, b"MAXLEN", r.choice((b"=", b"~")), b"%d" % r.randrange(len(ids))),
            (b"PEXPIRE", key, b"%d" % r.choice((1, 5000))),
            (b"XADD", key, b"18446744073709551615-1", b"far", b"off"),
        ):
            if r.random() < (0.4 if args[0] != b"XADD" else 0.03):
                self.run(*args)

    def told(self) -> Told:
        """Make a snapshot, and ask for everything at the same moment."""
        self.run(b"SET", b"a string", b"12345")  # so that the snapshot's moment is now
        path = self.db.snapshot().path
        tables: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("entries", "streams", "groups", "consumers", "pending", "keys")
        }
        for number in range(DATABASES):
            self.number = number
            for key in sorted(self.run(b"KEYS", b"*")):
                self._tell(tables, number, key)
        return Told(path, tables)

    def _tell(self, tables: dict[str, list[dict[str, Any]]], db: int, key: bytes) -> None:
        kind = self.run(b"TYPE", key)
        expires = self.run(b"PEXPIRETIME", key)
        expires = None if expires < 0 else expires
        where = {"db": db, "stream": key}
        if kind == b"string":
            size = self.run(b"STRLEN", key)
            tables["keys"].append(
                {"db": db, "key": key, "type": "string", "expires_at": expires, "bytes": size}
                | {"expires_at_ms": expires}
            )
            return
        tables["keys"].append(
            {"db": db, "key": key, "type": "stream", "expires_at": expires}
            | {"expires_at_ms": expires}
        )
        live = []
        for entry_id, row in self.core.command(db, [b"XRANGE", key, b"-", b"+"])[0]:
            flat = list(row)
            live.append(entry_id)
            tables["entries"].append(
                where
                | {
                    "id": f"{entry_id >> 64}-{entry_id & (1 << 64) - 1}",
                    "id_key": entry_id.to_bytes(16, "big"),
                    "fields": [{"name": n, "value": v} for n, v in zip(flat[::2], flat[1::2])],
                }
            )
        info = pairs(self.run(b"XINFO", b"STREAM", key))
        tables["streams"].append(
            where
            | {
                "length": info["length"],
                "first_id": info["first-entry"][0].decode() if live else None,
                "last_id": info["last-generated-id"].decode(),
                "recorded_first_id": info["recorded-first-entry-id"].decode(),
                "max_deleted_id": info["max-deleted-entry-id"].decode(),
                "entries_added": info["entries-added"],
                "nodes": info["radix-tree-keys"],
                "groups": info["groups"],
                "expires_at": expires,
                "expires_at_ms": expires,
                "idmp_duration": info["idmp-duration"],
                "idmp_maxsize": info["idmp-maxsize"],
                "pids_tracked": info["pids-tracked"],
                "iids_tracked": info["iids-tracked"],
                "iids_added": info["iids-added"],
                "iids_duplicates": info["iids-duplicates"],
            }
        )
        texts = {f"{each >> 64}-{each & (1 << 64) - 1}" for each in live}
        full = pairs(self.run(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"))
        for group in map(pairs, full["groups"]):
            name = where | {"group": group["name"]}
            nacked = group["nacked-count"]
            tables["groups"].append(
                name
                | {
                    "last_delivered_id": group["last-delivered-id"].decode(),
                    "entries_read": group["entries-read"],
                    "lag": group["lag"],
                    "pending": group["pel-count"],
                    "nacked": nacked,
                    "consumers": len(group["consumers"]),
                }
            )
            for consumer in map(pairs, group["consumers"]):
                tables["consumers"].append(
                    name | {"consumer": consumer["name"], "pending": consumer["pel-count"]}
                )
            for entry_id, owner, time, count in group["pending"]:
                released = owner == b"" and time == 0  # a consumer may have the empty name, too
                tables["pending"].append(
                    name
                    | {
                        "id": entry_id.decode(),
                        "consumer": None if released else owner,
                        "delivered_at": None if released else time,
                        "delivery_count": count,
                        "exists": entry_id.decode() in texts,
                    }
                )

    def close(self) -> None:
        self.db.close()


def pairs(flat: Any) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2])}


def lives(root: Path, seeds: range, commands: int) -> Iterator[tuple[int, Told]]:
    """A random store per seed, with its snapshot."""
    for seed in seeds:
        life = Life(root / str(seed), seed)
        try:
            life.play(commands)
            yield seed, life.told()
        finally:
            life.close()


Check = Callable[[Told], None]


def told_after(root: Path, seed: int, steps: int) -> Told:
    """A snapshot of a store in `root` after random commands."""
    life = Life(root, seed)
    try:
        life.play(steps)
        return life.told()
    finally:
        life.close()
