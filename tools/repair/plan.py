"""Plan: the store that can be kept: its state, and the part of its log that is whole.

The state of a base (the checkpoint, a snapshot, or the beginning of the log) is brought forward through the log up to
the damage. The base that reaches furthest is used. Nothing is written.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.aof.errors import Damage
from tidelog.aof.start import Start
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.walk import walk
from tidelog.tools.bases import Base, bases, state_of
from tidelog.tools.repair.look import Part, Seen, run_to
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.reach import Reach, follow, state_at
from tidelog.tools.repair.salvage import Salvaged, salvage
from tidelog.tools.snapshot.facts import progress


class Plan(NamedTuple):
    """The store that can be kept.

    base     where its state comes from
    reach    the last LSN, and the damage behind it
    digest   of its whole state
    faults   why bases that would have reached further, or as far, are not used
    run      the undamaged segments that lead to its end without a gap, in order; there may be none
    salvaged what was applied from behind the damage; None: that was not asked for
    """

    base: Base
    reach: Reach
    digest: str
    faults: list[str]
    run: list[Part]
    salvaged: Salvaged | None = None

    @property
    def lsn(self) -> int:
        return self.reach.start.lsn

    @property
    def first_lsn(self) -> int:
        """The first LSN in the segments of `run`, or of the segment that begins behind the end."""
        return self.run[0].header.first_lsn if self.run else self.lsn + 1

    @property
    def end(self) -> Start:
        """Where the log ends, named by the last segment of `run`."""
        start = self.reach.start
        if not self.run:
            return start
        last = self.run[-1]
        at_its_end = (last.end.lsn, last.end.crc) == (start.lsn, start.crc)
        offset = last.end.offset if at_its_end else start.offset
        header = last.header
        return start._replace(
            segment=header.first_lsn, offset=offset, incarnation=header.incarnation
        )


def plan(files: MendedFiles, seen: Seen, *, skip_damaged: bool = False) -> Plan | None:
    """The store that reaches furthest; None if no base can be read. Writes nothing.

    skip_damaged   the digest is that of a copy with the records behind the damage, too

    Raises NewerFormat, OSError.
    """
    best: Plan | None = None
    faults: list[str] = []
    # The newest is tried first, since it needs the least of the log.
    for base in reversed(bases(files)):
        fault = _fault(files, seen, base)
        if fault is not None:
            faults.append(f"{base.name}: {fault}")
            continue
        try:
            with state_of(files, base) as (state, start):
                reach = follow(files, start, state)
                if best is not None and reach.start.lsn <= best.lsn:
                    continue
                if reach.damage is not None:
                    # The record that could not be applied may have changed the state.
                    with state_at(files, base, reach.start.lsn) as kept:
                        found = digest(kept)
                else:
                    found = digest(state)
        except (Damage, CorruptBlock) as error:
            faults.append(f"{base.name}: {error}")
            continue
        best = Plan(base, reach, found, faults, run_to(seen.parts, reach.start.position))
        if reach.damage is None:
            break
    if best is None or not skip_damaged:
        return best
    with state_at(files, best.base, best.lsn) as state:
        salvaged = salvage(files, state, best.lsn)
        return best._replace(salvaged=salvaged, digest=digest(state), run=[])


def _fault(files: MendedFiles, seen: Seen, base: Base) -> str | None:
    """Why the data of a base cannot be used. The checkpoint was walked before."""
    if base.folder is None:
        return None
    if base.folder == files.checkpoint.parent and not base.is_snapshot:
        return seen.rotten
    finding = next(iter(walk(files.disk, base.folder, progress)), None)
    return None if finding is None else finding.text
