"""Where two logs part: what they have in common by frames, whose checksums are chained, and what each has beyond.

A frame's checksum covers the frame before it. So one frame that is the same in both proves that everything before it is
the same, also where one of the logs has released its first segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.aof.frame import Frame
from tidelog.aof.reading.reader import Epoch, records_of
from tidelog.aof.surplus import Surplus
from tidelog.engine.effects.effect import EPOCH, OPCODE
from tidelog.tools.aof.records import UNFIT, unfit
from tidelog.tools.bases import bases
from tidelog.tools.logfiles import LogFiles


class Side(NamedTuple):
    """One of the logs.

    first, last   LSNs that its files hold; last 0: it holds none
    lives         the lives that are known of it, in order
    beyond        its records behind the parting
    """

    uuid: str
    first: int
    last: int
    lives: list[Epoch]
    beyond: Surplus


class Parting(NamedTuple):
    """The common part of two logs, and the place where they part.

    first, last   LSNs of the records that both files hold, and that are the same; last 0: none
    reason        why they part; None: neither log goes on, so they are equal
    """

    first: int
    last: int
    reason: str | None
    a: Side
    b: Side


class _Log:
    """A log that is read frame by frame."""

    def __init__(self, files: LogFiles) -> None:
        self.uuid = files.uuid
        self.lives: list[Epoch] = []
        for base in bases(files):
            self.lives += [life for life in base.start.epochs if life not in self.lives]
        self.first = self.last = 0
        self.beyond = Surplus()
        self.frame: Frame | None = None
        self.path = files.directory
        self._frames: Iterator[tuple[Path, Frame]] = files.frames()
        self.step()
        self.first = 0 if self.frame is None else self.frame.lsn

    def step(self) -> None:
        """Read the next frame; None behind the last."""
        found = next(self._frames, None)
        self.frame = None
        if found is None:
            return
        self.path, self.frame = found
        self.last = self.frame.lsn + self.frame.count - 1
        self._note_life(self.frame)

    def _note_life(self, frame: Frame) -> None:
        # An EPOCH record is alone in its frame, since it begins a life.
        if frame.count == 1:
            (effect,) = records_of(self.path, frame)
            if effect[0] & OPCODE == EPOCH:
                life = Epoch(effect[1], effect[2], frame.lsn)
                if life not in self.lives:
                    self.lives.append(life)

    def life_at(self, lsn: int) -> Epoch | None:
        return next((life for life in reversed(self.lives) if life.lsn <= lsn), None)

    def skip_to(self, lsn: int) -> None:
        """Read on to the frame that holds the LSN."""
        while self.frame is not None and self.last < lsn:
            self.step()

    def finish(self) -> None:
        """Count the rest as what this log has beyond."""
        found = self.beyond
        while self.frame is not None:
            if not found.first_lsn:
                found.first_lsn, found.first_ms = self.frame.lsn, self.frame.now
            found.last_lsn, found.last_ms = self.last, self.frame.now
            try:
                found.take(records_of(self.path, self.frame))
            except UNFIT as error:
                raise unfit(self.path, self.frame, error) from error
            self.step()

    def side(self) -> Side:
        return Side(self.uuid.hex(), self.first, self.last, self.lives, self.beyond)


def parting(one: LogFiles, two: LogFiles) -> Parting:
    """Read both logs once, side by side. Raises as `LogFiles.frames`."""
    a, b = _Log(one), _Log(two)
    begun = max(a.first, b.first)
    if a.frame is not None and b.frame is not None:
        a.skip_to(begun)
        b.skip_to(begun)
    common = 0
    while a.frame is not None and b.frame is not None:
        if (a.frame.lsn, a.frame.crc) != (b.frame.lsn, b.frame.crc):
            break
        common = a.last
        a.step()
        b.step()
    reason = _reason(a, b, begun, common)
    a.finish()
    b.finish()
    return Parting(begun if common else 0, common, reason, a.side(), b.side())


def _reason(a: _Log, b: _Log, begun: int, common: int) -> str | None:
    """Why the logs part at the frames at which both stand."""
    if a.uuid != b.uuid:
        return "they are logs of different stores"
    if a.frame is None and b.frame is None:
        return None if common or not (a.last or b.last) else _apart(a, b)
    if a.frame is None or b.frame is None:
        if not common and begun > 1:
            return _apart(a, b)
        return f"{'A' if a.frame is None else 'B'} ends there"
    lsn = max(a.frame.lsn, b.frame.lsn)
    left, right = a.life_at(lsn), b.life_at(lsn)
    if left is not None and right is not None and left.incarnation != right.incarnation:
        return f"another life goes on: {_life(left)} in A, {_life(right)} in B"
    return "the life is the same and the bytes are not: one of the files was changed, or not written by that life"


def _apart(a: _Log, b: _Log) -> str:
    return f"no LSN is in both: A ends with LSN {a.last}, B with LSN {b.last}, and the first segments were released"


def _life(life: Epoch) -> str:
    return f"life {life.number & 0xFFFFFFFF} ({life.incarnation:016x}, from LSN {life.lsn})"


def lives_through(side: Side, lsn: int) -> list[Epoch]:
    """The lives that began at or before the LSN."""
    return [life for life in side.lives if life.lsn <= lsn]
