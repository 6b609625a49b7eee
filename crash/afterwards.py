"""Afterwards: what must hold of a store that a crash left, beside its contents. It costs ten opens, so some are tried.

the recovery    removes nothing of which there is no copy in quarantine/; a second one shows the same
inspection      a read-only open shows what the engine shows, and the same digest; the engine's check finds nothing
the close       leaves no thread, no descriptor and no unpublished file
a write         is taken, and is there after a kill, with everything else
each snapshot   that the crash left can be restored, and rolled forward through the log to the end of any unit
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Final

from tidelog.aof.identity import SNAPSHOTS
from tidelog.crash.model import Contents
from tidelog.crash.oracle import Fault, Kind, Oracle, difference
from tidelog.crash.removed import deletion
from tidelog.crash.served import STORE, Stage, Still, contents_of, open_on
from tidelog.crash.trace import Tree, tree_of
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.snapshot.portable import Unreadable, snapshots
from tidelog.snapshot.restore import restore

PROBE: Final = b"probe"  # the stream of the write that is taken after a crash
AFTERWARDS: Final = "afterwards, "  # how the words of such a fault begin
RESTORED: Final = "restored"
ROLLED: Final = 2  # unit ends that are drawn for a snapshot
DESCRIPTORS: Final = Path("/proc/self/fd")


class Wrong(Exception):
    """The first thing that does not hold."""


def afterwards(
    stage: Stage, image: Tree, oracle: Oracle, rng: random.Random, *, whole: bool
) -> Fault | None:
    """The first fault of a store beside its contents.

    whole   what starts a process each time too: the engine's own check, and the restores of snapshots
    """
    try:
        first = _opened(stage, image, walk=whole)
        _written(stage, image, first)
        if whole:
            _rolled(stage, image, oracle, rng)
    except Wrong as error:
        return Fault(Kind.WRONG, f"{AFTERWARDS}{error}")
    except Exception as error:  # whatever it is, a legal crash must not cause it
        return Fault(Kind.REFUSED, f"{AFTERWARDS}{type(error).__name__}: {error}")
    return None


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise Wrong(words)


def _same(found: Contents, expected: Contents, who: str) -> None:
    _require(found == expected, f"{who} shows other contents: {difference(found, expected)}")


def _descriptors() -> int:
    """How many descriptors this process has; 0 where nobody can tell."""
    return sum(1 for _ in DESCRIPTORS.iterdir()) if DESCRIPTORS.exists() else 0


def _opened(stage: Stage, image: Tree, *, walk: bool) -> Contents:
    """Open and close a store twice, and beside that for reading."""
    disk, root = stage.lay(image)
    before = _descriptors(), {*threading.enumerate()}
    with open_on(disk, root, "no", Still()) as db:
        first, digest = contents_of(db), db.digest()
        checkpoint = db.info().get("checkpoint_lsn", 0) > 0
        if checkpoint and walk:
            damage = db.verify()
            _require(not damage, f"the engine's own check finds {damage}")
        _read_only(disk, root, first, digest, "beside the writer a read-only open")
    kept = tree_of(disk, root)
    # The open does what the removal of a released segment left undone, and removes what was never published.
    mine = {
        path: data
        for path, data in image.items()
        if path in kept or not (checkpoint or recipe.BESIDE in path)
    }
    removed = deletion(mine, kept, opened=True)
    _require(not removed, f"the recovery removed data without a copy: {removed}")
    _read_only(disk, root, first, digest, "a read-only open")
    with open_on(disk, root, "no", Still()) as db:
        _same(contents_of(db), first, "a second recovery")
        _require(db.digest() == digest, "a second recovery has another digest")
    left = [path for path in kept if path.endswith(recipe.BESIDE) and path not in image]
    _require(not left, f"after the close there are unpublished files: {left}")
    threads = [each.name for each in threading.enumerate() if each not in before[1]]
    _require(not threads, f"after the close there are threads: {threads}")
    more = _descriptors() - before[0]
    _require(more <= 0, f"after the close {more} descriptors are open")
    return first


def _read_only(disk: Disk, root: Path, first: Contents, digest: str, who: str) -> None:
    if disk.beneath(root) is None:
        return  # a store in memory has no such open
    with open_on(disk, root, "no", Still(), read_only=True) as db:
        _same(contents_of(db), first, who)
        _require(db.digest() == digest, f"{who} has another digest")


def _written(stage: Stage, image: Tree, first: Contents) -> None:
    """Write, and let the process die: its files stay as they are."""
    disk, root = stage.lay(image)
    with open_on(disk, root, "always", Still()) as db:
        db.xadd(PROBE, {b"taken": b"1"})
        left = tree_of(disk, root)
    disk, root = stage.lay(left)
    with open_on(disk, root, "no", Still()) as db:
        found = contents_of(db)
    _require(found.pop(PROBE, None) is not None, "a write was taken, and lost in the next crash")
    _same(found, {key: value for key, value in first.items() if key != PROBE}, "the next crash")


def _rolled(stage: Stage, image: Tree, oracle: Oracle, rng: random.Random) -> None:
    """Restore each snapshot as it was made, and roll it forward to some ends of units, and to the last one."""
    disk, root = stage.lay(image)
    if disk.beneath(root) is None or not disk.exists(root / STORE / SNAPSHOTS):
        return
    with open_on(disk, root, "no", Still()) as db:
        last, now = db.info()["next_lsn"] - 1, contents_of(db)
    least = 0
    for each in snapshots(disk, root / STORE / SNAPSHOTS):
        if isinstance(each, Unreadable):
            raise Wrong(f"the snapshot {each.path.name} cannot be read: {each.error}")
        behind = range(each.manifest.position.lsn, last)
        bounds = [
            each.manifest.position.lsn,
            *sorted(rng.sample(behind, min(ROLLED, len(behind)))),
            last,
        ]
        for lsn in bounds:
            target = root / RESTORED
            disk.mkdir(target)
            restore(disk, each.path, target / STORE, aof=root / STORE, until_lsn=lsn)
            with open_on(disk, target, "no", Still()) as db:
                found = contents_of(db)
            units = oracle.first_with(found, least)
            if units is None:
                raise Wrong(
                    f"the snapshot {each.path.name}, rolled forward to LSN {lsn}, has the contents after no whole "
                    f"number of units from {least} on"
                )
            least = units
            if lsn == last:
                _same(found, now, f"the snapshot {each.path.name}, rolled forward to the end,")
            recipe.remove_tree(disk, target)
        least = 0
