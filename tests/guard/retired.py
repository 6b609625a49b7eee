"""Retired workloads: those that came to something else by a wanted change, each with its successor."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

DATA: Final = Path(__file__).parent / "retired.json"
ITEM_CHARS: Final = 1000


class Retired(NamedTuple):
    """A workload whose record is gone.

    reason    why its results changed
    since     the commit of the program that was changed
    first     where it parted from its record, and what was there then
    """

    name: str
    successor: str
    reason: str
    since: str
    first: str


def first_of(differences: Iterable[str]) -> str:
    """The difference to keep: that of the replies, which people can read, or else the first one."""
    told = list(differences)
    return next((text for text in told if ", replies: " in text), told[0])[:ITEM_CHARS]


def load() -> list[Retired]:
    return [Retired(**fields) for fields in json.loads(DATA.read_text())]


def save(entries: Iterable[Retired]) -> None:
    DATA.write_text(json.dumps([entry._asdict() for entry in entries], indent=1) + "\n")


def problems(
    ever: Iterable[str],
    workloads: Collection[str],
    recorded: Collection[str],
    entries: Collection[Retired],
) -> Iterator[str]:
    """The mistakes in the list of retired workloads, one text each. `ever`: all names that were ever recorded."""
    gone = {entry.name for entry in entries}
    for name in ever:
        if name not in workloads and name not in gone:
            yield f"{name} was recorded, and is neither a workload nor retired"
    for name, successor, reason, _, first in entries:
        if name in workloads or name in recorded:
            yield f"{name} is retired, but still a workload or recorded"
        if successor == name or (successor not in workloads and successor not in gone):
            yield f"{name}: its successor {successor} does not exist"
        if not reason.strip() or not first:
            yield f"{name}: the reason or the first difference is missing"
