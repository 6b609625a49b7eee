"""A log with made-up records on a simulated disk, and what must hold of whatever is left of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import FSYNCED, WRITTEN, Log, Policy
from tidelog.aof.reading.recovery import Recovered
from tidelog.aof.start import Start
from tidelog.crash.logs import SIZES, UUID, body_of, data_only, open_log
from tidelog.disk.interface import Disk, File
from tidelog.engine.effects.effect import END, Effect

ROOT = Path("/db")
RECORD = 2  # the opcode of our records: (RECORD, unit number, index in the unit, padding)


def unit(number: int, records: int, padding: int) -> list[Effect]:
    effects: list[Effect] = [(RECORD, number, i, bytes([65 + i]) * padding) for i in range(records)]
    effects[-1] = (RECORD | END, *effects[-1][1:])
    return effects


def open_store(
    disk: Disk,
    apply: Callable[[list[Effect]], object],
    root: Path = ROOT,
    start: Start | None = None,
) -> tuple[File, Recovered]:
    """Open a log as a store does: lock, identity, recovery."""
    held, uuid, recovered = open_log(disk, root, UUID, apply, start)
    assert uuid == UUID
    return held, recovered


def read_back(disk: Disk, root: Path = ROOT) -> list[Effect]:
    """The records that recovery finds, EPOCHs left out. Changes the disk as recovery does."""
    records: list[Effect] = []
    held, _ = open_store(disk, records.extend, root)
    held.close()
    return data_only(records)


class Life:
    """One process's time with the log: opened on construction. Units and answers are kept in `past`."""

    def __init__(
        self,
        disk: Disk,
        past: Past,
        policy: Policy = "no",
        start: Start | None = None,
        **options: Any,
    ) -> None:
        self.past = past
        self.disk = disk
        applied: list[Effect] = []
        self.held, self.recovered = open_store(disk, applied.extend, start=start)
        past.recovered(data_only(applied))
        self.log = Log(
            disk,
            ROOT,
            UUID,
            self.recovered,
            policy=policy,
            incarnation=past.next_incarnation(),
            clock=lambda: 1_700_000_000_000,
            **{**SIZES, **options},
        )

    def add(self, records: int = 1, padding: int = 10, flush: bool = True) -> int:
        effects = unit(self.past.next_number(), records, padding)
        body = body_of(effects)
        log = self.log
        with log.lock:
            log.reserve(len(body))
            self.past.units.append(effects)
            lsn = log.add(body, records, log.last_now, flush)
        if flush:
            self.past.written = len(self.past.units)
        return lsn

    def wait(self, level: int) -> None:
        log, past = self.log, self.past
        units = len(past.units)
        log.wait(log.next_lsn - 1, level)
        past.written = units
        if level == FSYNCED:
            past.fsynced = units

    def close(self) -> None:
        units = len(self.past.units)
        try:
            self.log.close()
            self.past.written = self.past.fsynced = units
        except LogPoisoned:
            pass
        finally:
            self.held.close()


class Past:
    """The units that were given to the log, in order, and how many of them were acknowledged at which level."""

    def __init__(self) -> None:
        self.units: list[list[Effect]] = []
        self.written = 0
        self.fsynced = 0
        self._number = 0
        self._incarnation = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def next_incarnation(self) -> int:
        self._incarnation += 1
        return self._incarnation

    def lost_power(self) -> None:
        self.written = self.fsynced

    def recovered(self, found: list[Effect]) -> None:
        """A new life goes on from `found`, all of which is served now and so durable."""
        kept = self.units_in(found)
        assert kept >= self.fsynced
        del self.units[kept:]
        self.written = self.fsynced = kept

    def units_in(self, found: list[Effect]) -> int:
        """The number of whole units in `found`. Fails if these are not the first ones."""
        at = 0
        for number, effects in enumerate(self.units):
            if at == len(found):
                return number
            assert found[at : at + len(effects)] == effects, (
                f"unit {number} is not what was written"
            )
            at += len(effects)
        assert at == len(found), "records were invented"
        return len(self.units)


def random_step(life: Life, rng: random.Random) -> None:
    way = rng.random()
    if way < 0.55:
        life.add(rng.randint(1, 3), rng.choice((0, 10, 100, 700)), flush=rng.random() < 0.7)
    elif way < 0.60:
        life.add(1, rng.choice((3000, 9000)))
    elif way < 0.70:
        life.wait(WRITTEN)
    else:
        life.wait(FSYNCED)
