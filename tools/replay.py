"""Load a state from the files of a store, for tools that show its contents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tidelog.aof.reading.reader import Replay
from tidelog.aof.reading.recovery import read_all
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import State
from tidelog.store.checkpoints import check_owner
from tidelog.store.clock import SYSTEM
from tidelog.store.lifetime import close
from tidelog.store.read_only import open_read_only
from tidelog.tools import console
from tidelog.tools.aof.records import SUSPECT, blamed
from tidelog.tools.logfiles import LogFiles


class Contents(NamedTuple):
    """The contents of a store.

    state       with all rows; rows of a checkpoint are read when they are used
    last_lsn    of the newest record in it, 0 if there is none
    now         unix ms of its newest write
    folded_lsn  up to which a checkpoint holds it, 0 if there is none
    """

    state: State
    last_lsn: int
    now: int
    folded_lsn: int = 0


@contextmanager
def contents(files: LogFiles) -> Iterator[Contents]:
    """The state after the last record: the checkpoint, if there is one, and the log after it.

    It may be used inside the block only. Raises as `LogFiles.frames`, and CorruptBlock.
    """
    try:
        with _contents(files) as found:
            yield found
    except SUSPECT as error:
        raise blamed(files, error) from error


@contextmanager
def _contents(files: LogFiles) -> Iterator[Contents]:
    if files.snapshot is not None:
        core = open_read_only(files.disk, files.root, SYSTEM)
        try:
            opened = core.beneath.opened
            folded_lsn = 0 if opened is None else opened.meta.position.lsn
            yield Contents(core.state, core.log.next_lsn - 1, core.now, folded_lsn)
        finally:
            close(core)
        return
    with files.still(), ExitStack() as stack:
        try:
            opened = stack.enter_context(files.opened_checkpoint())
        except FileNotFoundError:
            yield _replayed(files)
            return
        check_owner(opened.environment.path, opened.meta, files.uuid)
        state, start = opened.state(), opened.meta.start
        scan, replay = read_all(
            files.disk, files.directory, files.uuid, applier(state), live=True, start=start
        )
        last_lsn = start.lsn if scan is None else scan.lsn - 1
        yield Contents(state, last_lsn, replay.now, start.lsn)


def _replayed(files: LogFiles) -> Contents:
    state = State()
    replay = Replay(applier(state))
    with console.progress("replaying", files.size(), size=True) as advance:
        for scan in files.scans(released=False):
            replay.run(scan.path, scan.tuples())
            error = scan.error()
            if error is not None:
                raise error
            replay.now = scan.now or replay.now
            advance(scan.size)
    return Contents(state, replay.records, replay.now)
