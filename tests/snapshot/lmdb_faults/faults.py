"""A real process that meets its end, or an error, at the n-th call with which it writes or syncs a file.

    calls = run_with_fault(argv).calls                      what it does without a fault
    for nth in range(1, len(calls) + 1):
        end = run_with_fault(argv, nth, Mode.POWER, seed=7)
        ...                                                 open what is left, compare with what end.out promised

Made for LMDB, whose writes go past our own disk layer; any file whose path ends in one of `paths` is watched, several
together too, so that a checkpoint and the log lose power at the same moment. Every call ends only when the files are as
the fault leaves them.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.oracle.server import tool

from tidelog.crash.preload.faults import LMDB_DATA, Call, Mode, calls_in, settings
from tidelog.crash.preload.library import FAULTS, build

SECONDS_MAX = 120.0


class Ended(NamedTuple):
    """How the process ended.

    killed    by the fault; if not, it came to its own end with `code`, and `nth` may have been too high
    calls     all that were counted, the one with the fault included
    """

    killed: bool
    code: int
    out: str
    err: str
    calls: list[Call]


def run_with_fault(
    argv: Sequence[str | Path],
    nth: int = 0,
    mode: Mode = Mode.BEFORE,
    *,
    seed: int = 0,
    error: int = 0,
    paths: Sequence[str] = LMDB_DATA,
    env: Mapping[str, str] | None = None,
    seconds_max: float = SECONDS_MAX,
) -> Ended:
    """Run a program with a fault at its n-th call (0: none), to its end.

    seed     of Mode.POWER       paths    ends of the paths that are watched
    error    errno of ERROR      env      the environment, without that the own one

    Raises OracleMissing if there is no compiler, subprocess.TimeoutExpired (the process is killed then), and
    AssertionError where the preloaded library itself failed.
    """
    with tempfile.NamedTemporaryFile(prefix="faults-") as report:
        told = settings(
            library(), Path(report.name), nth, mode, seed=seed, error=error, paths=paths
        )
        # The power is cut by a child of the process, which holds its pipes: they end when the files are done.
        done = subprocess.run(
            [str(word) for word in argv],
            env={**(os.environ if env is None else env), **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds_max,
        )
        calls = calls_in(report.read())
    assert "tidelog faults.c:" not in done.stderr, done.stderr
    killed = done.returncode == -signal.SIGKILL and 0 < nth == len(calls)
    return Ended(killed, done.returncode, done.stdout, done.stderr, calls)


@cache
def library() -> Path:
    """The compiled faults.c, built once per process."""
    tool("cc", "gcc libc6-dev")
    directory = Path(tempfile.mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return build(directory, FAULTS)
