"""Calls: system calls of a process fail while its store works, those that LMDB makes by itself too.

A library is preloaded into the process of the runs (crash/preload/faults.c) and makes one call fail, or all from one
on: writes, syncs, opens, reads, mappings, and changes of names. A write can also be short. A sync can fail and lie: the
kernel then gives up what the file had not yet on the disk, later syncs succeed, and in the end the power is lost.
"""

from __future__ import annotations

import errno
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from tidelog.aof.identity import CHECKPOINT
from tidelog.crash.forked import Died, Forked
from tidelog.crash.injected import HUNG_S, emptied
from tidelog.crash.injector import LIES, ONCE, ONWARDS, SHORT, Trouble
from tidelog.crash.preload.faults import (
    NAMING,
    READING,
    SYNCS,
    WRITES,
    WRITING,
    Call,
    Loaded,
    Mode,
    calls_in,
    settings,
)
from tidelog.crash.preload.library import FAULTS, build
from tidelog.crash.served import STORE, be_quiet
from tidelog.crash.suffered import Scene, Seen, Suffered, Sufferer
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk

CALLS: Final = "calls"
BY: Final = "library"
REPORT: Final = "report"  # in the scratch directory
LMDB: Final = f"{STORE}/{CHECKPOINT}"
DIRECTORIES: Final = (STORE, LMDB)  # below which calls can fail
EVERY: Final = (*WRITING, *NAMING, *READING)
NEW_SPACE: Final = (*WRITES, "fallocate", "create", "rename", "mkdir")
# For each error the calls that can fail with it.
RAISED: Final[dict[int, tuple[str, ...]]] = {
    errno.EIO: tuple(call for call in EVERY if call != "mmap"),
    errno.ENOSPC: NEW_SPACE,
    errno.EDQUOT: NEW_SPACE,
    errno.EMFILE: ("open", "create"),
    errno.ENOMEM: ("mmap",),
}
MODES: Final = {ONCE: Mode.ERROR, ONWARDS: Mode.ONWARDS, SHORT: Mode.SHORT, LIES: Mode.LIES}


class Calling:
    """The layer CALLS, by the preloaded library.

    below     one of DIRECTORIES
    scratch   an existing empty directory, in which programs may lie

    Raises NoCompiler, BenchError.
    """

    layer = CALLS
    by = BY

    def __init__(self, scene: Scene, below: str, scratch: Path) -> None:
        self.scene = scene
        self.nothing = Trouble(True, ONCE, 0, below=below)
        self._library = build(scratch, FAULTS)
        self._forked: Forked[Trouble, Suffered] = Forked(
            partial(suffer, scene, scratch), HUNG_S, self._library
        )

    def ask(self, trouble: Trouble) -> Suffered | Died:
        return self._forked.ask(trouble)

    def troubles(self, plain: Suffered) -> list[Trouble]:
        return troubles_of(self.nothing, plain.seen)

    def close(self) -> None:
        self._forked.close()
        RealDisk().unlink(self._library)


def troubles_of(nothing: Trouble, seen: Seen) -> list[Trouble]:
    """All troubles that a run without any says there are."""
    hows = [*product((ONCE, ONWARDS), RAISED), (SHORT, 0), (LIES, 0)]
    return [
        nothing._replace(how=how, at=at, code=code)
        for how, code in hows
        for at in range(1, seen[code or how] + 1)
    ]


def that_count(trouble: Trouble) -> tuple[str, ...]:
    """The calls among which a trouble has its number."""
    if not trouble.at:
        return EVERY
    return {SHORT: WRITES, LIES: SYNCS}.get(trouble.how) or RAISED[trouble.code]


def seen_in(calls: list[Call]) -> Seen:
    """How many of the calls of a run can have each trouble."""
    names = [call.operation for call in calls]
    seen: Seen = {code: sum(map(names.count, raised)) for code, raised in RAISED.items()}
    seen[SHORT] = sum(map(names.count, WRITES))
    seen[LIES] = sum(map(names.count, SYNCS))
    return seen


def suffer(scene: Scene, scratch: Path, trouble: Trouble) -> Suffered:
    """Run a workload with one call that fails, and judge what is left. In a process that has the library."""
    be_quiet()
    disk = RealDisk()
    disk.background = False  # so that the order of the calls is always the same
    report = scratch / REPORT
    disk.create(report).close()
    root = emptied(scratch)

    def calls() -> list[Call]:
        return calls_in(recipe.read(disk, report))

    def struck() -> str:
        made = calls()
        if not 0 < trouble.at <= len(made):
            return ""
        call = made[trouble.at - 1]
        return f"{call.operation} of {call.path.removeprefix(str(root))}"

    loaded = Loaded()
    run = Sufferer(scene, struck)
    lies = trouble.how == LIES
    try:
        loaded.begin(
            settings(
                None,
                report,
                trouble.at,
                MODES[trouble.how],
                seed=trouble.at,
                error=trouble.code or errno.EIO,
                paths=[f"{root / trouble.below}/"],
                calls=that_count(trouble),
            )
        )
        try:
            run.live(disk, root)
            lies = lies and bool(struck())
            if lies:
                loaded.lose_power()
        finally:
            loaded.end()
        run.judge(RealDisk(), root, power=lies)
        return run.result(seen_in(calls()) if not trouble.at else {})
    finally:
        loaded.end()
        recipe.remove_tree(disk, root)
        disk.unlink(report)
