"""Traced: system calls fail by strace, where no compiler is for the library of crash/calls.py.

strace makes the n-th call of a kind fail, counted for each thread, and only on the files of the store. It cannot
make a write short, nor lose power behind a sync that lied. A run is a new interpreter under strace, which takes a
second or two: it writes what it lived through into a file, and a forked process, in which nothing fails, judges what is
left.
"""

from __future__ import annotations

import errno
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.crash.calls import CALLS, EVERY, RAISED
from tidelog.crash.errors import BenchError
from tidelog.crash.forked import Died, Forked
from tidelog.crash.injected import HUNG_S, PLACE, emptied
from tidelog.crash.injector import ONCE, ONWARDS, Trouble
from tidelog.crash.oracle import Fault, Kind
from tidelog.crash.preload.library import last_lines
from tidelog.crash.preload.limited import Hangs, run
from tidelog.crash.served import be_quiet
from tidelog.crash.suffered import Lived, Scene, Seen, Suffered, Sufferer
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk

BY: Final = "strace"
LESS: Final = "calls fail by strace, since no compiler is here: no write is short, and no sync lies"
# Files in the scratch directory.
SCENE: Final = "scene"
LIVED: Final = "lived"
LOG: Final = "calls"
SAID: Final = "said"
# A call -> the system calls by which it can be made. Those that a machine does not have are left out.
MADE_BY: Final[dict[str, tuple[str, ...]]] = {
    "pwrite": ("pwrite64",),
    "pwritev": ("pwritev", "pwritev2"),
    "create": ("open", "openat"),
    "open": ("open", "openat"),
    "pread": ("pread64",),
    "rename": ("rename", "renameat", "renameat2"),
    "unlink": ("unlink", "unlinkat"),
    "mkdir": ("mkdir", "mkdirat"),
}
LINE: Final = re.compile(r"^(\d+) +(\w+)\(")
INJECTED: Final = "(INJECTED)"


class NoTracer(BenchError):
    """strace is not here, or may trace nothing."""


class Plan(NamedTuple):
    """The calls of a run without any trouble.

    names   paths of the files that it touched, and their names
    made    system call -> how many of them one thread made
    """

    names: tuple[str, ...]
    made: dict[str, int]


class Tracing:
    """The layer CALLS, by strace.

    below     one of calls.DIRECTORIES
    scratch   an existing empty directory

    Raises NoTracer.
    """

    layer = CALLS
    by = BY

    def __init__(self, scene: Scene, below: str, scratch: Path) -> None:
        try:
            subprocess.run([BY, "-V"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoTracer(f"{BY} is not installed") from error
        self.scene = scene
        self.nothing = Trouble(True, ONCE, 0, below=below)
        self._plan = Plan((), {})
        self._forked: Forked[tuple[Plan, Trouble], tuple[Plan, Suffered]] = Forked(
            lambda asked: suffer(scene, scratch, *asked), 4 * HUNG_S
        )

    def ask(self, trouble: Trouble) -> Suffered | Died:
        if not self._plan.made:
            found = self._ask(self.nothing)
            if isinstance(found, Died) or not trouble.at:
                return found
        return self._ask(trouble)

    def _ask(self, trouble: Trouble) -> Suffered | Died:
        found = self._forked.ask((self._plan, trouble))
        if isinstance(found, Died):
            return found
        self._plan, suffered = found
        return suffered

    def troubles(self, plain: Suffered) -> list[Trouble]:
        return [
            self.nothing._replace(how=how, at=at, code=code)
            for code in RAISED
            for how in (ONCE, ONWARDS)
            for at in range(1, plain.seen[code] + 1)
        ]

    def close(self) -> None:
        self._forked.close()


def made_by(calls: tuple[str, ...]) -> list[str]:
    """The system calls by which some calls are made, each once."""
    return [*dict.fromkeys(name for call in calls for name in MADE_BY.get(call, (call,)))]


def can_raise(code: int) -> list[str]:
    """The system calls that can fail with an error. strace does not tell an open that makes a file from another one."""
    calls = RAISED[code]
    return made_by(tuple(call for call in calls if call != "create" or code == errno.EMFILE))


def seen_in(plan: Plan) -> Seen:
    """How many calls of a run can have each error."""
    return {code: sum(plan.made.get(name, 0) for name in can_raise(code)) for code in RAISED}


def chosen(plan: Plan, trouble: Trouble) -> tuple[str, int]:
    """(the system call that fails, the number of it): the calls are counted one kind after the other."""
    at = trouble.at
    for name in can_raise(trouble.code):
        if at <= plan.made.get(name, 0):
            return name, at
        at -= plan.made.get(name, 0)
    raise BenchError(f"a run of this workload makes fewer calls than {trouble.words()} needs")


def suffer(scene: Scene, scratch: Path, plan: Plan, trouble: Trouble) -> tuple[Plan, Suffered]:
    """Run a workload with one call that fails, and judge what is left. Also the plan, if there was none yet."""
    be_quiet()
    disk = RealDisk()
    _write(disk, scratch / SCENE, pickle.dumps(scene))
    try:
        root = emptied(scratch)
        if not plan.made:
            below = f"{root / trouble.below}/"
            _traced(disk, scratch, [])
            names = _names(_log(disk, scratch), below)
            emptied(scratch)
            lived = _traced(disk, scratch, _only(names))
            log = _log(disk, scratch)
            plan = Plan(names, _made(log))
        else:
            name, at = chosen(plan, trouble)
            since = "+" if trouble.how == ONWARDS else ""
            fault = f"inject={name}:error={errno.errorcode[trouble.code]}:when={at}{since}"
            lived = _traced(disk, scratch, [*_only(plan.names), "-e", fault])
            log = _log(disk, scratch)
        struck = _struck(log)
        if isinstance(lived, Fault):
            return plan, Suffered(lived, struck, 1, {}, [], Sufferer(scene, str).promised)
        run = Sufferer(scene, lambda: struck, lived=lived)
        run.judge(disk, root, power=False)
        return plan, run.result({} if trouble.at else seen_in(plan))
    finally:
        for name in (SCENE, LIVED, LOG):
            if disk.exists(scratch / name):
                disk.unlink(scratch / name)
        if disk.exists(scratch / PLACE):
            recipe.remove_tree(disk, scratch / PLACE)


def _traced(disk: Disk, scratch: Path, more: list[str]) -> Lived | Fault:
    """Run both lives under strace. Raises NoTracer."""
    every = ",".join(f"?{name}" for name in made_by(EVERY))
    words = [
        BY,
        "-f",
        "-qq",
        "-y",
        "-e",
        "signal=none",
        "-e",
        f"trace={every}",
        "-o",
        str(scratch / LOG),
        *more,
    ]
    try:
        done = run([*words, sys.executable, "-m", __name__, str(scratch)], HUNG_S, scratch / SAID)
    except Hangs as error:
        return Fault(Kind.DIED, f"the process hung for {HUNG_S:.0f} s; it stood at {error}")
    if not disk.exists(scratch / LIVED):
        if "ptrace" in done.said:
            raise NoTracer(f"{BY} may trace no process here: {last_lines(done.said)}")
        return Fault(
            Kind.DIED, f"the process ended with exit code {done.code}: {last_lines(done.said)}"
        )
    lived: Lived = pickle.loads(recipe.read(disk, scratch / LIVED))
    disk.unlink(scratch / LIVED)
    return lived


def _only(names: tuple[str, ...]) -> list[str]:
    """The options by which only calls on these files count."""
    return [word for name in names for word in ("-P", name)]


def _log(disk: Disk, scratch: Path) -> list[str]:
    text = recipe.read(disk, scratch / LOG).decode(errors="replace")
    disk.unlink(scratch / LOG)
    return text.splitlines()


def _names(log: list[str], below: str) -> tuple[str, ...]:
    """The files below a directory in a log. A call that names a file relative to a directory has its last part only."""
    pattern = re.compile(re.escape(below) + r'[^"<>]*')
    paths = {path.removesuffix(" (deleted)") for line in log for path in pattern.findall(line)}
    return (*sorted(paths), *sorted({os.path.basename(path) for path in paths} - {""}))


def _made(log: list[str]) -> dict[str, int]:
    """How many of each system call one thread made, the one that made most."""
    found = Counter((match[1], match[2]) for match in map(LINE.match, log) if match)
    most: dict[str, int] = {}
    for (_, name), count in found.items():
        most[name] = max(count, most.get(name, 0))
    return most


def _struck(log: list[str]) -> str:
    for line in log:
        if INJECTED in line:
            return line.partition(" ")[2].strip()
    return ""


def _write(disk: Disk, path: Path, data: bytes) -> None:
    file = disk.create(path)
    try:
        file.write(0, data)
    finally:
        file.close()


def main(scratch: Path) -> None:
    """In the traced process: run both lives."""
    be_quiet()
    disk = RealDisk()
    disk.background = False  # so that the order of the calls is always the same
    scene: Any = pickle.loads(recipe.read(disk, scratch / SCENE))
    # Any call may have failed, so a close promises nothing.
    sufferer = Sufferer(scene, lambda: "not known")
    sufferer.live(disk, scratch / PLACE)
    _write(RealDisk(), scratch / LIVED, pickle.dumps(sufferer.lived))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
