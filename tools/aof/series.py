"""Series: the figures of a log over its time, in bounded memory: for `tidelog aof plot`.

The time is cut into spans of equal length. The length begins at a millisecond and is doubled whenever the log has more
spans than fit; two spans each are then added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.frame import HEADER_BYTES, Frame
from tidelog.aof.reading.reader import FrameTuple, Replay
from tidelog.aof.start import Start
from tidelog.engine.effects.apply import applier
from tidelog.engine.keys.state import State
from tidelog.engine.streams.lag import lag
from tidelog.engine.streams.stream import Stream
from tidelog.tools.bases import Base, bases, state_of
from tidelog.tools.console import Advance
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.moment import first_lsn

SPANS_MAX: Final = 300

GroupName = tuple[int, bytes, bytes]  # database, key, group


class Span(NamedTuple):
    """The records of one span of time. `exposed`: the most records that were not yet synced at a write."""

    records: int
    entries: int
    nbytes: int
    exposed: int


class Series:
    """Spans by their number; span n is the time from n * width on, in unix ms."""

    def __init__(self) -> None:
        self.width = 1
        self.spans: dict[int, Span] = {}

    def take(self, frame: Frame, entries: int) -> None:
        """Count one frame, which adds that many entries."""
        exposed = max(0, frame.lsn - 1 - frame.synced)
        self._add(
            frame.now // self.width,
            Span(frame.count, entries, HEADER_BYTES + len(frame.body), exposed),
        )
        if len(self.spans) > 2 * SPANS_MAX:
            self._double()

    def fit(self) -> None:
        """Make the spans so long that the time from the first to the last has at most SPANS_MAX."""
        while self.spans and max(self.spans) - min(self.spans) >= SPANS_MAX:
            self._double()

    def _double(self) -> None:
        before, self.spans = self.spans, {}
        self.width *= 2
        for number, span in before.items():
            self._add(number // 2, span)

    def _add(self, number: int, more: Span) -> None:
        known = self.spans.get(number)
        if known is None:
            self.spans[number] = more
            return
        self.spans[number] = Span(
            known.records + more.records,
            known.entries + more.entries,
            known.nbytes + more.nbytes,
            max(known.exposed, more.exposed),
        )

    def numbers(self) -> range:
        """Every span from the first to the last, empty ones too."""
        return range(min(self.spans), max(self.spans) + 1) if self.spans else range(0)


class Sample(NamedTuple):
    """A group at the end of a span; None where it is unknown or there is no such group."""

    lag: int | None
    pending: int | None


def base_for(files: LogFiles, since: int) -> Base | None:
    """The state from which the log can be replayed: the newest before `since`, or else the oldest."""
    first = first_lsn(files)
    usable = [base for base in bases(files) if base.start.lsn + 1 >= first]
    before = [base for base in usable if base.start.now <= since]
    return before[-1] if before else usable[0] if usable else None


def samples(
    files: LogFiles,
    base: Base,
    width: int,
    last: int,
    groups: list[GroupName],
    advance: Advance,
) -> dict[GroupName, dict[int, Sample]]:
    """The groups at the end of every span through the span `last` that has a frame. Raises as `LogFiles.frames`."""
    found: dict[GroupName, dict[int, Sample]] = {group: {} for group in groups}
    with state_of(files, base) as (state, start):
        replay = Replay(applier(state))
        frames = _frames(files, start, advance)

        def at(item: tuple[Path, FrameTuple]) -> tuple[Path, int]:
            return item[0], item[1][3] // width

        for (path, number), part in groupby(frames, at):
            if number > last:
                break
            replay.run(path, (fields for _, fields in part))
            for group in groups:
                found[group][number] = _sample(state, group)
    return found


def _frames(
    files: LogFiles, start: Start, advance: Callable[[int], None]
) -> Iterator[tuple[Path, FrameTuple]]:
    for scan in files.scans_behind(start):
        for fields in scan.tuples():
            advance(HEADER_BYTES + len(fields[6]))
            yield scan.path, fields


def _sample(state: State, name: GroupName) -> Sample:
    db, key, group_name = name
    stream = state.databases[db].keys.get(key)
    group = stream.groups.get(group_name) if isinstance(stream, Stream) else None
    if group is None or not isinstance(stream, Stream):
        return Sample(None, None)
    return Sample(lag(stream, group), len(group.pending))
