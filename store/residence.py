"""Residence: evict data from memory when it exceeds the budget, least recently used first.

Only data that a checkpoint holds may be evicted. A stream that changed since loses its sealed blocks and chunks of
pending entries; an unchanged one is evicted as a whole and read back when it is used. Sizes are estimates, taken now
and then in short slices, so that no command pays for them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from tidelog.engine.api import GROUP_BYTES, KEY_BYTES, PENDING_BYTES, Keyspace, Stream, release
from tidelog.store.commit.core import Core

SLICE_S: Final = 0.0005  # longest time to hold the lock or to keep the interpreter
PAUSE_S: Final = 0.0005
# blocks per stream that are measured; the size of the others is estimated from them
SAMPLE: Final = 8
BLOCK_BYTES: Final = 240  # of a block, besides its data
TAIL_ENTRY_BYTES: Final = 140  # bytes of an entry in the open tail, without its fields
FIELD_BYTES: Final = 40
STREAM_BYTES: Final = 1200


def stream_bytes(stream: Stream) -> int:
    """The approximate bytes of a stream in memory. O(groups), not O(entries)."""
    size = STREAM_BYTES
    blocks = len(stream.blocks) - stream.head
    if blocks > 0:
        step = max(1, blocks // SAMPLE)
        sample = [b for b in islice(stream.blocks, stream.head, None, step) if b is not None]
        if sample:
            mean = sum(len(block.data) for block in sample) // len(sample)
            size += blocks * (mean + BLOCK_BYTES)
    if stream.tail_rows:
        row = stream.tail_rows[-1]
        entry = TAIL_ENTRY_BYTES + sum(map(len, row)) + FIELD_BYTES * len(row)
        size += len(stream.tail_rows) * entry
    for group in stream.groups.values():
        if not group.lost:
            size += GROUP_BYTES + group.pending.resident() * PENDING_BYTES
    return size


def value_bytes(key: bytes, value: Stream | bytes) -> int:
    """The approximate bytes of a key and its value in memory."""
    size = len(value) if isinstance(value, bytes) else stream_bytes(value)
    return KEY_BYTES + len(key) + size


def give_back() -> None:
    """Make the C library return freed memory to the system; it tends to keep blocks of this size."""
    if _malloc_trim is not None:
        _malloc_trim(0)  # releases the interpreter lock


def _find_malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None  # not glibc
    return found


_malloc_trim = _find_malloc_trim()


class Residence:
    """The memory budget of one store, and the last survey.

    budget    bytes, None = no bound          bytes    estimate of what is resident, as of the last survey
    """

    def __init__(self, budget: int | None) -> None:
        self.budget = budget
        self.bytes = 0
        self.next_survey = 0.0

    def relieve(self, core: Core) -> None:
        """Evict until memory is within the budget, as far as a checkpoint holds the data. Do not call with the lock."""
        budget = self.budget  # read once: it may change
        if budget is None or time.monotonic() < self.next_survey:
            return
        started = time.thread_time()  # CPU time, because beside a busy thread a survey mostly waits
        found = self._survey(core)
        # Evict down to half the budget. If it were the whole budget, every survey would have to evict.
        surplus = self.bytes - budget // 2 if self.bytes > budget else 0
        if surplus > 0:
            for _, db, key, size in sorted(found):
                if surplus <= 0:
                    break
                surplus -= self._evict(core, db, key, size)
            self.bytes = budget // 2 + max(surplus, 0)
            give_back()
        # Surveys take at most a twentieth of the time.
        self.next_survey = time.monotonic() + 20 * (time.thread_time() - started)

    def _survey(self, core: Core) -> list[tuple[int, int, bytes, int]]:
        """(last access in unix ms, database, key, bytes) of every resident value."""
        found: list[tuple[int, int, bytes, int]] = []
        for db in range(len(core.state.databases)):
            if not dict.__len__(core.state.databases[db].keys):
                # Skip an empty database without taking the lock: beside a busy thread each lock takes about 10 ms, and
                # memory grows meanwhile.
                continue
            with core.lock:
                names = list(dict.keys(core.state.databases[db].keys))
            waiting = iter(names)
            more = True
            while more:
                with core.lock:
                    more = self._measure(core, db, waiting, found)
                time.sleep(PAUSE_S)
        self.bytes = sum(size for *_, size in found)
        return found

    def _measure(
        self, core: Core, db: int, names: Iterator[bytes], found: list[tuple[int, int, bytes, int]]
    ) -> bool:
        """[lock] One slice of a survey. Returns whether there is more."""
        keys: Keyspace = core.state.databases[db].keys
        accessed = keys.accessed
        until = time.perf_counter() + SLICE_S
        for name in names:
            value = dict.get(keys, name)
            if value is not None:
                found.append((accessed.get(name, 0), db, name, value_bytes(name, value)))
            if time.perf_counter() > until:
                return True
        return False

    def _evict(self, core: Core, db: int, key: bytes, size: int) -> int:
        """Evict one key's value, as much as a checkpoint holds. Returns the approximate bytes freed."""
        with core.lock:
            state = core.state
            changes = state.changes
            if changes.frozen is not None or core.trouble is not None:
                return 0  # do not evict during a checkpoint; the next survey does it
            keys = state.databases[db].keys
            value = dict.get(keys, key)
            if value is None:
                return 0
            if isinstance(value, bytes):
                return size if keys.evict(key) else 0
            if keys.evict(key):
                return size
            release(state, value)
            if state.cold is not None:
                for group in value.groups.values():
                    group.evict(state.cold, value.number)
            return max(0, size - value_bytes(key, value))
