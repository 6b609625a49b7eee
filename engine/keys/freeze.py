"""Freeze: take the changes of a state since the last freeze at one moment, and turn them into rows afterwards.

    freeze       [lock]  takes the sets of changed streams and keys, and copies nothing
    take_some    [lock]  copies some of them; one that is about to change before its turn is copied at that moment
    rows                 packs the copies made so far; needs no lock
    settle       [lock]  the rows are committed
    thaw         [lock]  the rows were not written: everything counts as changed again

A state over a checkpoint begins empty (`load_state`); keys, streams and groups are loaded when a command first names
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, cast

from tidelog.engine.cold import ColdStore
from tidelog.engine.keys.frozen_keys import FrozenKeys
from tidelog.engine.keys.state import State
from tidelog.engine.rowkeys import Operation, stream_prefixes
from tidelog.engine.streams.frozen_stream import (
    ROW_BYTES,
    FrozenStream,
    Plain,
    Undo,
    copy_plain,
    pack_plain,
    take_back,
)
from tidelog.engine.streams.pages import forget_pages
from tidelog.engine.streams.stream import Stream
from tidelog.engine.untracked import untracked


class Frozen:
    """The changes of one generation, in a checkpoint in flight.

    A stream that is about to change is copied before its turn, and thousands of copies may wait to be packed. So a
    small one is packed at once, and until the checkpoint is settled only numbers and bytes are kept of it: the garbage
    collector does not visit these, and its full passes would delay every command.
    """

    __slots__ = (
        "generation",
        "_streams",
        "_order",
        "_left",
        "_taken",
        "_undo",
        "_plain",
        "_to_pack",
        "_ended",
        "_to_end",
        "_keys",
        "_committed",
    )

    def __init__(self, state: State) -> None:
        changes = state.changes
        self.generation = changes.generation
        self._committed = changes.committed
        # By number; None for a stream that is copied. Never insert a key into this dict: it is hidden from the garbage
        # collector, and an insert would end that.
        self._streams = cast(dict[int, Stream | None], untracked(changes.streams))
        # Take the streams in the order in which they changed. For new streams it is that of their rows, and LMDB fills
        # pages from rows in order; of rows in reverse order it leaves half to three quarters of each page empty.
        self._order = iter(self._streams.items())
        self._left = len(self._streams)
        self._taken: list[Stream] = []
        self._undo: dict[int, Undo] = {}  # by number
        self._plain: deque[bytes | Plain] = deque()  # bytes: packed, since copied early
        self._to_pack: deque[FrozenStream] = deque()
        self._ended = self._to_end = changes.ended
        self._keys = FrozenKeys(state)

    def take(self, stream: Stream) -> None:
        """[lock] Copy a stream that is about to change, if this checkpoint has to write it and has no copy yet."""
        if self._streams.get(stream.number) is not None:
            self._copy(stream, waits=True)

    def _copy(self, stream: Stream, *, waits: bool) -> None:
        self._streams[stream.number] = None
        self._left -= 1
        self._taken.append(stream)
        plain = copy_plain(stream, self.generation, self._committed)
        if plain is not None:
            self._plain.append(pack_plain(plain) if waits else plain)
            return
        frozen = FrozenStream(stream, self.generation, self._committed)
        if frozen.undo is not None:
            self._undo[stream.number] = frozen.undo
        self._to_pack.append(frozen)

    def take_some(self, limit: int) -> int:
        """[lock] Copy up to `limit` streams and keys. Return how many are left.

        A stream costs O(tail + new nodes + chunks of pending entries).
        """
        while self._left and limit > 0:
            _, stream = next(self._order)
            if stream is not None:
                self._copy(stream, waits=False)
            limit -= 1
        return self._left + self._keys.take_some(limit)

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        """The operations on rows for everything copied since the last call, to be applied in this order.

        read: the checkpoint being updated. May raise CorruptBlock.
        """
        to_end, self._to_end = self._to_end, []
        for number in to_end:
            for prefix in stream_prefixes(number):
                yield "delete_prefix", prefix
        while self._plain:
            plain = self._plain.popleft()
            row = plain if isinstance(plain, bytes) else pack_plain(plain)
            yield "put", row[:ROW_BYTES], row[ROW_BYTES:]
        while self._to_pack:
            yield from self._to_pack.popleft().rows(read)
        yield from self._keys.rows(read)

    def settle(self, state: State) -> None:
        """See `settle`."""
        state.changes.committed = self.generation
        self._keys.settle()

    def thaw(self, state: State) -> None:
        """See `thaw`."""
        changes = state.changes
        ended = set(changes.ended)
        changes.ended = self._ended + changes.ended
        changed = {number: stream for number, stream in self._streams.items() if stream is not None}
        for stream in self._taken:
            if stream.number not in ended:
                take_back(stream, changes.committed, self._undo.get(stream.number))
                changed[stream.number] = stream
        for number, stream in changed.items():
            if number not in ended:
                stream.mark = changes.generation
                changes.streams[number] = stream
        self._keys.thaw(state)


def freeze(state: State) -> Frozen:
    """[lock] Take what changed since the last freeze. O(databases). No other checkpoint may be in flight."""
    changes = state.changes
    assert changes.frozen is None, "a checkpoint is in flight"
    frozen = changes.frozen = Frozen(state)
    changes.streams = {}
    changes.ended = []
    changes.generation += 1
    return frozen


def settle(state: State, frozen: Frozen) -> None:
    """[lock] End a checkpoint whose rows are committed and visible in `state.cold`. O(databases)."""
    state.changes.frozen = None
    frozen.settle(state)
    forget_pages()


def thaw(state: State, frozen: Frozen) -> None:
    """[lock] End a checkpoint whose rows were not written: everything it took counts as changed again."""
    state.changes.frozen = None
    frozen.thaw(state)


def load_state(cold: ColdStore, meta: dict[str, Any]) -> State:
    """The state that a checkpoint holds, with nothing in memory. `meta`: the result of `tables_meta` at its freeze."""
    return State.over(cold, meta)


def release(state: State, stream: Stream, stop: int | None = None) -> int:
    """[lock] Evict the sealed nodes of a stream that the checkpoint has; only those below ordinal `stop` if given.

    Returns the number of evicted nodes.
    """
    if state.cold is None:
        return 0
    stream.settle(state.changes.committed)
    return stream.release(state.cold, stream.stored_stop if stop is None else stop)
