"""Child processes that read a store's files, so that damage, or the work itself, does not disturb this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tidelog.snapshot.errors import CheckpointError


def start_child(
    words: Sequence[str], path: Path, *, buffered: bool = True
) -> subprocess.Popen[bytes]:
    """Start a Python process that reads `path`. `words`: `-m`, a module of tidelog, and its arguments.

    Raises CheckpointError.
    """
    package = Path(sys.modules["tidelog"].__path__[0])
    paths = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        return subprocess.Popen(
            [sys.executable, *words],
            bufsize=-1 if buffered else 0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONOPTIMIZE": ""},
        )
    except BlockingIOError as error:
        raise CheckpointError(
            f"cannot start the process that reads {path} ({error}). Raise the limit on threads and processes (ulimit "
            "-u), or end some of them"
        ) from error
