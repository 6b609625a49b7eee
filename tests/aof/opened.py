"""A log on real files, which a test opens, fills and closes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.aof.world import open_store, unit

from tidelog.aof import segment
from tidelog.aof.log import Log, Policy
from tidelog.crash.logs import UUID, body_of
from tidelog.disk.interface import File
from tidelog.disk.real import RealDisk
from tidelog.engine.effects.effect import Effect


class Opened:
    """A log on real files."""

    def __init__(self, root: Path, policy: Policy = "no", **options: Any) -> None:
        self.root = root
        self.disk = RealDisk()
        self.applied: list[Effect] = []
        self.began: list[Effect] = []
        self.held: File
        self.held, self.recovered = open_store(self.disk, self.applied.extend, root)
        self.log = Log(
            self.disk,
            root,
            UUID,
            self.recovered,
            policy=policy,
            began=self.began.append,
            **options,
        )
        self.number = 0

    def add(self, records: int = 1, padding: int = 10, flush: bool = True) -> int:
        self.number += 1
        body = body_of(unit(self.number, records, padding))
        with self.log.lock:
            self.log.reserve(len(body))
            return self.log.add(body, records, self.log.last_now, flush)

    def close(self) -> None:
        self.log.close()
        self.held.close()

    def names(self) -> list[str]:
        return [name for name in os.listdir(self.root / "aof") if segment.first_lsn_of(name)]
