"""Records of the log, one by one, as the tools show them: decoded, numbered, and with their place in a unit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import CorruptFrame, NewerRecord
from tidelog.aof.frame import Frame
from tidelog.aof.reading import reader
from tidelog.aof.reading.reader import UNFIT as UNFIT
from tidelog.engine.effects import effect as effects
from tidelog.engine.effects.apply import is_known
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.walk import walk
from tidelog.tools.aof import record_check
from tidelog.tools.logfiles import LogFiles

# The place of a record in its unit: the only one, or the first, a middle one, or the last of several.
ONLY: Final = "only"
FIRST: Final = "first"
MIDDLE: Final = "middle"
LAST: Final = "last"

NAMES: Final[dict[int, str]] = {
    value: name
    for name, value in vars(effects).items()
    if name.isupper() and isinstance(value, int) and name not in ("END", "OPCODE", "VOLATILE")
}
NAMES[effects.DELIVER] = "XCLAIM"  # as Redis propagates a delivery


class Record(NamedTuple):
    """One record. `now` is its frame's time in unix ms, `offset` its frame's place in the segment."""

    lsn: int
    now: int
    segment: str
    offset: int
    unit: str
    effect: Effect

    @property
    def name(self) -> str:
        """The effect's own name, `XADD_NODE` for one."""
        return NAMES[self.effect[0] & OPCODE]


def records_of(path: Path, frame: Frame) -> Iterator[Record]:
    """The records of one frame, which holds whole units. Raises CorruptFrame if they do not decode, NewerRecord for
    one that only a newer version can show.
    """
    begins = True
    for lsn, effect in enumerate(reader.records_of(path, frame), frame.lsn):
        if not is_known(effect[0]):
            raise NewerRecord(path, frame.offset, lsn, effect[0])
        ends = bool(effect[0] & END)
        unit = (ONLY if ends else FIRST) if begins else (LAST if ends else MIDDLE)
        yield Record(lsn, frame.now, path.name, frame.offset, unit, effect)
        begins = ends


def unfit(path: Path, frame: Frame, error: Exception) -> CorruptFrame:
    """The error for a frame whose records a tool cannot work with, since one of them is no effect.

    Checking each record before it is shown would cost a fifth of the speed, so a tool catches UNFIT and asks here.
    """
    try:
        effects = reader.records_of(path, frame)
    except CorruptFrame as undecoded:
        return undecoded
    for lsn, effect in enumerate(effects, frame.lsn):
        fault = record_check.fault(effect)
        if fault:
            return CorruptFrame(path, frame.offset, lsn, lsn, f"the checksums match, but {fault}")
    reason = f"the checksums match, but a record of this frame contradicts itself ({reader.short(error)})"
    return CorruptFrame(path, frame.offset, frame.lsn, frame.lsn, reason)


# The errors for which a row of a checkpoint may be to blame: it may state any length.
SUSPECT: Final = (*UNFIT, MemoryError)


def blamed(files: LogFiles, error: Exception) -> Exception:
    """The error for a state that a tool cannot show: that of the record or the row to blame.

    Returns `error` itself if none is: then it is a bug. Reads the whole log once more, and lets a child process walk
    the checkpoint. Raises as `LogFiles.frames`.
    """
    for path, frame in files.frames():
        for effect in reader.records_of(path, frame):
            if record_check.fault(effect):
                return unfit(path, frame, error)
    if files.has_checkpoint or files.snapshot is not None:
        for finding in walk(files.disk, files.checkpoint.parent):
            return CorruptBlock(str(finding))
    return error
