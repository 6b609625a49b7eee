"""Models: can a finding happen on a file system that keeps more order than POSIX asks for?

STRICT counts every finding. With ORDERED one that ext4 and xfs cannot show is a note. The layers of
tidelog itself are STRICT by default, other stores and programs of users ORDERED.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import click

from tidelog.crash.explore import Finding
from tidelog.crash.ordered import ordered
from tidelog.crash.report import TEST
from tidelog.crash.shrink import tried_again
from tidelog.crash.states import State, cut_at
from tidelog.crash.subjects.bench import SUBJECT
from tidelog.crash.trace import unpack
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.tools.crash.cutting import REAL

STRICT: Final = "strict"
ORDERED: Final = "ordered"
STATES: Final = 64  # other states of the same moment

model_option = click.option(
    "--model",
    type=click.Choice((STRICT, ORDERED)),
    help=f"What counts: with {STRICT} every state that POSIX allows, with {ORDERED} those of a file system with a "
    f"journal, as ext4 and xfs; other findings are notes. Without it, {STRICT} for tidelog, {ORDERED} for --subject.",
)
NOT_FOUND: Final = "not found"


def on_ordered(finding: Finding, room: Path) -> str:
    """Whether an ordered file system can show a finding, in words. `room` does not exist."""
    if finding.layer in REAL:
        return "possible: it was found on a file system of the kernel"
    if finding.damage is not None or finding.trouble is not None or not finding.power:
        return "possible: no order of writes is lost in it"
    if finding.layer in (SUBJECT, TEST):
        return "not known: the check is not in the finding"
    trace = unpack(finding.trace, "the trace of the finding")
    cut = cut_at(trace, finding.time)
    nearest = ordered(cut, finding.state)
    if nearest == finding.state:
        return "possible: such a file system may leave this state"
    rng = random.Random(0)
    others = [ordered(cut, state) for state in cut.states(rng, STATES, STATES)]
    states: list[State] = [*dict.fromkeys([nearest, *others])]
    disk = RealDisk()
    for state in states:
        disk.mkdir(room)
        try:
            fault = tried_again(finding._replace(state=state), trace, room)
        finally:
            recipe.remove_tree(disk, room)
        if fault is not None:
            where = "the nearest state" if state == nearest else "another state of this moment"
            return f"possible, in {where}: {fault.kind.value}: {fault.words}"
    return f"{NOT_FOUND}: all of {len(states)} states that it may leave at this moment are right"
