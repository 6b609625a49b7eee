"""Cut: a new store with everything before the damage.

The state of a base (the checkpoint, a snapshot, or the beginning of the log) is brought forward through the log up to
the damage, and becomes the checkpoint of the copy; its log begins behind it. Nothing in the damaged store is changed.

    1. Copy the data of the base into checkpoint/ of the copy, and let a child process walk it.
    2. Apply the records up to the planned LSN and fold them into the copy.
    3. Write aof/ with a first segment at P+1 that has no frame, DURABLE, and last STORE.
    4. Open the copy and compare its digest with the one that was promised. If it differs, remove STORE.

Until step 3 ends, the target is not a store: it has no file STORE.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click

from tidelog.aof import identity
from tidelog.aof.errors import AofError, Damage
from tidelog.aof.start import create_behind
from tidelog.disk import recipe
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import State
from tidelog.snapshot.folding import fold_into
from tidelog.snapshot.portable import copy_of
from tidelog.snapshot.rows.environment import open_environment
from tidelog.snapshot.rows.opened import open_copy
from tidelog.snapshot.walk import walk
from tidelog.tools import exits
from tidelog.tools.bases import Base, bases, state_of
from tidelog.tools.failed import Failed
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.repair.reach import Reach, follow
from tidelog.tools.repair.salvage import Salvaged, salvage
from tidelog.tools.replay import contents
from tidelog.tools.snapshot.facts import progress


class RepairFailed(Failed):
    """The copy is not what was promised."""

    exit_code = exits.DAMAGED


class Plan(NamedTuple):
    """The copy that can be made.

    base     where its state comes from
    reach    the last LSN, and the damage behind it
    digest   of its whole state
    faults   why bases that would have reached further, or as far, are not used
    salvaged what was applied from behind the damage; None: that was not asked for
    """

    base: Base
    reach: Reach
    digest: str
    faults: list[str]
    salvaged: Salvaged | None = None

    @property
    def lsn(self) -> int:
        return self.reach.start.lsn


def plan(files: LogFiles, *, skip_damaged: bool = False) -> Plan | None:
    """The copy that reaches furthest; None if no base can be read. Writes nothing.

    skip_damaged   the digest is that of a copy with the records behind the damage, too

    Raises NewerFormat, OSError.
    """
    best: Plan | None = None
    faults: list[str] = []
    for base in reversed(
        bases(files)
    ):  # the newest is tried first, since it needs the least of the log
        fault = next(iter(walk(files.disk, base.folder, progress)), None) if base.folder else None
        if fault is not None:
            faults.append(f"{base.name}: {fault.text}")
            continue
        try:
            with state_of(files, base) as (state, start):
                reach = follow(files, start, state)
                if best is not None and reach.start.lsn <= best.lsn:
                    continue
                if reach.damage is not None:
                    # The record that could not be applied may have changed the state.
                    found = _digest_at(files, base, reach.start.lsn)
                else:
                    found = digest(state)
        except (Damage, CorruptBlock) as error:
            faults.append(f"{base.name}: {error}")
            continue
        best = Plan(base, reach, found, faults)
        if reach.damage is None:
            break
    if best is None or not skip_damaged:
        return best
    with state_of(files, best.base) as (state, start):
        follow(files, start, state, best.lsn)
        salvaged = salvage(files, state, best.lsn)
        return best._replace(salvaged=salvaged, digest=digest(state))


def _digest_at(files: LogFiles, base: Base, lsn: int) -> str:
    with state_of(files, base) as (state, start):
        follow(files, start, state, lsn)
        return digest(state)


def write(files: LogFiles, found: Plan, target: Path, *, uuid: bytes | None = None) -> None:
    """Make the copy in `target`, a missing or empty directory. `uuid`: of the copy, by default that of the store.

    Raises click.UsageError, RepairFailed, OSError.
    """
    uuid = files.uuid if uuid is None else uuid
    disk = files.disk
    if disk.exists(target) and disk.listdir(target):
        raise click.UsageError(f"{target} is not empty; name a new directory")
    recipe.make_directory(disk, target)
    folder = target / identity.CHECKPOINT
    recipe.make_directory(disk, folder)
    base = found.base
    with ExitStack() as held:
        if base.folder is None:
            state, start = State(), base.start
        else:
            environment = open_environment(disk, base.folder, read_only=True)
            try:
                copy_of(disk, environment, folder, progress)
            finally:
                environment.close()
            opened = open_copy(disk, folder, write=True)
            held.callback(opened.close)
            state, start = opened.state(), opened.meta.start
        reach = follow(files, start, state, found.lsn)
        if reach.start.lsn != found.lsn:
            raise RepairFailed(
                f"the store changed while the copy was made: it ends with LSN {reach.start.lsn}, not {found.lsn}. "
                f"Delete {target}, close the store and repeat the command"
            )
        behind = reach.start
        if found.salvaged is not None:
            now = salvage(files, state, found.lsn).now
            behind = behind._replace(now=max(now, behind.now))
        fold_into(disk, folder, state, uuid, behind)
    create_behind(disk, target, uuid, behind, time.time_ns() // 1_000_000)
    check(target, found)


def check(target: Path, found: Plan) -> None:
    """Open the copy and compare its digest. Raises RepairFailed, and takes its STORE away, if it differs."""
    made = LogFiles(target)
    try:
        with contents(made) as held:
            same = (digest(held.state), held.last_lsn) == (found.digest, found.lsn)
    except (AofError, CorruptBlock):
        same = False
    if not same:
        recipe.remove(made.disk, target / identity.NAME)
        raise RepairFailed(
            f"{target} does not hold what was promised, so its file STORE was removed. Keep both directories and "
            "report this"
        )
