"""Report: the keys that an import has taken, and those it has left by type, key and size. Its memory is bounded."""

from __future__ import annotations

from heapq import heappush, heappushpop
from typing import Any, Final, NamedTuple

from tidelog.tools.text import argument, columns, json_value, size_text

LARGEST: Final = 10  # keys of each type that are named
NAMED: Final = 3  # of them in the table


class Left(NamedTuple):
    """A key that was left: its bytes in the source, its database and its name."""

    nbytes: int
    db: int
    key: bytes


class Report:
    """The outcome of an import.

    left      type -> [number of keys, their bytes in the source, heap of the largest]
    beside    things that belong to no key -> how many
    ahead     groups whose entries-read is above entries-added
    skipped   number of keys that the filters left out
    """

    def __init__(self) -> None:
        self.streams = self.entries = self.groups = self.pending = 0
        self.strings = self.expires = self.skipped = self.ahead = 0
        self.beside: dict[str, int] = {}
        self.left: dict[str, tuple[int, int, list[Left]]] = {}

    def leave(self, kind: str, db: int, key: bytes, nbytes: int) -> None:
        """Note a key of a type that tidelog does not have."""
        count, total, largest = self.left.get(kind, (0, 0, []))
        found = Left(nbytes, db, key)
        if len(largest) < LARGEST:
            heappush(largest, found)
        else:
            heappushpop(largest, found)
        self.left[kind] = count + 1, total + nbytes, largest

    def facts(self) -> dict[str, Any]:
        """The report in JSON."""
        return {
            "streams": self.streams,
            "entries": self.entries,
            "groups": self.groups,
            "pending": self.pending,
            "strings": self.strings,
            "expires": self.expires,
            "filtered": self.skipped,
            "entries_read_above_added": self.ahead,
            "not_imported": [
                {
                    "type": kind,
                    "keys": count,
                    "bytes": total,
                    "largest": [
                        {"db": each.db, "key": json_value(each.key), "bytes": each.nbytes}
                        for each in sorted(largest, reverse=True)
                    ],
                }
                for kind, (count, total, largest) in sorted(self.left.items())
            ],
            "beside": self.beside,
        }

    def line(self) -> str:
        """The contents in words."""
        return (
            f"{self.streams:,} streams with {self.entries:,} entries, {self.groups:,} groups and {self.pending:,} "
            f"pending entries, {self.strings:,} strings; {self.expires:,} keys expire"
        )

    def notes(self) -> list[str]:
        """Further facts about the import, one line each, and a table of what was left."""
        notes = []
        if self.skipped:
            notes.append(f"{self.skipped:,} keys were left out by --db and --key")
        if self.ahead:
            notes.append(
                f"{self.ahead:,} groups have read more entries than were ever added, which Redis itself refuses to "
                "load; they were taken as they are"
            )
        for thing, count in sorted(self.beside.items()):
            notes.append(f"not imported: {thing} ({count:,})")
        if self.left:
            rows = []
            for kind, (count, total, largest) in sorted(self.left.items()):
                named = sorted(largest, reverse=True)[:NAMED]
                names = ", ".join(
                    (f"[{each.db}] " if each.db else "")
                    + f"{argument(each.key)} {size_text(each.nbytes)}"
                    for each in named
                )
                more = count - len(named)
                rows.append(
                    (
                        kind,
                        f"{count:,}",
                        size_text(total),
                        names + (f" and {more:,} more" if more else ""),
                    )
                )
            notes.append(
                "not imported, because tidelog has no such type:\n"
                + columns(("TYPE", "KEYS", "BYTES", "LARGEST"), rows, right="KEYS BYTES").rstrip(
                    "\n"
                )
            )
        return notes
