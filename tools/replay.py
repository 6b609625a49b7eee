"""A state made from the files of a log, for tools that say what a store holds."""

from __future__ import annotations

from tidelog.aof.reader import Replay
from tidelog.engine.apply import APPLY
from tidelog.engine.effects import Effect
from tidelog.engine.state import State
from tidelog.tools import console
from tidelog.tools.logfiles import LogFiles


def replayed(files: LogFiles) -> tuple[State, Replay]:
    """The state after every record of the log, and what was counted on the way. Raises as `LogFiles.frames`."""
    state = State()

    def apply(records: list[Effect]) -> None:
        for effect in records:
            APPLY[effect[0]](state, effect)

    replay = Replay(apply)
    with console.progress("replaying", files.size(), size=True) as advance:
        for scan in files.scans():
            replay.run(scan.path, scan.tuples())
            error = scan.error()
            if error is not None:
                raise error
            replay.now = scan.now or replay.now
            advance(scan.size)
    return state, replay
