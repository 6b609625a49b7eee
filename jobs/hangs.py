"""Hangs: the handlers that hang, as the runs of workers say of themselves.

It is about the present, so it is kept in memory, in the process that has the store open. A run tells it again and
again; one that is silent for FORGET_S is gone, and its workers with it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

BEAT_S: Final = 10.0  # between two words of a run that has something to tell
FORGET_S: Final = 3 * BEAT_S
RUNS_MAX: Final = 1_000  # of one group, the newest
Group = tuple[int, bytes, bytes]  # database, key of the queue, group


class Counts(NamedTuple):
    """The handlers that work on beyond their limit of time, now; and the processes that were killed for that, or
    since their job was cancelled.
    """

    hanging: int
    killed: int

    def plus(self, other: Counts) -> Counts:
        """The sums."""
        return Counts(self.hanging + other.hanging, self.killed + other.killed)


NONE: Final = Counts(0, 0)


class Hangs:
    """The counts that the runs of all queues of a store have told. Under the store's lock."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        # By run: the name of its workers, the counts, and until when they hold, monotonic seconds.
        self._told: dict[Group, dict[bytes, tuple[bytes, Counts, float]]] = {}

    def tell(self, group: Group, run: bytes, worker: bytes, counts: Counts, mono: float) -> None:
        """A run has told how it is. With nothing to tell, it is forgotten."""
        runs = self._alive(group, mono)
        runs.pop(run, None)
        if counts != NONE:
            runs[run] = worker, counts, mono + FORGET_S
            if len(runs) > RUNS_MAX:
                del runs[next(iter(runs))]
        if runs:
            self._told[group] = runs
        else:
            self._told.pop(group, None)

    def of(self, group: Group, mono: float) -> dict[bytes, Counts]:
        """The counts of the workers of a group, by their names."""
        found: dict[bytes, Counts] = {}
        if self._told:
            for worker, counts, _ in self._alive(group, mono).values():
                found[worker] = counts.plus(found.get(worker, NONE))
        return found

    def sum(self, group: Group, mono: float) -> Counts:
        """The sums of a group."""
        found = NONE
        for counts in self.of(group, mono).values():
            found = found.plus(counts)
        return found

    def _alive(self, group: Group, mono: float) -> dict[bytes, tuple[bytes, Counts, float]]:
        runs = self._told.get(group, {})
        return {run: told for run, told in runs.items() if told[2] > mono}
