"""Runs commands that move data from Redis and back, in a fresh process."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Sequence

from tidelog.engine.rdb import lzf
from tidelog.tools import cli


class Moved:
    """`run` as an object for `Fresh`."""

    def run(self, *arguments: str) -> float:
        """Seconds of one command line of tidelog. Raises RuntimeError if it fails."""
        return _passed(time.perf_counter, arguments)

    def worked(self, *arguments: str) -> float:
        """As `run`, in seconds of processor time."""
        return _passed(time.process_time, arguments)

    def without_lzf_in_c(self) -> None:
        """Let imports unpack LZF as they do where python-neo-lzf is not installed."""
        lzf._in_c = None

    def close(self) -> None: ...


def _passed(clock: Callable[[], float], arguments: Sequence[str]) -> float:
    began = clock()
    with contextlib.redirect_stdout(io.StringIO()):
        code = cli.run(arguments)
    if code:
        raise RuntimeError(f"tidelog {' '.join(arguments)} ended with {code}")
    return clock() - began
