"""Look: read all that a damaged store has, once, and say where it is damaged."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.aof.errors import Damage, NewerRecord
from tidelog.aof.frame import HEADER_BYTES
from tidelog.aof.reading.reader import Segment
from tidelog.aof.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from tidelog.aof.segment import End, Position, SegmentHeader
from tidelog.snapshot.walk import walk
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.reach import checked_records, fit
from tidelog.tools.snapshot.facts import progress


class Part(NamedTuple):
    """A segment whose header is known.

    info    what a scan of it needs
    end     behind its last frame before any damage
    whole   there is no damage in it
    """

    info: Segment
    end: End
    whole: bool

    @property
    def header(self) -> SegmentHeader:
        return self.info.header

    def holds(self, position: Position) -> bool:
        """Whether the position is in its undamaged part."""
        if (self.end.lsn, self.end.crc) == (position.lsn, position.crc):
            return True
        inside = SEGMENT_HEADER_BYTES <= position.offset <= self.end.offset
        return self.header.first_lsn == position.segment and inside


class Seen(NamedTuple):
    """The findings.

    damages      in words, with file and byte: STORE, DURABLE, checkpoint, log
    rotten       the damage of the checkpoint's data; None if it is sound, or if there is none
    parts        the segments whose headers are known, in order
    """

    damages: list[str]
    rotten: str | None
    parts: list[Part]


def look(files: MendedFiles) -> Seen:
    """Read the checkpoint and every frame. Raises NewerFormat, OSError."""
    damages = [place_text(fault) for fault in (files.store, files.durable_fault()) if fault]
    headers = files.headers()[1]
    rotten = _rotten(files)
    fault = rotten or _unfit(files)
    if fault is not None:
        damages.append(fault)
    damages += [f"{place_text(mend.fault)}; {mend.words}" for mend in files.mends]
    segments = {
        header.path: header.segment()
        for header in headers
        if header.fault is None and header.fields is not None
    }
    ends = {
        path: End(info.header.first_lsn - 1, SEGMENT_HEADER_BYTES, info.header.before.crc)
        for path, info in segments.items()
    }
    broken = set()
    for path, item in files.frames_past_damage():
        if isinstance(item, Damage):
            damages.append(place_text(item))
            broken.add(path)
            continue
        try:
            checked_records(path, item)
        except NewerRecord:
            pass  # behind damage it is left out; before damage, following the log raises it
        except Damage as error:
            damages.append(place_text(error))
            broken.add(path)
        if path not in broken:
            behind = item.offset + HEADER_BYTES + len(item.body)
            ends[path] = End(item.lsn + item.count - 1, behind, item.crc)
    parts = [Part(info, ends[path], path not in broken) for path, info in segments.items()]
    return Seen(damages, rotten, parts)


def place_text(damage: Damage) -> str:
    return f"{damage.path}, byte {damage.offset}: {damage.reason}"


def _rotten(files: MendedFiles) -> str | None:
    """The first finding in the checkpoint's data."""
    if not files.has_checkpoint:
        return None
    try:
        finding = next(iter(walk(files.disk, files.checkpoint.parent, progress)), None)
    except FileNotFoundError:
        return None  # nothing was committed to it yet
    return None if finding is None else finding.text


def _unfit(files: MendedFiles) -> str | None:
    """Why a checkpoint whose data is sound does not belong to the log."""
    meta = files.meta
    if meta is None:
        return None
    if meta.uuid != files.uuid:
        return f"{files.checkpoint}, byte 0: the checkpoint belongs to another store, {meta.uuid.hex()}"
    unfit = fit(files, meta.start)
    return None if unfit is None else place_text(unfit)


def run_to(parts: list[Part], position: Position) -> list[Part]:
    """The undamaged segments that lead to a position without a gap, in order. The last one holds it."""
    at = next((at for at in reversed(range(len(parts))) if parts[at].holds(position)), None)
    if at is None:
        return []
    run = [parts[at]]
    while at and parts[at - 1].whole and parts[at - 1].end == parts[at].header.before:
        at -= 1
        run.insert(0, parts[at])
    return run
