"""Records of the log, one by one, as the tools show them: decoded, numbered, and with their place in a unit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import NewerRecord
from tidelog.aof.frame import Frame
from tidelog.aof.reading import reader
from tidelog.engine.effects import effect as effects
from tidelog.engine.effects.apply import is_known
from tidelog.engine.effects.effect import END, OPCODE, Effect

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
