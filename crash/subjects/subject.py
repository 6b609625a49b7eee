"""Subject: a store that the bench crashes, under one of its settings, and the workload that all of them do.

The workload is numbered puts, singly and in tens, and deletions. It consists of units in the form of the oracle's model
(crash/model.py), with strings only. A subject does a unit as one transaction and promises it when that has returned.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from tidelog.crash.errors import CrashError
from tidelog.crash.model import Contents
from tidelog.crash.oracle import Kind
from tidelog.crash.trace import Unit

UNITS: Final = 24
TEN: Final = 10
PROBE: Final[Unit] = [["set", b"probe", b"taken"]]

KILL: Final = "kill"
STRICT: Final = "strict"
ORDERED: Final = "ordered"
FAULTS: Final = (KILL, STRICT, ORDERED)
POWER: Final = (STRICT, ORDERED)


class CannotRun(CrashError):
    """A subject cannot run here. The text is the reason."""


class Damaged(Exception):
    """A check of the store's own says that its files are damaged."""


class Opened(Protocol):
    """An open store."""

    def do(self, unit: Unit) -> None:
        """Do a unit as one transaction, and return when the store promises it."""
        ...

    def contents(self) -> Contents:
        """Everything that is stored. Raises Damaged, or any error of the store."""
        ...


class Subject(Protocol):
    """A store under one of its settings.

    name       of subject and setting, as `sqlite3-wal-full`
    promise    in the words of its manual, in short
    admitted   for KILL, and for a power cut, the faults that its manual admits
    forked     its files are opened in a forked process, because the store may die of them
    """

    name: str
    promise: str
    admitted: Mapping[str, frozenset[Kind]]
    forked: bool

    def missing(self) -> str:
        """Why it cannot run here; "" if it can."""
        ...

    def open(self, root: Path) -> AbstractContextManager[Opened]:
        """Open or create the store in an existing directory."""
        ...


def admits(*power: Kind) -> dict[str, frozenset[Kind]]:
    """A manual admits these faults after a power cut, and none after the end of the process."""
    return {KILL: frozenset(), STRICT: frozenset(power), ORDERED: frozenset(power)}


def units_of(seed: str, count: int = UNITS) -> list[Unit]:
    """The workload of a seed."""
    rng = random.Random(f"{seed}/subjects")
    units: list[Unit] = []
    living: list[bytes] = []
    number = 0
    while len(units) < count:
        if living and rng.random() < 0.2:
            key = living.pop(rng.randrange(len(living)))
            # The second operation makes sure that no two numbers of units leave the same contents.
            units.append([["drop", key], ["set", b"dropped", key]])
            continue
        unit: Unit = []
        for _ in range(TEN if rng.random() < 0.3 else 1):
            key = b"%d" % number
            number += 1
            living.append(key)
            # The value names the key, and is sometimes longer than a page.
            unit.append(["set", key, b"%b:" % key * rng.choice((3, 30, 300, 2000))])
        units.append(unit)
    return units
