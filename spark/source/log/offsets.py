"""Offsets: places in a store's log that outlive the query which made them, and what is lost if one is gone.

An offset is a position as recovery trusts it: the store's uuid, the life that wrote the segment, an LSN, and the
checksum of the frame that ends with it. Segment and byte only say where to look first. Inside a frame, an offset also
has the position behind that frame, whose checksum says whether the frame is still the one that was read in part.

    released       the writer deleted the segments behind the offset: the records up to the first retained one are lost
    rewound        records that the query has read were taken back, by a power cut or by restoring a snapshot
    other store    another store has the path now
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.aof import identity, segment
from tidelog.aof.errors import CorruptFrame, DoesNotFit
from tidelog.aof.reading.reader import Segment, segments
from tidelog.aof.segment import Position
from tidelog.aof.start import Start, beginning
from tidelog.aof.tail import Tail
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.snapshot.rows.opened import open_copy

RELEASED: Final = "released"
REWOUND: Final = "rewound"
OTHER_STORE: Final = "other store"


class Within(NamedTuple):
    """A place inside the frame that ends at `behind`. Before it lie some records, and some rows of the next one."""

    behind: Position
    records: int
    rows: int


class Offset(NamedTuple):
    """A place in the log of the store `uuid`.

    snapshot   that snapshot's entries are read first; "" for none
    begun      at the end of a query's first batch: where that batch begins. Spark stores only the ends of batches
    within     the place is inside the frame behind `position`, because a unit has more rows than a batch may have
    """

    uuid: bytes
    position: Position
    snapshot: str = ""
    begun: Offset | None = None
    within: Within | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts the offsets of one history."""
        return self.position.lsn, *(self.within[1:] if self.within else (0, 0))

    def told(self) -> dict[str, Any]:
        """For Spark, which keeps it as JSON."""
        told: dict[str, Any] = {"uuid": self.uuid.hex(), **_told(self.position)}
        if self.snapshot:
            told["snapshot"] = self.snapshot
        if self.begun is not None:
            told["begun"] = self.begun.told()
        if self.within is not None:
            behind, records, rows = self.within
            told["within"] = {**_told(behind), "records": records, "rows": rows}
        return told


def _told(position: Position) -> dict[str, Any]:
    lsn, crc, first, byte, incarnation = position
    return {
        "life": f"{incarnation:016x}",
        "lsn": lsn,
        "crc": f"{crc:08x}",
        "segment": first,
        "byte": byte,
    }


def _position_of(told: Mapping[str, Any]) -> Position:
    return Position(
        int(told["lsn"]),
        int(told["crc"], 16),
        int(told["segment"]),
        int(told["byte"]),
        int(told["life"], 16),
    )


def offset_of(told: Mapping[str, Any]) -> Offset:
    """The offset that `Offset.told` described."""
    begun = offset_of(told["begun"]) if "begun" in told else None
    within = None
    if "within" in told:
        inside = told["within"]
        within = Within(_position_of(inside), int(inside["records"]), int(inside["rows"]))
    uuid = bytes.fromhex(told["uuid"])
    return Offset(uuid, _position_of(told), told.get("snapshot", ""), begun, within)


class Loss(NamedTuple):
    """Records that a query cannot read or has read in vain: LSN `first` to `last`. It can go on at `resume`.

    released   the same for records of the new history that were released before the query could read them: LSN
               `released` to `resume`; 0 if there are none
    """

    kind: str
    first: int
    last: int
    resume: Position
    text: str
    released: int = 0

    def gaps(self, end: int) -> list[Gap]:
        """The gaps of a batch that ends with LSN `end`. The next batch tells what is released behind it."""
        if self.kind == RELEASED:
            return [Gap(RELEASED, self.first, min(self.last, end))]
        gaps = [Gap(self.kind, self.first, self.last)]
        if self.released:
            gaps.append(Gap(RELEASED, self.released, self.resume.lsn))
        return gaps


class Gap(NamedTuple):
    """The content of an event `gap`: LSN `first` to `last` are lost."""

    kind: str
    first: int
    last: int

    @property
    def detail(self) -> dict[str, object]:
        return {"reason": self.kind, "from_lsn": self.first, "to_lsn": self.last}


class Log:
    """The log of the store in `root`. Opens files only during a call.

    Raises NotAStore, DamagedFile, NewerFormat, OSError.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk: Disk = RealDisk() if disk is None else disk
        self.disk.guard(root)
        self.directory = root / identity.AOF
        self.uuid = identity.read(self.disk, root)

    def tail(self, position: Position) -> Tail:
        """A tail behind a position."""
        return Tail(self.disk, self.directory, self.uuid, position)

    def segments(self, after: int = 0) -> list[Segment]:
        """The segments, without those that end at or before an LSN."""
        return segments(self.disk, self.directory, self.uuid, after=after)

    def earliest(self) -> Position:
        """The position before the first retained record."""
        found = self.segments()
        return beginning_of(found[0]) if found else Position(0, 0, 1, segment.HEADER_BYTES, 0)

    def latest(self) -> Position:
        """The position behind the last record."""
        found = self.segments()
        return self._end(beginning_of(found[-1])) if found else self.earliest()

    def _end(self, position: Position) -> Position:
        tail = self.tail(position)
        while (stretch := tail.look()) is not None:
            tail.position = position = stretch.end
        return position

    def lives(self) -> list[tuple[int, int]]:
        """(incarnation, LSN of its first record) of every life of this history that is known, in order.

        They are in the checkpoint, and in the headers of the segments behind it.
        """
        found: list[tuple[int, int]] = []
        try:
            opened = open_copy(self.disk, self.root / identity.CHECKPOINT)
        except FileNotFoundError:
            pass
        else:
            found = [(epoch.incarnation, epoch.lsn) for epoch in opened.meta.epochs]
            opened.close()
        for info in self.segments():
            header = info.header
            if header.incarnation not in {life for life, _ in found}:
                found.append((header.incarnation, header.first_lsn))
        return found

    def lasting(self, position: Position) -> Position:
        """The position, with the life that wrote its LSN.

        A position before a segment's first frame has the life of that segment. If this life ends without a record,
        the next life replaces the segment, and nobody knows the name any more.
        """
        if position.segment != position.lsn + 1:
            return position
        begun = [life for life, lsn in self.lives() if lsn <= position.lsn]
        return position._replace(incarnation=begun[-1]) if begun else position

    def find(self, offset: Offset) -> Position | Loss:
        """Where to read on, or what is lost. Raises Damage."""
        at = offset.position
        if offset.within is not None:
            # The rest of the frame is needed, and it must be the frame of which the query has read the first rows.
            whole = self.find(Offset(offset.uuid, offset.within.behind))
            if isinstance(whole, Loss) and whole.kind != RELEASED:
                return whole
        if offset.uuid != self.uuid:
            resume = self.earliest()
            return Loss(
                OTHER_STORE,
                resume.lsn + 1,
                resume.lsn,
                resume,
                f"{self.root} is another store now: the query has read the store {offset.uuid.hex()}, through LSN "
                f"{at.lsn}, and this one is {self.uuid.hex()}",
                released=1 if resume.lsn else 0,
            )
        if at.lsn == 0:
            first = self.earliest()
            return first if first.lsn == 0 else self._released(at, first)
        try:
            found, start = beginning(self.disk, self.directory, self.uuid, Start(*at))
        except (DoesNotFit, CorruptFrame):
            # A frame that is not whole is damage, or the trace of a power cut before the next life removes it.
            return self._elsewhere(at)
        return beginning_of(found[0]) if start is None else start

    def _elsewhere(self, at: Position) -> Position | Loss:
        """As `find`, for a position that is not where it was."""
        found = self.segments(after=at.lsn)
        lives = self.lives()
        known = [number for number, (life, _) in enumerate(lives) if life == at.incarnation]
        # The last record of a life is the one before the first record of the next life.
        ends = lives[known[0] + 1][1] - 1 if known and known[0] + 1 < len(lives) else None
        if not known:
            # A life that is unknown to the reader wrote the record that now has this LSN. So the histories differ at
            # the latest from that life's first record on.
            others = [lsn for _, lsn in lives if lsn <= at.lsn]
            return self._rewound(at, max(others, default=1) - 1)
        if ends is not None and ends < at.lsn:
            return self._rewound(at, ends)
        if found and found[0].header.first_lsn > at.lsn + 1:
            return self._released(at, beginning_of(found[0]))
        return self._walked(at, found)

    def _walked(self, at: Position, found: list[Segment]) -> Position | Loss:
        """Look for the frame that ends at the LSN, wherever it lies."""
        if not found:
            return self._rewound(at, 0)
        position = beginning_of(found[0])
        tail = self.tail(position)
        while position.lsn < at.lsn and (stretch := tail.look()) is not None:
            for fields in stretch.frames:
                position = stretch.behind(fields)
                if position.lsn >= at.lsn:
                    break
            tail.position = position
        if position.lsn == at.lsn and position.crc == at.crc:
            return position
        return self._rewound(at, min(position.lsn, at.lsn - 1))

    def _released(self, at: Position, resume: Position) -> Loss:
        return Loss(
            RELEASED,
            at.lsn + 1,
            resume.lsn,
            resume,
            f"the writer of {self.root} released LSN {at.lsn + 1} to {resume.lsn} before the query had read them; the "
            f"log begins with LSN {resume.lsn + 1}",
        )

    def _rewound(self, at: Position, parted: int) -> Loss:
        earliest = self.earliest()
        resume = earliest if parted <= earliest.lsn else self.behind(parted)
        text = (
            f"LSN {parted + 1} to {at.lsn}, which the query has read, were taken back in {self.root} by a power cut or "
            "by restoring a snapshot"
        )
        released = parted + 1 if resume.lsn > parted else 0
        if released:
            text += f", and LSN {released} to {resume.lsn}, which came instead, are released"
        return Loss(REWOUND, parted + 1, at.lsn, resume, text, released)

    def behind(self, lsn: int) -> Position:
        """The position behind the last frame that ends at or before an LSN, or the earliest one."""
        found = self.segments(after=lsn)
        if not found:
            return self.earliest()
        position = beginning_of(found[0])
        if position.lsn >= lsn:
            return position
        tail = self.tail(position)
        while (stretch := tail.look()) is not None:
            for fields in stretch.frames:
                place = stretch.behind(fields)
                if place.lsn > lsn:
                    return position
                position = place
            tail.position = position
        return position

    def since(self, ms: int) -> Position:
        """The position before the first frame of this time (unix ms) or later."""
        found = self.segments()
        begun = [info for info in found if info.header.time < ms] or found[:1]
        if not begun:
            return self.earliest()
        position = beginning_of(begun[-1])
        tail = self.tail(position)
        while (stretch := tail.look()) is not None:
            for fields in stretch.frames:
                if fields[3] >= ms:
                    return position
                position = stretch.behind(fields)
            tail.position = position
        return position


def beginning_of(info: Segment) -> Position:
    """The position before the first frame of a segment."""
    header = info.header
    before = header.before
    return Position(
        before.lsn, before.crc, header.first_lsn, segment.HEADER_BYTES, header.incarnation
    )
