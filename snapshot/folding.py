"""Fold the effects of a log into a private copy of a checkpoint: for snapshots and restores."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tidelog.aof.start import Start
from tidelog.disk.interface import Disk
from tidelog.engine.keys.freeze import freeze
from tidelog.engine.keys.state import State
from tidelog.snapshot.checkpoint import write_checkpoint
from tidelog.snapshot.rows.environment import ColdRows, open_environment
from tidelog.snapshot.rows.meta import Meta, read_meta


def fold_into(disk: Disk, folder: Path, state: State, uuid: bytes, start: Start) -> None:
    """Write the changes of `state` into the checkpoint in `folder`, whose position is then `start`.

    `folder` must contain the checkpoint that the state was loaded from, or none if the state was not loaded. Durable
    on return. The caller must not use the state afterwards. Raises CheckpointError, CorruptBlock, OSError.
    """
    environment = open_environment(disk, folder)
    try:
        rows = ColdRows(environment)
        try:
            before = read_meta(rows, environment.path)
            meta = Meta(
                uuid=uuid,
                position=start.position,
                epochs=tuple(start.epochs),
                now=start.now,
                number=1 if before is None else before.number + 1,
                taken=time.time_ns() // 1_000_000,
                tables=state.tables_meta(),
                lead=0 if before is None else before.lead,
            )
            # No other thread uses the state, so the lock guards nothing. It is passed only because write_checkpoint
            # rests between turns if it has a lock.
            write_checkpoint(
                environment, rows, freeze(state), meta, lock=threading.Lock(), sync=lambda: None
            )
        finally:
            rows.close()
    finally:
        environment.close()
