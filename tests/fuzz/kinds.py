"""The kinds of inputs, and how a number of them is tried.

An input is drawn from the seed and its number, so each can be tried again by itself with `python -m tests.fuzz`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.fuzz import aof, checkpoint, rdb, records, segments
from tests.fuzz.outcome import Outcome

One = Callable[[int, random.Random, Path], Outcome]
KINDS: Final[dict[str, One]] = {
    "segments": segments.one,
    "records": records.one,
    "checkpoint": checkpoint.one,
    "aof": aof.one,
    "rdb": rdb.one,
}
STATES: Final = 40  # random histories whose files are changed
MEMORY_BYTES: Final = 256 << 20  # that an input of a few thousand bytes may take


class Found(AssertionError):
    """An input that raised what it should not."""


def fuzz(
    kind: str, seed: int, numbers: Iterable[int], place: Path, states: int = STATES
) -> Counter[Outcome]:
    """Try the inputs with these numbers. Raises Found at the first that is not refused as it should be."""
    outcomes: Counter[Outcome] = Counter()
    one = KINDS[kind]
    with _silent():
        for number in numbers:
            r = random.Random(f"{seed}:{number}")
            try:
                outcomes[one(r.randrange(states), r, place)] += 1
            except Exception as error:
                again = (
                    f"python -m tests.fuzz {kind} --seed {seed} --states {states} --input {number}"
                )
                raise Found(f"{type(error).__name__}: {error}; to try it again: {again}") from error
    return outcomes


@contextmanager
def _silent() -> Iterator[None]:
    """Without the warnings about torn tails: there are thousands."""
    logger = logging.getLogger("tidelog")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def bounded(more: int = MEMORY_BYTES) -> Iterator[None]:
    """A length that lies must not take memory: let the process have `more` bytes than it has now."""
    try:
        import resource  # not on every system

        status = Path("/proc/self/status").read_text()
        used = int(status.partition("VmData:")[2].split()[0]) << 10
    except (ImportError, OSError, IndexError, ValueError):
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + more
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
