"""Opened: a checkpoint file that is open for reading."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

from tidelog.disk.interface import Disk
from tidelog.engine.keys.freeze import load_state
from tidelog.engine.keys.state import State
from tidelog.snapshot.rows.environment import ColdRows, Environment, open_environment
from tidelog.snapshot.rows.meta import Meta, read_meta


class Opened(NamedTuple):
    """A checkpoint file open for reading. `close` it."""

    environment: Environment
    rows: ColdRows
    meta: Meta

    def close(self) -> None:
        self.rows.close()
        self.environment.close()

    def state(self) -> State:
        """The checkpoint's state, all of it cold."""
        return load_state(self.rows, self.meta.tables)


def open_copy(disk: Disk, folder: Path, *, write: bool = False) -> Opened:
    """Open the checkpoint in `folder`: read-only and without creating files, unless `write` is set.

    Raises FileNotFoundError if there is no checkpoint or nothing was committed to it yet; DamagedCheckpoint,
    NewerFormat, CheckpointError, OSError.
    """
    environment = open_environment(disk, folder, read_only=not write)
    try:
        rows = ColdRows(environment)
        try:
            meta = read_meta(rows, environment.path)
            if meta is None:
                raise FileNotFoundError(
                    errno.ENOENT, os.strerror(errno.ENOENT), str(environment.path)
                )
            return Opened(environment, rows, meta)
        except BaseException:
            rows.close()
            raise
    except BaseException:
        environment.close()
        raise
