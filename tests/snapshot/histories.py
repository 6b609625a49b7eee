"""Random histories beside a checkpoint that is written and loaded again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.driver import Engine
from tests.snapshot.world import DISK

from tidelog.aof.segment import Position
from tidelog.engine.effects.digest import digest
from tidelog.engine.keys.freeze import Frozen, freeze, load_state, settle, thaw
from tidelog.snapshot.checkpoint import write_checkpoint
from tidelog.snapshot.rows.environment import ColdRows, Environment, open_environment
from tidelog.snapshot.rows.meta import Meta, read_meta

UUID = bytes(range(16))


class World:
    """An engine over a checkpoint file, as a store has it."""

    def __init__(self, directory: Path) -> None:
        self.engine = Engine()
        self.lock = threading.Lock()
        self.env: Environment = open_environment(DISK, directory)
        self.rows = ColdRows(self.env)
        self.lsn = 0

    def close(self) -> None:
        self.rows.close()
        self.env.close()

    @property
    def state(self) -> Any:
        return self.engine.state

    def checkpoint(
        self,
        wrap: Callable[[Frozen], Any] = lambda frozen: frozen,
        sync: Callable[[], object] = lambda: None,
        cancelled: Callable[[], bool] = lambda: False,
        frozen_digest: list[str] | None = None,
        **more: Any,
    ) -> None:
        with self.lock:
            if frozen_digest is not None:
                frozen_digest.append(digest(self.state))
            meta = Meta(
                uuid=UUID,
                position=Position(self.lsn, 0, 1, 0, 7),
                now=self.engine.now,
                tables=self.state.tables_meta(),
            )
            frozen = freeze(self.state)
        try:
            write_checkpoint(
                self.env,
                self.rows,
                wrap(frozen),
                meta,
                lock=self.lock,
                sync=sync,
                cancelled=cancelled,
                **more,
            )
        except BaseException:
            with self.lock:
                thaw(self.state, frozen)
            raise
        with self.lock:
            self.rows.renew()
            self.state.changes.cold = self.rows
            settle(self.state, frozen)

    def stored(self) -> str:
        """The digest of what the file holds."""
        rows = ColdRows(self.env)
        try:
            meta = read_meta(rows, self.env.path)
            assert meta is not None and meta.uuid == UUID
            return digest(load_state(rows, meta.tables))
        finally:
            rows.close()

    def reopen(self) -> None:
        """Go on with what the file holds, nothing of it in memory."""
        meta = read_meta(self.rows, self.env.path)
        assert meta is not None
        self.engine.state = self.engine.ctx.state = load_state(self.rows, meta.tables)


def some_commands(engine: Engine, rng: random.Random, many: int) -> None:
    for _ in range(many):
        engine.now += rng.randrange(3)
        key = f"k{rng.randrange(12)}"
        kind = rng.randrange(17)
        if kind < 8:
            for _ in range(rng.choice((1, 1, 5, 150))):
                engine(f"XADD {key} * f {'v' * rng.randrange(60)}")
        elif kind == 8:
            engine(f"XGROUP CREATE {key} g{rng.randrange(3)} 0 MKSTREAM")
        elif kind == 9:
            who, count = f"g{rng.randrange(3)} c{rng.randrange(3)}", rng.randrange(1, 300)
            engine(f"XREADGROUP GROUP {who} COUNT {count} STREAMS {key} >")
        elif kind == 10:
            found = engine(f"XRANGE {key} - + COUNT 50")
            if isinstance(found, list) and found:
                ids = " ".join(item[0] for item in rng.sample(found, min(len(found), 9)))
                engine(f"XACK {key} g{rng.randrange(3)} {ids}")
                if rng.random() < 0.5:
                    engine(f"XDEL {key} {ids}")
        elif kind == 11:
            engine(f"XTRIM {key} MAXLEN ~ {rng.randrange(400)}")
        elif kind == 12:
            engine(f"SET {key}s {rng.random()}")
            engine(f"PEXPIRE {key} {rng.randrange(1, 100000)}")
        elif kind == 13:
            engine(f"DEL {key} {key}s")
        elif kind == 14:
            engine(f"RENAME {key} k{rng.randrange(12)}")
        elif kind == 15:
            found = engine(f"XREVRANGE {key} + - COUNT {rng.randrange(2, 300)}")
            if isinstance(found, list) and found:  # the IDs of the newest entries are given again
                again = [item[0] for item in reversed(found)]
                engine(f"XDEL {key} {' '.join(again[1:])}")
                engine(f"XSETID {key} {engine.now}-1000 MAXDELETEDID 0-1")
                engine(f"XSETID {key} {again[0]}")
                for entry_id in again[1:]:
                    engine(f"XADD {key} {entry_id} f again")
        elif rng.random() < 0.3:
            engine(f"SWAPDB 0 {rng.randrange(3)}")
        elif rng.random() < 0.1:
            engine("FLUSHDB")
