"""Acks: which followers have what of a store's log, and the calls that wait for that.

A higher layer makes the links to followers. It adds each of them here, and calls `tell` when one has come further.

Any thread may use this module, and it has no lock. A call that waits is noted before it looks, and an acknowledgement
is noted before `tell` looks at the calls, so one of both sees the other.

An acknowledgement counts only for the history in which it was given, and for a call that the present log answers: after
a rewind, or in another role, the same LSN may be that of another record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.aof.log import Log
from tidelog.store.commit.attached import Acknowledging, Changing
from tidelog.store.commit.durability import Promise
from tidelog.store.commit.landing import Landing
from tidelog.store.errors import NotReplicated

TIMEOUT_S: Final = 10.0  # how long a call waits for followers unless it says so


class Replicated(NamedTuple):
    """The level `replicated` of one view: it asks for a number of followers, within a number of seconds.

    fsynced    they have synced it to their disks
    """

    replicas: int
    fsynced: bool
    seconds: float


class Awaited:
    """A call that waits until `wanted` followers have reached `lsn` of `log`.

    told    called once, by any thread: they have, or they cannot any more. Must not fail
    """

    __slots__ = ("log", "lsn", "wanted", "fsynced", "told")

    def __init__(
        self,
        log: Log,
        lsn: int,
        wanted: int,
        fsynced: bool,
        told: Callable[[], object] = lambda: None,
    ) -> None:
        self.log, self.lsn, self.wanted, self.fsynced = log, lsn, wanted, fsynced
        self.told = told


def nothing_waits() -> None:
    """Do nothing: no follower is connected, or nothing waits for followers."""


class Acks:
    """See the module docstring.

    roles    of the store; None until it is open, and in a read-only store
    ask      makes the followers say soon how far they are; set by the code that has the links. Called by any thread
    moved    called with each `tell`, by any thread, perhaps with the store's lock; must not fail
    """

    def __init__(self, landing: Landing) -> None:
        self.roles: Changing | None = None
        self.ask: Callable[[], object] = nothing_waits
        self.moved: Callable[[], object] = nothing_waits
        self._landing = landing
        self._links: dict[Acknowledging, None] = {}
        self._awaited: dict[Awaited, None] = {}
        self._ended = False

    # --- links

    def add(self, link: Acknowledging) -> None:
        """A follower is connected."""
        self._links[link] = None

    def remove(self, link: Acknowledging) -> None:
        """The connection to a follower is gone."""
        self._links.pop(link, None)

    def tell(self) -> None:
        """A follower has come further, or the store has another role: end the waits that are over."""
        reached: dict[tuple[int, bool], int] = {}  # found once for all calls that ask for the same
        for awaited in list(self._awaited):
            log, asked = awaited.log, (awaited.wanted, awaited.fsynced)
            if asked not in reached:
                reached[asked] = self._through(*asked)
            ended = self._landing.log is not log or self._ended
            if (ended or awaited.lsn <= reached[asked]) and self.forget(awaited):
                awaited.told()
        self.moved()

    def end(self) -> None:
        """The store has ended: nothing more will be confirmed."""
        self._ended = True
        self.tell()

    # --- who has what

    def count(self, log: Log, lsn: int, fsynced: bool) -> int:
        """How many followers have written and applied, or fsynced, all records of `log` through `lsn`."""
        found = sum(reached >= lsn for reached in self._reached(fsynced))
        # Look at this last. A log that was replaced never comes back, so nothing changed in between.
        return found if self._landing.log is log else 0

    def through(self, log: Log, wanted: int) -> int:
        """The last LSN of `log` that `wanted` followers have written and applied; 0 if there is none."""
        found = self._through(wanted, False)
        return max(found, 0) if self._landing.log is log else 0

    def _through(self, wanted: int, fsynced: bool) -> int:
        """The last LSN that `wanted` followers have reached; -1 if there are fewer."""
        found = sorted(self._reached(fsynced), reverse=True)
        return found[wanted - 1] if 0 < wanted <= len(found) else -1

    def _reached(self, fsynced: bool) -> list[int]:
        """The last LSN of each connected follower."""
        history = 0 if self.roles is None else self.roles.rewinds
        return [
            link.fsynced_lsn if fsynced else link.acked_lsn
            for link in list(self._links)
            if link.history == history
        ]

    # --- waiting

    def wait(self, promise: Promise, asked: Replicated) -> None:
        """Wait until enough followers have what a call promises. It holds the level of this store already.

        Raises NotReplicated.
        """
        log, lsn, _ = promise
        if self.count(log, lsn, asked.fsynced) >= asked.replicas:
            return
        gate = threading.Lock()
        gate.acquire()
        awaited = Awaited(log, lsn, asked.replicas, asked.fsynced, gate.release)
        try:
            if not self.begin(awaited):
                gate.acquire(True, asked.seconds)
        finally:
            self.forget(awaited)
        self.check(promise, asked)

    def check(self, promise: Promise, asked: Replicated) -> None:
        """Raise NotReplicated if too few followers have what a call promises."""
        log, lsn, _ = promise
        found = self.count(log, lsn, asked.fsynced)
        if found < asked.replicas:
            raise NotReplicated(found, asked.replicas)

    def begin(self, awaited: Awaited) -> bool:
        """Begin a wait: `awaited.told` is called when it is over. True: it is over already, and nothing is called."""
        self._awaited[awaited] = None
        if self._over(awaited) and self.forget(awaited):
            return True
        self.ask()
        return False

    @property
    def waiting(self) -> bool:
        """Whether calls wait."""
        return bool(self._awaited)

    def forget(self, awaited: Awaited) -> bool:
        """End a wait. False: it has ended before."""
        return self._awaited.pop(awaited, awaited) is None

    def _over(self, awaited: Awaited) -> bool:
        log = awaited.log
        return (
            self.count(log, awaited.lsn, awaited.fsynced) >= awaited.wanted
            or self._landing.log is not log
            or self._ended
        )
