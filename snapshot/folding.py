"""Folding what a log holds into a copy of a checkpoint, with nobody beside: for snapshots and restores."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tidelog.aof.start import Start
from tidelog.disk.interface import Disk
from tidelog.engine.freeze import freeze
from tidelog.engine.state import State
from tidelog.snapshot.checkpoint import write_checkpoint
from tidelog.snapshot.environment import ColdRows, open_environment
from tidelog.snapshot.meta import Meta, read_meta


def fold_into(disk: Disk, folder: Path, state: State, uuid: bytes, start: Start) -> None:
    """Write what changed in `state` into the checkpoint in `folder`, which is then that of `start`.

    `folder` holds the checkpoint that the state was loaded over; none, if it was not loaded. Durable when it
    returns. The state is not to be used any more. Raises CheckpointError, CorruptBlock, OSError.
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
            )
            # Nobody else knows the state, but other threads want their turns.
            write_checkpoint(
                environment, rows, freeze(state), meta, lock=threading.Lock(), sync=lambda: None
            )
        finally:
            rows.close()
    finally:
        environment.close()
