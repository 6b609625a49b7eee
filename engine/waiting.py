"""Waiting: who is parked on which keys, and in what order they are asked again (spec 10).

Pure bookkeeping: no clock, no threads. The store drives it under its lock:

    park        a blocking read found nothing: to the tail of the queue of each of its keys
    signal      a write may have made a key ready (engine.observe says which); remembered once
    visits      after the unit: every waiter to decide again, already un-parked. The store answers
                it or parks it again, before it asks for the next one
    remove      timeout or cancellation
    claims_due  a blocked CLAIM may find an idle entry by now

Rules it keeps: signalled keys are handled in the order they were first signalled; of a key, the waiters
that are there at the start are visited, oldest first, so one that parks again is not visited twice in a
pass; keys signalled meanwhile are handled in a further round. One that parks again goes to the tail and
keeps its deadline, since that stands in the waiter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from tidelog.engine.errors import CorruptBlock
from tidelog.engine.reply import Park, Reader
from tidelog.engine.state import State

Place = tuple[int, bytes]  # database, key

_NOBODY: dict[Waiter, None] = {}


class Waiter:
    """One blocked call. Hashable by identity; may be parked again after a visit, as often as needed.

    keys       (database, key) pairs, each once
    args       the command to decide again
    timeout_ms milliseconds, as the command has it; 0 = for ever
    db         the database to decide it in
    group      True for XREADGROUP (and `work`), which also wants to know that its key went away
    reader     who waits for nothing but new messages of the only key, as `Park` has it, or None
    claim_at   unix ms from which a pending entry can be claimed, or None
    ask_at     on the store's own clock: when to be asked again without being signalled, or None; as the
    deadline   not looked at here
    owner      belongs to the store: whom to answer; not looked at here
    work       belongs to the store: what decides instead of `args`, or None
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
        """Take over what a second decision found, before parking again."""
        self.keys: list[Place] = park.keys
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

    keys        the keys someone waits on, a live view; empty when nobody waits
    signalled   the keys `visits` is to pass; empty when it has nothing to do
    groups      of keys on which nobody waits but consumers of one group with a `reader`: that group's name

    All are looked at with every write, so they are plain attributes.
    """

    __slots__ = ("keys", "signalled", "_queues", "groups", "_claims")

    def __init__(self) -> None:
        # A dict as a queue: in order of arrival, and a removal from the middle costs nothing.
        self._queues: dict[Place, dict[Waiter, None]] = {}
        self.keys: Collection[Place] = self._queues.keys()
        self.signalled: dict[Place, None] = {}
        self.groups: dict[Place, bytes] = {}
        # Per key the earliest claim_at of those who wait on it. May name one who has left: then
        # the others are asked once for nothing.
        self._claims: dict[Place, int] = {}

    def waiters(self) -> list[Waiter]:
        """All who are parked, each once."""
        return list({waiter: None for queue in self._queues.values() for waiter in queue})

    def at(self, place: Place) -> Collection[Waiter]:
        """Those who wait on a key, in their order."""
        return self._queues.get(place, _NOBODY)

    def park(self, waiter: Waiter) -> None:
        """Put a waiter at the tail of the queue of each of its keys; where it is in one, it keeps its place."""
        reader = waiter.reader
        if reader is not None:
            place = waiter.keys[0]
            queue = self._queues.get(place)
            if queue and self.groups.get(place) == reader[0]:
                queue[waiter] = None  # one more consumer of the group, as mostly
                return
        for place in waiter.keys:
            queue = self._queues.get(place)
            if queue is None:
                queue = self._queues[place] = {}
                self.groups.pop(place, None)  # an interrupt may have left it
                if reader is not None:
                    self.groups[place] = reader[0]
            elif place in self.groups and (reader is None or reader[0] != self.groups[place]):
                del self.groups[place]
            queue[waiter] = None
            if waiter.claim_at is not None:
                self._claims[place] = min(waiter.claim_at, self._claims.get(place, waiter.claim_at))

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out of all its queues; nothing happens if it is in none."""
        for place in waiter.keys:
            queue = self._queues.get(place)
            if queue is not None and waiter in queue:
                del queue[waiter]
                if not queue:
                    self.groups.pop(place, None)
                    del self._queues[place]
                    self._claims.pop(place, None)

    def ask_always(self, waiter: Waiter) -> None:
        """A waiter does not wait for new messages of a group alone any more: it is visited, not handed anything."""
        if waiter.reader is not None:
            waiter.reader = None
            for place in waiter.keys:
                self.groups.pop(place, None)

    def signal(self, places: Iterable[Place]) -> None:
        """Remember keys that may have become ready; keys nobody waits on are passed over."""
        for place in places:
            if place in self._queues:
                self.signalled[place] = None

    def visits(
        self, state: State, idle: Callable[[Sequence[Waiter], int, bool], int] | None = None
    ) -> Iterator[Waiter]:
        """Each waiter to decide again, un-parked, until no key is signalled any more.

        `state` is looked at when a key's turn comes: a waiter of XREAD whose key is gone, or holds
        another type, is left where it is (spec 10.1); one of XREADGROUP gets its error.

        idle: called with the waiters of a key, an index behind the first at which one with a `reader` stands, and
        whether all of them are of its group and have one. How many from there on need no decision: they have been
        asked, and are parked again at once.
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
                        # It may be gone since the pass began: cancelled while another was served.
                        if waiter not in queue:
                            at += 1
                            continue
                        if waiter.reader is not None and idle is not None:
                            run = idle(waiters, at, place in self.groups)
                            if run:
                                if len(queue) != run:  # else there are no others: the order stays
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

    def _to_tail(self, place: Place, waiters: list[Waiter]) -> None:
        """Park waiters again that wait on this key alone and are in its queue, but for those that left meanwhile."""
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
        """Unix ms at which `claims_due` will next find something, or None."""
        return min(self._claims.values(), default=None)

    def claims_due(self, now: int) -> None:
        """Signal the keys on which a pending entry has become claimable at `now`."""
        due = [place for place, claim_at in self._claims.items() if claim_at <= now]
        for place in due:
            del self._claims[place]
        self.signal(due)


def holds_stream(state: State, place: Place) -> bool:
    """Whether a key holds a stream. The other type is a string, which is `bytes`."""
    try:
        value = state.databases[place[0]].keys.get(place[1])
    except CorruptBlock:
        return True  # who asks again is told
    return value is not None and not isinstance(value, bytes)
