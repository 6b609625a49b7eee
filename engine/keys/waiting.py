"""Waiting: which calls are parked on which keys, and in what order they are decided again (spec 10).

This module uses no clock and no threads. The store calls it under its lock:

    park        a blocking read found nothing: append it to the queue of each of its keys
    signal      a write may have made a key ready (engine.effects.observe tells which); each key is remembered once
    visits      after the unit: yields every waiter to decide again, already removed from its queues. The store
                answers it or parks it again before it takes the next one
    remove      timeout or cancellation
    claims_due  a blocked CLAIM may find an idle entry by now

Order: keys are handled in the order in which they were first signalled. Of a key, only the waiters present at the
start are visited, oldest first, so a waiter that parks again is not visited twice in a pass. Keys signalled meanwhile
are handled in the next round. A waiter that parks again goes to the tail and keeps its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import State
from tidelog.engine.reply import Park, Reader

DbKey = tuple[int, bytes]  # database, key

_NOBODY: dict[Waiter, None] = {}


class Waiter:
    """One blocked call. Hashable by identity. May be parked again after a visit, any number of times.

    keys       (database, key) pairs, without duplicates
    args       the command to decide again
    timeout_ms the command's timeout in milliseconds; 0 = for ever
    db         the database to decide it in
    group      True for XREADGROUP (and `work`), which must also be decided again when its key is deleted
    reader     set if the call waits only for new entries of its one key, see `Park`; else None
    claim_at   unix ms from which a pending entry can be claimed, or None

    Only the store uses these, except that `group` depends on `work`:

    ask_at     when to decide again without a signal, on the store's own clock, or None
    deadline   when the timeout ends, on the store's own clock, or None
    owner      the receiver of the reply
    work       decides instead of `args`, or None
    """

    __slots__ = (
        *("keys", "args", "timeout_ms", "db", "group", "claim_at", "ask_at", "reader"),
        *("deadline", "owner", "work"),
    )

    def __init__(
        self,
        park: Park,
        db: int,
        owner: Any = None,
        work: Any = None,
    ) -> None:
        self.db = db
        self.deadline: float | None = None
        self.owner = owner
        self.work = work
        self.again(park)

    def again(self, park: Park) -> None:
        """Take over the result of a new decision. The caller then parks the waiter again."""
        self.keys: list[DbKey] = park.keys
        self.args: list[bytes] = park.args
        self.timeout_ms = park.timeout_ms
        self.group: bool = (
            park.reader is not None
            or self.work is not None
            or park.args[0].lower() == b"xreadgroup"
        )
        self.claim_at: int | None = park.claim_at
        self.ask_at: float | None = park.ask_at
        self.reader: Reader | None = park.reader


class Waiting:
    """The registry of all waiters of one store. Not thread-safe: the store's lock guards it.

    keys        a live view of the keys that have waiters
    signalled   the keys that `visits` has to handle
    groups      key -> group, for keys on which all waiters are consumers of this one group and have a `reader`

    These are plain attributes, since every write checks them.
    """

    __slots__ = ("keys", "signalled", "_queues", "groups", "_claims")

    def __init__(self) -> None:
        # Each dict serves as a queue: it keeps the order of arrival, and removes from the middle in O(1).
        self._queues: dict[DbKey, dict[Waiter, None]] = {}
        self.keys: Collection[DbKey] = self._queues.keys()
        self.signalled: dict[DbKey, None] = {}
        self.groups: dict[DbKey, bytes] = {}
        # Maps a key to the earliest claim_at of its waiters. The waiter with this claim_at may have left; then deciding
        # the other waiters at that time is useless but harmless.
        self._claims: dict[DbKey, int] = {}

    def waiters(self) -> list[Waiter]:
        """All parked waiters, without duplicates."""
        return list({waiter: None for queue in self._queues.values() for waiter in queue})

    def at(self, place: DbKey) -> Collection[Waiter]:
        """The waiters on a key, oldest first."""
        return self._queues.get(place, _NOBODY)

    def park(self, waiter: Waiter) -> None:
        """Append a waiter to the queue of each of its keys. If it is in a queue already, it keeps its place there."""
        reader = waiter.reader
        if reader is not None:
            place = waiter.keys[0]
            queue = self._queues.get(place)
            if queue and self.groups.get(place) == reader[0]:
                # the usual case: other consumers of the same group wait for this key already
                queue[waiter] = None
                return
        for place in waiter.keys:
            queue = self._queues.get(place)
            if queue is None:
                queue = self._queues[place] = {}
                self.groups.pop(place, None)  # an interrupt may have left a stale one
                if reader is not None:
                    self.groups[place] = reader[0]
            elif place in self.groups and (reader is None or reader[0] != self.groups[place]):
                del self.groups[place]
            queue[waiter] = None
            if waiter.claim_at is not None:
                self._claims[place] = min(waiter.claim_at, self._claims.get(place, waiter.claim_at))

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter from all its queues. Does nothing if it is in none."""
        for place in waiter.keys:
            queue = self._queues.get(place)
            if queue is not None and waiter in queue:
                del queue[waiter]
                if not queue:
                    self.groups.pop(place, None)
                    del self._queues[place]
                    self._claims.pop(place, None)

    def ask_always(self, waiter: Waiter) -> None:
        """Clear a waiter's `reader`: from now on it is always decided again, and never handed an entry directly."""
        if waiter.reader is not None:
            waiter.reader = None
            for place in waiter.keys:
                self.groups.pop(place, None)

    def signal(self, places: Iterable[DbKey]) -> None:
        """Remember keys that may have become ready. Keys without waiters are ignored."""
        for place in places:
            if place in self._queues:
                self.signalled[place] = None

    def visits(
        self, state: State, idle: Callable[[Sequence[Waiter], int, bool], int] | None = None
    ) -> Iterator[Waiter]:
        """Yield each waiter to decide again, removed from its queues, until no key is signalled any more.

        `state` is read when a key's turn comes. An XREAD whose key does not exist or has another type stays parked
        (spec 10.1); an XREADGROUP is yielded, so that it gets its error.

        idle(waiters of a key, index, whether all of them are readers of one group): called for a waiter with a
        `reader`, except the first of the key. Returns how many waiters from that index on need no decision; they go to
        the tail of the queue at once.
        """
        while self.signalled:
            round_, self.signalled = self.signalled, {}
            for place in round_:
                queue = self._queues.get(place)
                if queue is None:
                    continue
                waiters = list(queue)
                at, stop = 0, len(waiters)
                while at < stop:
                    waiter = waiters[at]
                    if at:
                        queue = self._queues.get(place, _NOBODY)
                        # The waiter may have left since the pass began: serving another waiter can cancel it.
                        if waiter not in queue:
                            at += 1
                            continue
                        if waiter.reader is not None and idle is not None:
                            run = idle(waiters, at, place in self.groups)
                            if run:
                                if len(queue) != run:  # not the whole queue: the order changes
                                    self._to_tail(place, waiters[at : at + run])
                                at += run
                                continue
                    at += 1
                    if waiter.group or holds_stream(state, place):
                        try:
                            self.remove(waiter)
                        except BaseException:  # an interrupt
                            self.park(waiter)
                            raise
                        yield waiter

    def _to_tail(self, place: DbKey, waiters: list[Waiter]) -> None:
        """Move waiters to the tail of a key's queue. They wait on this key only; those that have left are ignored."""
        queue = self._queues[place]
        here = [waiter for waiter in waiters if waiter in queue]
        try:
            for waiter in here:
                del queue[waiter]
                queue[waiter] = None
        except BaseException:  # an interrupt
            for waiter in here:
                queue[waiter] = None
            raise

    def next_claim_at(self) -> int | None:
        """Unix ms at which `claims_due` next finds a key, or None."""
        return min(self._claims.values(), default=None)

    def claims_due(self, now: int) -> None:
        """Signal the keys on which a pending entry has become claimable at `now`."""
        due = [place for place, claim_at in self._claims.items() if claim_at <= now]
        for place in due:
            del self._claims[place]
        self.signal(due)


def holds_stream(state: State, place: DbKey) -> bool:
    """Whether a key holds a stream. The other type is a string, which is `bytes`."""
    try:
        value = state.databases[place[0]].keys.get(place[1])
    except CorruptBlock:
        return True  # wake the waiter: its command is decided again and gets the error
    return value is not None and not isinstance(value, bytes)
