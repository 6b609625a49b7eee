"""Report: the keys that an import has taken, and those it has left by type, key and size. Its memory is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush, heappushpop
from typing import Any, Final, NamedTuple

from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.tools.text import argument, columns, command_line, json_value, place_text, size_text

NAME_BYTES_MAX: Final = 40
ERROR_BYTES_MAX: Final = 200
KINDS_MAX: Final = 100  # of errors and of unknown commands
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
    commands  number of commands of a log that were replayed; its keys are counted at the end (`count`)
    refused   error -> [how many commands had it, the first of them]
    """

    def __init__(self) -> None:
        self.streams = self.entries = self.groups = self.pending = 0
        self.strings = self.expires = self.skipped = self.ahead = 0
        self.commands = self.skipped_commands = 0
        self.refused: dict[str, tuple[int, str]] = {}
        self.other_commands: dict[str, int] = {}
        self.notes_more: list[str] = []
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

    def leave_command(self, name: bytes) -> None:
        """Note a command of a type that tidelog does not have."""
        shown = argument(name[:NAME_BYTES_MAX])
        if shown in self.other_commands or len(self.other_commands) < KINDS_MAX:
            self.other_commands[shown] = self.other_commands.get(shown, 0) + 1

    def refuse(self, args: Sequence[bytes], line: bytes) -> None:
        """Note a command that the engine refused."""
        error = line[:ERROR_BYTES_MAX].decode("utf-8", "backslashreplace")
        if error in self.refused or len(self.refused) < KINDS_MAX:
            count, first = self.refused.get(error, (0, command_line(args[:3])))
            self.refused[error] = count + 1, first

    def count(self, state: State) -> None:
        """Count the keys of a state that commands have built."""
        self.streams = self.entries = self.groups = self.pending = 0
        self.strings = self.expires = 0
        for database in state.databases:
            self.expires += len(database.expires)
            for _, value, _ in database.keys.walk():
                if isinstance(value, Stream):
                    self.streams += 1
                    self.entries += value.length
                    self.groups += len(value.groups)
                    self.pending += sum(len(group.pending) for group in value.groups.values())
                else:
                    self.strings += 1

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
            "commands": self.commands,
            "filtered_commands": self.skipped_commands,
            "commands_not_imported": self.other_commands,
            "commands_refused": [
                {"error": error, "commands": count, "first": first}
                for error, (count, first) in self.refused.items()
            ],
            "notes": self.notes_more,
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
        """Further lines: what was left out or changed, and a table of the keys that were left."""
        notes = list(self.notes_more)
        if self.skipped_commands:
            notes.append(f"{self.skipped_commands:,} commands were left out by --db and --key")
        if self.other_commands:
            others = ", ".join(
                f"{name} ({count:,})" for name, count in sorted(self.other_commands.items())
            )
            notes.append(f"not imported, because tidelog has no such commands: {others}")
        for error, (times, example) in self.refused.items():
            notes.append(
                f"{times:,} commands were refused with {error!r}, the first of them: {example}"
            )
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
            for kind, (keys, total, largest) in sorted(self.left.items()):
                named = sorted(largest, reverse=True)[:NAMED]
                names = ", ".join(
                    f"{place_text(each.db, each.key)} {size_text(each.nbytes)}" for each in named
                )
                more = keys - len(named)
                rows.append(
                    (
                        kind,
                        f"{keys:,}",
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
