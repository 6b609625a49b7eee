"""Library: the sources in C of this folder, compiled so that they can be preloaded into a process.

record.c   notes each change of a program's files
faults.c   makes a call fail, kills the process at it, or cuts the power
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tidelog.crash.errors import BenchError

RECORD: Final = "record"
FAULTS: Final = "faults"
COMPILERS: Final = ("cc", "gcc", "clang")
PRELOAD: Final = "LD_PRELOAD"  # the variable that names libraries to the dynamic linker
FAILED: Final = 96  # the exit code of a process whose library failed
ERROR_LINES: Final = 5


class NoCompiler(BenchError):
    """No C compiler is here, so nothing can be preloaded."""


class NotLoaded(BenchError):
    """A library was compiled, and the system did not preload it."""


def build(directory: Path, name: str) -> Path:
    """Compile RECORD or FAULTS into a directory, and return the library. Raises NoCompiler, BenchError."""
    source = Path(__file__).with_name(f"{name}.c")
    library = directory / f"{name}.so"
    for compiler in COMPILERS:
        # fmt: off
        words = [compiler, "-O1", "-w", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl", "-lpthread"]
        # fmt: on
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.returncode != 0:
            raise BenchError(
                f"{compiler} does not compile {source.name}: {last_lines(done.stderr)}"
            )
        return library
    raise NoCompiler(f"none of the compilers {', '.join(COMPILERS)} is here; install one")


def last_lines(text: str) -> str:
    """The end of what a program printed, in one line."""
    lines = text.strip().splitlines()[-ERROR_LINES:]
    return " / ".join(line.strip() for line in lines) or "it printed nothing"
