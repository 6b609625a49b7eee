"""Program: runs any program with the preloaded recorder, and makes a trace of what it did and promised.

The program promises with its standard output: each line that it wrote and flushed is a promise. The recorder looks at
the output before each change that the program makes, so a promise is never noted before it was made, and no change
that came after a promise is noted before it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.crash.errors import BenchError
from tidelog.crash.preload.limited import Hangs, run
from tidelog.crash.preload.notes import Recorded, notes_in
from tidelog.crash.trace import Operation, Promised, Trace, Unit, tree_of
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk

SOURCE: Final = Path(__file__).with_name("record.c")
LIBRARY: Final = "record.so"
LOG: Final = "notes"
TOLD: Final = "told"
SAID: Final = "said"
COMPILERS: Final = ("cc", "gcc", "clang")
FAILED: Final = 96  # the exit code of a program whose recorder failed
PROGRAM_S: Final = 120.0
ERROR_LINES: Final = 5


class NoCompiler(BenchError):
    """No C compiler is here, so nothing can be preloaded."""


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


def build(directory: Path) -> Path:
    """Compile the recorder into a directory, and return the library. Raises NoCompiler, BenchError."""
    library = directory / LIBRARY
    for compiler in COMPILERS:
        # fmt: off
        words = [compiler, "-O1", "-w", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
        # fmt: on
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.returncode != 0:
            raise BenchError(f"{compiler} does not compile {SOURCE.name}: {_end(done.stderr)}")
        return library
    raise NoCompiler(f"none of the compilers {', '.join(COMPILERS)} is here; install one")


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
        "LD_PRELOAD": str(library),
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
        raise BenchError(f"{words}: {whose} with exit code {done.code}: {_end(done.said)}")
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


def _end(text: str) -> str:
    lines = text.strip().splitlines()[-ERROR_LINES:]
    return " / ".join(line.strip() for line in lines) or "it printed nothing"
