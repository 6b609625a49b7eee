"""Program: runs any program with the preloaded recorder, and makes a trace of what it did and promised.

The program promises with its standard output: each line that it wrote and flushed is a promise. The recorder looks at
the output before each change that the program makes, so a promise is never noted before it was made, and no change
that came after a promise is noted before it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.crash.errors import BenchError
from tidelog.crash.preload.library import FAILED, PRELOAD, last_lines
from tidelog.crash.preload.limited import Hangs, run
from tidelog.crash.preload.notes import Recorded, notes_in
from tidelog.crash.trace import Operation, Promised, Trace, Unit, tree_of
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk

LOG: Final = "notes"
TOLD: Final = "told"
SAID: Final = "said"
PROGRAM_S: Final = 120.0


class Life(NamedTuple):
    """A recorded program.

    trace    its promises count the lines of its output
    told     these lines
    mapped   files that it wrote through a mapping
    unseen   what it did that the trace does not hold
    """

    trace: Trace
    told: list[bytes]
    mapped: list[str]
    unseen: list[str]


def record(
    argv: Sequence[str],
    root: Path,
    scratch: Path,
    library: Path,
    about: dict[str, Any],
    units: list[Unit] | None = None,
    seconds: float = PROGRAM_S,
) -> Life:
    """Run a program on the existing directory `root`, to its end. All that is in `root` counts as durable.

    scratch   an existing directory for the log; on another path than `root`
    units     those that the program will do; without them, each line of its output is one

    Raises BenchError if the program fails, hangs, or promises nothing.
    """
    disk = RealDisk()
    base = tree_of(disk, root)
    for name in (LOG, TOLD):
        disk.create(scratch / name).close()
    env = {
        **os.environ,
        PRELOAD: str(library),
        "RECORD_ROOT": os.path.realpath(root),
        "RECORD_LOG": str(scratch / LOG),
        "RECORD_TOLD": str(scratch / TOLD),
    }
    words = " ".join(argv)
    file = disk.open(scratch / TOLD, write=True)
    try:
        done = run(argv, seconds, scratch / SAID, env, file.fileno())
    except Hangs as error:
        where = f"; it stood at {error}" if str(error) else ""
        raise BenchError(f"{words} did not end within {seconds:g} s{where}") from error
    except OSError as error:
        raise BenchError(f"{words} cannot be run: {error}") from error
    finally:
        file.close()
    if done.code != 0:
        whose = "its recorder failed" if done.code == FAILED else "it failed"
        raise BenchError(f"{words}: {whose} with exit code {done.code}: {last_lines(done.said)}")
    output = recipe.read(disk, scratch / TOLD)
    log = recipe.read(disk, scratch / LOG)
    lines = output.split(b"\n")[:-1]
    if not lines:
        raise BenchError(f"{words} promised nothing: it printed no line")
    most = len(lines) if units is None else len(units)
    recorded, operations, told = Recorded(base), list[Operation](), 0
    for note in notes_in(log):
        if not operations:
            operations.append(Promised(0, 0, min(1, most)))
        if note.kind == "told":
            lines_then = output[: note.at].count(b"\n")
            if note.number:
                told = lines_then
            operations.append(Promised(told, told, min(lines_then + 1, most)))
            continue
        recorded.add(note)
        operations += recorded.operations
        recorded.operations.clear()
    if all(isinstance(each, Promised) for each in operations):
        raise BenchError(f"{words} changed nothing that could be seen below {{dir}}")
    operations.append(Promised(len(lines), len(lines), most))
    trace = Trace(about, base, units or [], operations)
    return Life(trace, lines, sorted(recorded.mapped), sorted(recorded.unseen))
