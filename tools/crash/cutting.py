"""Cutting: cut the power of file systems of this machine, by turns, until it is enough.

The layers are those of the table: a file system of each kind that is shut down (tools/crash/shutdowns.py), and the disk
below one (tools/crash/blocks.py). A layer that cannot run is noted with the reason, and never as passed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Final

from tidelog.crash.explore import Report
from tidelog.disk.real import RealDisk
from tidelog.tools.crash.blocks import RECORDED, cut_blocks
from tidelog.tools.crash.shutdowns import KINDS, CannotMount, cut_power, file_system

REAL: Final = (*KINDS, *RECORDED)  # the layers
CUTS: Final = 10  # of a workload

Cut = Callable[[str, str], Report]


def cut_machine(
    layers: Sequence[str],
    policies: Sequence[str],
    seed: str,
    place: Path,
    report: Report,
    enough: Callable[[], bool],
) -> None:
    """Cut by turns of policy and layer, at least once each, until `enough()` or a finding. Fills `report`.

    layers   of REAL
    place    an existing directory, which is left as it was

    Raises KeyboardInterrupt when everything is unmounted.
    """
    with noted_interrupts() as stop, ExitStack() as mounts:
        cuts: dict[str, Cut] = {}
        for layer in layers:
            room = place / layer
            RealDisk().mkdir(room)
            mounts.callback(RealDisk().rmdir, room)
            with Timed(report, layer):
                cuts[layer] = _cut(layer, room, mounts, stop.is_set)
        for number in count():
            for layer in [each for each in cuts if each not in report.not_run]:
                cut = cuts[layer]
                if stop.is_set():
                    return
                with Timed(report, layer):
                    report.add(cut(policies[number % len(policies)], f"{seed}/{number}"))
            if set(cuts) <= set(report.not_run) or report.findings or enough():
                return


@contextmanager
def noted_interrupts() -> Iterator[Event]:
    """Meanwhile the first Ctrl-C sets the event, and interrupts at the end. A second one interrupts at once.

    An interrupt between a mount and the code that undoes it would leave the mount; in a fork, Python drops it.
    """
    stop = Event()
    if current_thread() is not main_thread():
        yield stop  # which gets no signal
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
    if stop.is_set():
        raise KeyboardInterrupt


class Timed:
    """Adds the time of a body to a layer of a report. If that cannot be mounted, it ends, and the reason is noted."""

    def __init__(self, report: Report, layer: str) -> None:
        self._report, self._layer = report, layer

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._report.of(self._layer).seconds += time.monotonic() - self._started
        if not isinstance(error, CannotMount):
            return False
        self._report.not_run[self._layer] = str(error)
        return True


def _cut(layer: str, room: Path, mounts: ExitStack, stopping: Callable[[], bool]) -> Cut:
    """How to cut the power of a layer: (policy, seed) -> report. Raises CannotMount."""
    if layer in RECORDED:
        return lambda policy, seed: cut_blocks(layer, policy, seed, room, CUTS, stopping)
    made = mounts.enter_context(file_system(room, layer))
    return lambda policy, seed: cut_power(made, policy, seed, CUTS, stopping)
