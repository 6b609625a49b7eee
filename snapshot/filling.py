"""Fill a new checkpoint with data that has no log, in bounded memory: for imports.

The data is put into a state, part by part. Whenever `fold` is called, the changed rows are committed, and the state
starts again with nothing in memory. Commits make the same file as the checkpoints of a store that had got the data by
commands.

The checkpoint says that its store began with one life, whose EPOCH record was LSN 1, and that the log up to there was
released. So nobody takes the log, which begins with LSN 2, for the whole history.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidelog.aof import segment
from tidelog.aof.reading.reader import Epoch
from tidelog.aof.start import Start
from tidelog.disk.interface import Disk
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import State
from tidelog.snapshot.folding import fold_into
from tidelog.snapshot.portable import beneath
from tidelog.snapshot.rows.environment import open_environment
from tidelog.snapshot.rows.opened import Opened, open_copy

FIRST_EPOCH: Final = 1
LSN: Final = 1


class Filling:
    """A checkpoint that is being filled, in `folder`, which has none.

    state   the data so far; a new object after each `fold`
    start   where the store's log continues
    """

    def __init__(self, disk: Disk, folder: Path, uuid: bytes, now_ms: int) -> None:
        self._disk, self._folder = beneath(disk, folder)
        self._uuid = uuid
        incarnation = secrets.randbits(64)
        self.start = Start(
            lsn=LSN,
            crc=secrets.randbits(32),
            segment=LSN,
            offset=segment.HEADER_BYTES,
            incarnation=incarnation,
            epochs=(Epoch(FIRST_EPOCH, incarnation, LSN),),
            now=now_ms,
        )
        # Kept open, so that the file is not checked again after each commit of ours.
        self._environment = open_environment(self._disk, self._folder)
        self._opened: Opened | None = None
        self.state = State()
        applier(self.state)([(e.EPOCH, FIRST_EPOCH, incarnation)])

    def fold(self) -> None:
        """Commit the state; `self.state` is then the same, read from the file. Raises CheckpointError, OSError."""
        fold_into(self._disk, self._folder, self.state, self._uuid, self.start)
        self._release()
        opened = self._opened = open_copy(self._disk, self._folder, write=True)
        self.state = opened.state()

    def _release(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()
        self._environment.close()
