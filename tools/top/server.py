"""Looks at a server, tidelog's or any Redis from 5.0 on, by ordinary commands: SCAN, XINFO, XPENDING, XREVRANGE, INFO.

A look asks about at most STREAMS_ASKED streams, those on the screen first and the others in turn, so that a server with
many of them is not kept busy by its observer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from tidelog.tools.importing.link import Link, ServerError
from tidelog.tools.replica.client import Place as Address
from tidelog.tools.top.look import (
    ConsumerRow,
    EntryRow,
    GroupRow,
    Look,
    Place,
    QueueRow,
    Rates,
    StreamRow,
)

STREAMS_ASKED: Final = 500
SCAN_EVERY: Final = 10  # looks
SCAN_COUNT: Final = b"1000"
TIMEOUT_S: Final = 10.0
PENDING_ASKED: Final = b"100"  # of the pending entries, among which the oldest delivery is found


class Server:
    """A Source of database 0. Raises Unreachable, Refused."""

    def __init__(self, address: Address) -> None:
        self.title = str(address)
        self._address = address
        self._link = Link(address, TIMEOUT_S)
        self._rates = Rates()
        self._known: dict[bytes, StreamRow | None] = {}  # None: not asked yet
        self._turn: list[bytes] = []
        self._looks = 0

    def close(self) -> None:
        self._link.close()

    def look(self, shown: Sequence[Place]) -> Look:
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
        for key, stream, groups in zip(keys, replies[::2], replies[1::2], strict=True):
            if isinstance(stream, ServerError) or isinstance(groups, ServerError):
                self._known.pop(key, None)  # it was deleted meanwhile
            else:
                self._known[key] = self._row(key, _pairs(stream), list(map(_pairs, groups)), at_ms)
        streams = [row for row in self._known.values() if row is not None]
        return Look(at_ms, self._facts(), streams)

    def _scan(self) -> None:
        found: dict[bytes, StreamRow | None] = {}
        cursor = b"0"
        while True:
            cursor, keys = self._link.call(
                b"SCAN", cursor, b"COUNT", SCAN_COUNT, b"TYPE", b"stream"
            )
            found |= {key: self._known.get(key) for key in keys}
            if cursor == b"0":
                break
        self._known = found
        self._turn = [key for key in self._turn if key in found]
        self._rates.keep({(0, key) for key in found})

    def _row(
        self, key: bytes, stream: dict[bytes, Any], groups: list[dict[bytes, Any]], at_ms: int
    ) -> StreamRow:
        added = stream.get(b"entries-added")
        lags: list[int | None] = [group.get(b"lag") for group in groups]
        known = [each for each in lags if each is not None]
        return StreamRow(
            0,
            key,
            stream[b"length"],
            added,
            self._rates.of((0, key), added, at_ms),
            len(groups),
            sum(known) if len(known) == len(lags) else None,
            sum(group[b"pending"] for group in groups),
            None,
        )

    def _facts(self) -> dict[str, Any]:
        info = dict(
            line.split(":", 1)
            for line in self._link.call(b"INFO").decode("utf-8", "backslashreplace").splitlines()
            if ":" in line
        )

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

    def groups(self, place: Place) -> list[GroupRow]:
        _, key = place
        (groups,) = self._link.pipeline((b"XINFO", b"GROUPS", key))
        if isinstance(groups, ServerError):
            return []
        at_ms = time.time_ns() // 1_000_000
        found = []
        for group in map(_pairs, groups):
            name = group[b"name"]
            consumers, oldest = self._link.pipeline(
                (b"XINFO", b"CONSUMERS", key, name),
                (b"XPENDING", key, name, b"-", b"+", PENDING_ASKED),
            )
            read = group.get(b"entries-read")
            found.append(
                GroupRow(
                    name,
                    group[b"last-delivered-id"].decode(),
                    read,
                    self._rates.of((*place, name), read, at_ms),
                    group.get(b"lag"),
                    group[b"pending"],
                    None
                    if isinstance(oldest, ServerError) or not oldest
                    else at_ms - max(idle for _, _, idle, _ in oldest),
                    []
                    if isinstance(consumers, ServerError)
                    else [
                        ConsumerRow(one[b"name"], one[b"pending"], one[b"idle"])
                        for one in map(_pairs, consumers)
                    ],
                )
            )
        return found

    def queues(self) -> list[QueueRow]:
        """No row: the jobs that are paused are told by several streams together, and no command counts them."""
        return []

    def entries(self, place: Place, count: int) -> list[EntryRow]:
        (found,) = self._link.pipeline(
            (b"XREVRANGE", place[1], b"+", b"-", b"COUNT", b"%d" % count)
        )
        if isinstance(found, ServerError):
            return []
        return [EntryRow(entry_id.decode(), fields or ()) for entry_id, fields in found]

    def why(self, place: Place, entry_id: str) -> str:
        return (
            "A server does not tell its log. On the machine of the store, use\n"
            f"tidelog why PATH {place[1].decode('utf-8', 'backslashreplace')} {entry_id}\n"
        )


def _pairs(reply: list[Any]) -> dict[bytes, Any]:
    """A flat list of names and values as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))
