"""Handover: a leader hands over to one of its followers (FAILOVER), as states. No sockets, no clocks, no disk.

    WAITING        writes are delayed until a follower has written and applied every record
    STATING        REPLICA is being published: `handing over`, with the follower's address and ID
    WITHDRAWN      the same, but the follower will not be told: it was aborted, or the time is up
    TOLD           that is durable, and PROMOTE was sent
    HANDED_OVER    PROMOTED came: the follower leads, and this store follows it
    UNKNOWN        the link broke before PROMOTED came: ask the follower, before and after any restart
    RETURNING      the follower was not told: this store states that it leads, if it had stated anything else, and is
                   released. A failure is tried again
    ABORTED        this store leads as before, and writes go on

Until PROMOTE is sent the follower cannot lead, so everything can be taken back, and ABORT is possible. Because REPLICA
is durable before PROMOTE is sent, a store that was killed afterwards knows at its next open that another one may lead.
It takes no writes before that one has answered (replication/handshake.py, HEIR). So there are never two leaders that
take writes.

The follower fsyncs all its records before it states its own role, and the EPOCH of the new generation before it
answers. So a follower whose fsync policy is relaxed can be chosen as well: it has every record when it is told to lead,
and has fsynced every record when it leads.

The shell (server/handing.py) calls `look` when an ACK came or time has passed, then acts on `state`, and says by
`happened` how that ended.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.replication.errors import ReplicationError
from tidelog.replication.protocol import Promote


class State(enum.Enum):
    """See the module docstring."""

    WAITING = "waiting"
    STATING = "stating"
    WITHDRAWN = "withdrawn"
    TOLD = "told"
    HANDED_OVER = "handed over"
    UNKNOWN = "unknown"
    RETURNING = "returning"
    ABORTED = "aborted"


class Event(enum.Enum):
    """Something that happens to a handover."""

    REACHED = "the follower has every record"
    FORCED = "the time is up, and FORCE was given"
    TIMED_OUT = "the time is up"
    ABORT = "FAILOVER ABORT"
    STATED = "REPLICA states it"
    NOT_TOLD = "the follower was not told, and will not be"
    LOST = "the link is gone over which the follower was told"
    PROMOTED = "the follower says that it leads"
    RETURNED = "this store leads and takes writes"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.WAITING, Event.REACHED): State.STATING,
    (State.WAITING, Event.FORCED): State.STATING,
    (State.WAITING, Event.TIMED_OUT): State.RETURNING,
    (State.WAITING, Event.ABORT): State.RETURNING,
    (State.STATING, Event.STATED): State.TOLD,
    (State.STATING, Event.NOT_TOLD): State.RETURNING,
    (State.STATING, Event.TIMED_OUT): State.WITHDRAWN,
    (State.STATING, Event.ABORT): State.WITHDRAWN,
    (State.WITHDRAWN, Event.ABORT): State.WITHDRAWN,
    (State.WITHDRAWN, Event.NOT_TOLD): State.RETURNING,
    (State.RETURNING, Event.ABORT): State.RETURNING,
    (State.RETURNING, Event.RETURNED): State.ABORTED,
    (State.TOLD, Event.PROMOTED): State.HANDED_OVER,
    (State.TOLD, Event.LOST): State.UNKNOWN,
}
# The states of Redis's `master_failover_state`.
SHOWN: Final[Mapping[State, str]] = {
    State.WAITING: "waiting-for-sync",
    State.STATING: "failover-in-progress",
    State.WITHDRAWN: "failover-in-progress",
    State.TOLD: "failover-in-progress",
    State.HANDED_OVER: "no-failover",
    State.UNKNOWN: "failover-in-progress",
    State.RETURNING: "failover-in-progress",
    State.ABORTED: "no-failover",
}
# In these states a follower is about to be told, or may be.
NOT_TOLD_YET: Final = frozenset((State.WAITING, State.STATING, State.WITHDRAWN))
# In these states this store takes no writes, and only the follower can say whether it leads.
OUT_OF_HAND: Final = frozenset((State.TOLD, State.UNKNOWN))


class TooLate(ReplicationError):
    """The follower may lead already, so the handover cannot be aborted."""


class Candidate(NamedTuple):
    """A connected follower that may be chosen."""

    id: bytes
    host: str
    port: int
    written: int  # LSN, written and applied
    fsynced: int  # LSN


class Handover:
    """One FAILOVER.

    state    see the module docstring
    heir     the follower that is to lead; None until it is chosen
    why      why the follower is not told; "" while it may be
    """

    def __init__(
        self,
        last: int,
        target: bytes | None = None,
        ends_at: float | None = None,
        force: bool = False,
    ) -> None:
        """`last`: LSN of this store's last record, while writes are delayed.

        target     ID of the follower that is to lead; None = the first that has everything
        ends_at    when the wait for it ends; None = never
        force      then tell the target to lead, whatever it has. Needs `target` and `ends_at`
        """
        assert not force or (target is not None and ends_at is not None)
        self.state = State.WAITING
        self.heir: Candidate | None = None
        self.why = ""
        self._last, self._target = last, target
        self._ends_at, self._force = ends_at, force
        self._must_have = last

    def look(self, followers: Sequence[Candidate], now: float) -> State:
        """Look whether the wait is over, because a follower has everything or the time is up. Returns the state."""
        if self.state is State.STATING and self._late(now) and not self._force:
            self.happened(Event.TIMED_OUT, "the disk did not take the new role in time")
        if self.state is not State.WAITING:
            return self.state
        fit = [each for each in followers if self._target in (None, each.id)]
        ready = [each for each in fit if each.written >= self._last]
        if ready:
            self.heir = max(ready, key=lambda each: each.fsynced)
            self.happened(Event.REACHED)
        elif self._late(now):
            if self._force and fit:
                self.heir, self._must_have = fit[0], 0
                self.happened(Event.FORCED)
            else:
                self.happened(Event.TIMED_OUT, "no follower had every record in time")
        return self.state

    def _late(self, now: float) -> bool:
        return self._ends_at is not None and now >= self._ends_at

    def abort(self) -> None:
        """FAILOVER ABORT. Raises TooLate."""
        if (self.state, Event.ABORT) not in TRANSITIONS:
            raise TooLate(
                "the follower was told to lead already, and only it can say whether it does. To lead here in any case, "
                "by hand: REPLICAOF NO ONE"
            )
        self.happened(Event.ABORT, "FAILOVER ABORT")

    def promote(self, generation: int) -> Promote:
        """The message to the heir, once REPLICA states it. Only in TOLD."""
        assert self.state is State.TOLD
        return Promote(self._must_have, generation)

    def happened(self, event: Event, why: str = "") -> None:
        """Go on to the next state. The first `why` counts."""
        self.state = TRANSITIONS[self.state, event]
        self.why = self.why or why
