"""Surplus: what a log holds behind a position, in figures: LSNs, times, entries by stream, deliveries by group.

A follower publishes it as `report.json` beside the segments that it sets aside, for the person who may want to get
something back:

    records, first_lsn, last_lsn, first_unix_ms, last_unix_ms
    parted       LSN and checksum of the last frame that stays, and the leader whose history goes on
    streams      db, key, entries added, first and last ID; in the order of the log, at most STREAMS_MAX
    groups       db, key, group, entries delivered, acknowledged; at most STREAMS_MAX
    others       records about anything else: keys, trims, group changes
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tidelog.aof.errors import CorruptFrame
from tidelog.aof.reading.reader import FrameTuple, Replay, Scan, segments
from tidelog.aof.reading.verdicts import Verdict
from tidelog.aof.seek import position_after
from tidelog.aof.segment import Position
from tidelog.disk.interface import Disk
from tidelog.engine import idlist
from tidelog.engine.effects.effect import (
    DELIVER,
    OPCODE,
    XACK,
    XACKDEL,
    XADD,
    XADD_IDMP,
    XADD_MANY,
    XADD_NODE,
    Effect,
)

REPORT: Final = "report.json"
STREAMS_MAX: Final = 1000  # streams, and groups, that are named

_ONE_ENTRY: Final = frozenset((XADD, XADD_NODE, XADD_IDMP))
_ACKNOWLEDGED: Final = frozenset((XACK, XACKDEL))

_Id = tuple[int, int]


class _Stream:
    """The entries that were added to one stream."""

    def __init__(self, first: _Id) -> None:
        self.entries = 0
        self.first = self.last = first


class Surplus:
    """See the module docstring. `incarnation`: of the newest segment, which names this surplus."""

    def __init__(self) -> None:
        self.records = self.others = 0
        self.first_lsn = self.last_lsn = 0
        self.first_ms = self.last_ms = 0
        self.incarnation = 0
        self._streams: dict[tuple[int, bytes], _Stream] = {}
        self._groups: dict[tuple[int, bytes, bytes], list[int]] = {}
        self._unnamed = 0

    def take(self, records: list[Effect]) -> None:
        """Count the next records of the log."""
        self.records += len(records)
        for record in records:
            opcode = record[0] & OPCODE
            if opcode in _ONE_ENTRY:
                self._added(record, 1)
            elif opcode == XADD_MANY:
                _, _, _, _, _, head, blocks, tail = record
                self._added(record, len(head) + sum(count for count, _ in blocks) + len(tail))
            elif opcode == DELIVER:
                self._in_group(record, 0, record[5])
            elif opcode in _ACKNOWLEDGED:
                self._in_group(record, 1, record[4])
            else:
                self.others += 1

    def _added(self, record: Effect, count: int) -> None:
        _, db, key, ms, seq = record[:5]
        found = self._streams.get((db, key))
        if found is None:
            if len(self._streams) == STREAMS_MAX:
                self._unnamed += 1
                return
            found = self._streams[db, key] = _Stream((ms, seq))
        found.entries += count
        found.last = ms, seq + count - 1

    def _in_group(self, record: Effect, column: int, ids: Any) -> None:
        place = record[1:4]
        found = self._groups.get(place)
        if found is None:
            if len(self._groups) == STREAMS_MAX:
                self._unnamed += 1
                return
            found = self._groups[place] = [0, 0]
        found[column] += idlist.count(ids)

    def report(self, at: Position, leader: str) -> bytes:
        """The text of report.json. `at`: where the log ends from now on."""
        parted = {"parted": {"lsn": at.lsn, "crc": f"{at.crc:08x}", "leader": leader}}
        return json.dumps(parted | self.figures(), indent=1).encode() + b"\n"

    def figures(self) -> dict[str, Any]:
        """The counts, in the words of report.json."""
        return {
            "records": self.records,
            "first_lsn": self.first_lsn,
            "last_lsn": self.last_lsn,
            "first_unix_ms": self.first_ms,
            "last_unix_ms": self.last_ms,
            "streams": [
                {
                    "db": db,
                    "key": _text(key),
                    "entries": found.entries,
                    "first": "%d-%d" % found.first,
                    "last": "%d-%d" % found.last,
                }
                for (db, key), found in self._streams.items()
            ],
            "groups": [
                {
                    "db": db,
                    "key": _text(key),
                    "group": _text(group),
                    "delivered": delivered,
                    "acknowledged": acknowledged,
                }
                for (db, key, group), (delivered, acknowledged) in self._groups.items()
            ],
            "others": self.others,
            "records_of_unnamed_streams_and_groups": self._unnamed,
        }


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _dated(scan: Scan, found: Surplus) -> Iterator[FrameTuple]:
    """The frames of a scan; their LSNs and times are noted."""
    for fields in scan.tuples():
        _, lsn, count, now, _, _, _ = fields
        if not found.first_lsn:
            found.first_lsn, found.first_ms = lsn, now
        found.last_lsn, found.last_ms = lsn + count - 1, now
        yield fields


def surplus_behind(disk: Disk, directory: Path, uuid: bytes, at: Position) -> Surplus:
    """The records that the log in `directory`, a store's aof/, has behind `at`. Nobody appends to it meanwhile.

    Raises Damage, also for a torn tail; NewerRecord; the errors of `reader.segments`; OSError.
    """
    found = Surplus()
    replay = Replay(found.take)
    start: Position | None = position_after(disk, directory, uuid, at.lsn)
    for info in segments(disk, directory, uuid, after=at.lsn):
        scan = Scan(disk, info, start=start)
        start = None
        replay.run(info.path, _dated(scan, found))
        if scan.verdict is not Verdict.END:
            raise scan.error() or CorruptFrame(
                scan.path, scan.offset, scan.lsn, scan.found_lsn, f"found {scan.reason}"
            )
        found.incarnation = scan.header.incarnation
    return found
