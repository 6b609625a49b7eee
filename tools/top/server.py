"""Looks at a server, tidelog's or any Redis from 5.0 on, by ordinary commands: SCAN, XINFO, XPENDING, XREVRANGE, INFO.
Of a tidelog server also QUEUE LIST and QUEUE STATS.

A look asks about at most STREAMS_ASKED streams, those on the screen first and the others in turn, so that a server with
many of them is not kept busy by its observer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.aof.errors import AofError
from tidelog.client.address import Address
from tidelog.engine.api import DbKey
from tidelog.figures.asked import group_told, is_helper_told, pairs, queues_told
from tidelog.figures.model import GroupFigures, QueueFigures, StreamFigures, stream_figures
from tidelog.figures.names import has_due_times, owner_of
from tidelog.tools.importing.link import Link, ServerError
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.text import argument
from tidelog.tools.top.directory import life_text
from tidelog.tools.top.look import EntryRow, Look, Rates

STREAMS_ASKED: Final = 500
SCAN_EVERY: Final = 10  # looks
SCAN_COUNT: Final = b"1000"
TIMEOUT_S: Final = 10.0
# A server walks over all pending entries of a group to find those that wait longer than a time. In a group with more of
# them the delivery of the lowest ID counts as the oldest one.
EXACT_MAX: Final = 10_000
PAGE: Final = b"100"


class _PendingOf(NamedTuple):
    """The pending entries of a group. `exact`: the oldest delivery is wanted, and not only that of the lowest ID."""

    key: bytes
    group: bytes
    pending: int
    exact: bool

    @property
    def all_of_them(self) -> bool:
        return self.exact and self.pending <= EXACT_MAX


class Server:
    """A Source of one database. Raises Unreachable, Refused.

    helpers   also the streams that queues keep for themselves
    """

    def __init__(self, address: Address, db: int = 0, helpers: bool = False) -> None:
        self._helpers = helpers
        self.title = f"{address}, database {db}" if db else str(address)
        self._db = db
        self._link = Link(address, TIMEOUT_S)
        self._rates = Rates()
        self._known: dict[bytes, StreamFigures | None] = {}  # None: not asked yet
        self._turn: list[bytes] = []
        self._looks = 0
        self._finds_streams = True  # SCAN knows TYPE: from Redis 6.0 on
        try:
            if db:
                self._link.call(b"SELECT", b"%d" % db)
        except BaseException:
            self._link.close()
            raise

    def close(self) -> None:
        self._link.close()

    def look(self, shown: Sequence[DbKey]) -> Look:
        if self._looks % SCAN_EVERY == 0:
            self._scan()
        self._looks += 1
        keys = list(dict.fromkeys(key for _, key in shown if key in self._known))
        if len(self._turn) < STREAMS_ASKED:
            self._turn += self._known
        keys = list(dict.fromkeys(islice([*keys, *self._turn], STREAMS_ASKED)))
        asked = set(keys)
        self._turn = [key for key in self._turn if key not in asked]
        at_ms = time.time_ns() // 1_000_000
        commands = [(b"XINFO", kind, key) for key in keys for kind in (b"STREAM", b"GROUPS")]
        replies = self._link.pipeline(*commands)
        found: dict[bytes, tuple[dict[bytes, Any], list[dict[bytes, Any]]]] = {}
        for key, stream, groups in zip(keys, replies[::2], replies[1::2], strict=True):
            if isinstance(stream, ServerError) or isinstance(groups, ServerError):
                self._known.pop(key, None)  # it was deleted meanwhile
                continue
            told = pairs(stream)
            if not self._helpers and is_helper_told(
                key, told.get(b"first-entry"), owner_of(key) in self._known
            ):
                self._known.pop(key, None)  # until the next scan
            else:
                found[key] = told, list(map(pairs, groups))
        held = [
            _PendingOf(key, name, group[b"pending"], has_due_times(key, name))
            for key, (_, groups) in found.items()
            for group in groups
            for name in (group[b"name"],)
        ]
        oldest = dict(zip((each[:2] for each in held), self._oldest(held, at_ms), strict=True))
        for key, (stream, groups) in found.items():
            added = stream.get(b"entries-added")
            each = (group_told(key, group, oldest[key, group[b"name"]]) for group in groups)
            rate = self._rates.of((self._db, key), added, at_ms)
            self._known[key] = stream_figures(
                self._db, key, stream[b"length"], added, tuple(each), added_per_s=rate
            )
        streams = [row for row in self._known.values() if row is not None]
        return Look(at_ms, self._facts(), streams)

    def _scan(self) -> None:
        """Find the streams, as far as SCAN shows them."""
        found: dict[bytes, StreamFigures | None] = {}
        cursor = b"0"
        while True:
            cursor, keys = self._streams(cursor)
            found |= {key: self._known.get(key) for key in keys}
            if cursor == b"0":
                break
        self._known = found
        self._turn = [key for key in self._turn if key in found]
        self._rates.keep({(self._db, key) for key in found})

    def _streams(self, cursor: bytes) -> tuple[bytes, list[bytes]]:
        """The next cursor and streams of SCAN."""
        page = (b"SCAN", cursor, b"COUNT", SCAN_COUNT)
        if self._finds_streams:
            (reply,) = self._link.pipeline((*page, b"TYPE", b"stream"))
            if not isinstance(reply, ServerError):
                return reply[0], reply[1]
            # A Redis 5.0 takes the option for an error of syntax. Another refusal comes again without it.
            self._finds_streams = False
        cursor, keys = self._link.call(*page)
        types = self._link.pipeline(*((b"TYPE", key) for key in keys))
        return cursor, [key for key, kind in zip(keys, types, strict=True) if kind == b"stream"]

    def _oldest(self, held: list[_PendingOf], at_ms: int) -> list[int | None]:
        """The time of the oldest delivery of each group, unix ms; None without one."""
        idle: dict[int, int] = {}
        last: dict[int, bytes] = {}  # the last ID of the answer before
        asked = [at for at, each in enumerate(held) if each.pending]
        while asked:
            commands: list[tuple[bytes, ...]] = []
            for at in asked:
                each = held[at]
                head = (b"XPENDING", each.key, each.group)
                count = PAGE if each.all_of_them else b"1"
                if at not in idle:
                    commands.append((*head, b"-", b"+", count))
                else:  # those behind the last one that wait even longer; the ones before it do not
                    longer = (b"IDLE", b"%d" % (idle[at] + 1))
                    commands.append((*head, *longer, b"(" + last[at], b"+", count))
            again = []
            for at, reply in zip(asked, self._link.pipeline(*commands), strict=True):
                # An error: the group is gone, or a Redis before 6.2 does not know IDLE.
                if not isinstance(reply, ServerError) and reply:
                    idle[at] = max(idle.get(at, 0), *(row[2] for row in reply))
                    last[at] = reply[-1][0]
                    if held[at].all_of_them and len(reply) == int(PAGE):
                        again.append(at)
            asked = again
        return [at_ms - idle[at] if at in idle else None for at in range(len(held))]

    def _facts(self) -> dict[str, Any]:
        info = self._info()

        def number(name: str) -> Any:
            text = info.get(name, "")
            try:
                return float(text) if "." in text else int(text)
            except ValueError:
                return None

        ours = "tidelog_version" in info
        return {
            "version": f"tidelog {info['tidelog_version']}" if ours else f"Redis {info.get('redis_version', '?')}",
            "last_lsn": None if number("written_lsn") is None else number("written_lsn"),
            "durable_lsn": number("synced_lsn"),
            "checkpoint_lsn": number("checkpoint_lsn"),
            "log_bytes": number("aof_current_size"),
            "exposed_bytes": number("unsynced_bytes"),
            "exposed_s": number("unsynced_seconds"),
            "delayed_fsyncs": number("aof_delayed_fsync"),
            "clients": number("connected_clients"),
            "memory_bytes": number("used_memory"),
            "commands_per_s": number("instantaneous_ops_per_sec"),
        }  # fmt: skip

    def _info(self) -> dict[str, str]:
        text = self._link.call(b"INFO").decode("utf-8", "backslashreplace")
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def groups(self, place: DbKey) -> list[GroupFigures]:
        _, key = place
        (groups,) = self._link.pipeline((b"XINFO", b"GROUPS", key))
        if isinstance(groups, ServerError):
            return []
        at_ms = time.time_ns() // 1_000_000
        rows = list(map(pairs, groups))
        names: list[bytes] = [group[b"name"] for group in rows]
        held = [_PendingOf(key, group[b"name"], group[b"pending"], True) for group in rows]
        of = self._link.pipeline(*((b"XINFO", b"CONSUMERS", key, name) for name in names))
        found = []
        for group, oldest, told in zip(rows, self._oldest(held, at_ms), of, strict=True):
            consumers = None if isinstance(told, ServerError) else list(map(pairs, told))
            row = group_told(key, group, oldest, consumers)
            rate = self._rates.of((*place, row.name), row.read, at_ms)
            found.append(replace(row, read_per_s=rate))
        return found

    def queues(self) -> list[QueueFigures]:
        """Every queue of a tidelog server; none of another one, which has no command that counts paused jobs."""
        (queues,) = self._link.pipeline((b"QUEUE", b"LIST"))
        if isinstance(queues, ServerError):
            return []
        return queues_told(self._link.pipeline, self._db, queues)

    def entries(self, place: DbKey, count: int) -> list[EntryRow]:
        (found,) = self._link.pipeline(
            (b"XREVRANGE", place[1], b"+", b"-", b"COUNT", b"%d" % count)
        )
        if isinstance(found, ServerError):
            return []
        return [EntryRow(entry_id.decode(), fields or ()) for entry_id, fields in found]

    def why(self, place: DbKey, entry_id: str) -> str:
        """The life of the entry if the store of the server is on this machine; else the command that tells it there."""
        root = self._root()
        files = None if root is None else self._files(root)
        if files is not None:
            return life_text(files, place[1], entry_id)
        path = "PATH" if root is None else argument(os.fsencode(root))
        return (
            "A server does not tell its log, and its store is not on this machine. On the machine of the store, use\n"
            f"tidelog why {path} {argument(place[1])} {entry_id}\n"
        )

    def _root(self) -> Path | None:
        """The directory of the store, as a tidelog server tells it."""
        (found,) = self._link.pipeline((b"CONFIG", b"GET", b"dir"))
        if isinstance(found, ServerError) or "tidelog_version" not in self._info():
            return None
        return Path(pairs(found)[b"dir"].decode("utf-8", "surrogateescape"))

    def _files(self, root: Path) -> LogFiles | None:
        """The log in this directory, if the server's present life writes it: other machines may have such a path."""
        try:
            files = LogFiles(root)
            headers = files.headers()[1]
        except (AofError, OSError):
            return None
        fields = headers[-1].fields if headers else None
        life = self._info().get("master_replid")
        return files if fields is not None and f"{fields.incarnation:040x}" == life else None
