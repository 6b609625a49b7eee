"""Handing: FAILOVER, the leader's side. `replication.handover.Handover` has the states; this shell acts on them.

While it waits, the store is suspended (`Roles.suspend`): an embedded owner's writes fail, and clients of this server
wait as under CLIENT PAUSE. It looks at each ACK and at each tick. When REPLICA states that the store hands over, which
a thread does, PROMOTE is sent. From then on the store takes no writes; after PROMOTED, or when the link is gone,
waiting clients go on, and are told READONLY.

If the link breaks first, the link to the heir (replication/link.py) asks it how that ended, also after a restart.

If any step before PROMOTE fails, the store goes back to leading, and tries that again until it is done. Clients wait no
longer than for the first attempt; after that they get the error of the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.aof.errors import AofError
from tidelog.replication.feeds import Downstream
from tidelog.replication.handover import OUT_OF_HAND, Candidate, Event, Handover, State, TooLate
from tidelog.server.feeding import Feeding
from tidelog.server.host import Host
from tidelog.server.saving import in_thread
from tidelog.server.session import Session
from tidelog.store.errors import CheckpointFailed, StoreClosed, StorePoisoned, TidelogError

REASON: Final = "told a follower to lead, by FAILOVER"
AGAIN_S: Final = 0.5  # between two attempts to lead again
NOT_TOLD: Final = "a FAILOVER ended before the follower was told to lead"

_logger = logging.getLogger("tidelog.replication")


class Handing:
    """See the module docstring. Only the loop's thread uses it."""

    def __init__(self, server: Host[Session], feeding: Feeding, dial: Callable[[], object]) -> None:
        """`dial` is called when the answer of the store that was told to lead is to be asked for."""
        self._server, self._feeding, self._dial = server, feeding, dial
        self._roles = server.core.roles  # None if the store is open read-only
        self._handover: Handover | None = None
        self._delays: Handover | None = None  # the one that clients wait for
        self._links: dict[bytes, Downstream] = {}  # those that may be chosen, by ID
        self._returning: asyncio.Future[None] | None = None
        self._said = ""  # why this store does not lead again yet
        self._again_at = 0.0  # when that is tried next
        self._stopped = False
        feeding.heard = self.look

    @property
    def state(self) -> State:
        """The state of the handover, HANDED_OVER if there is none."""
        if self._handover is not None:
            return self._handover.state
        unknown = self._roles is not None and self._roles.role.hands_over
        return State.UNKNOWN if unknown else State.HANDED_OVER

    @property
    def under_way(self) -> bool:
        """Whether there is a handover that may still be aborted, or that this server waits for."""
        return self._handover is not None

    @property
    def delaying(self) -> bool:
        """Whether writes of clients wait until a handover has ended, whatever role REPLICA states meanwhile."""
        return self._delays is not None

    # --- commands

    def begin(self, target: Downstream | None, force: bool, timeout_ms: int) -> None:
        """Hand over to this follower, or to the first that has every record. Raises TidelogError."""
        assert self._handover is None and self._roles is not None
        last = self._roles.suspend()
        ends_at = self._server.loop.time() + timeout_ms / 1000 if timeout_ms else None
        self._handover = Handover(last, None if target is None else target.id, ends_at, force)
        self._said, self._again_at = "", 0.0
        self._delays = self._handover
        self._server.delay_writes(self._handover, True)
        if ends_at is not None:
            self._server.loop.call_at(ends_at, self.look)
        _logger.warning("FAILOVER: writes wait until %s has LSN %d", target or "a follower", last)
        for link in self._feeding.feeds:
            link.feed.ask()
        self._feeding.pump_soon()
        self._server.loop.call_soon(self.look)  # behind the reply

    def abort(self) -> None:
        """End it, and take writes again. Raises TooLate."""
        if self._handover is None:
            raise TooLate(
                "this server was told to hand over already, and asks the other one whether it leads. To lead here in "
                "any case, by hand: REPLICAOF NO ONE"
            )
        self._handover.abort()
        self.look()

    # --- what happens

    def look(self) -> None:
        """Something may have happened: an ACK, a lost link, or time has passed."""
        handover = self._handover
        if handover is None or self._roles is None:
            return
        before = handover.state
        if before is State.WAITING:
            # An heir without a port is of no use: this store could not follow it.
            self._links = {link.id: link for link in self._feeding.feeds if link.port}
        followers = [_candidate(link) for link in self._links.values()]
        match handover.look(followers, self._server.loop.time()):
            case State.TOLD:
                self._look_for_answer(handover)
            case State.RETURNING:
                self._return(handover)
            case State.STATING if before is State.WAITING:
                assert handover.heir is not None
                stating = in_thread(partial(self._state, handover.heir))
                stating.add_done_callback(partial(self._stated, handover))

    def _state(self, heir: Candidate) -> int:
        """Publish the role. Returns the generation that the heir is to begin. Runs in a thread."""
        assert self._roles is not None
        generation = self._roles.hand_over(heir.id, heir.host, heir.port, REASON)
        if self._stopped:
            self._lead_again(heir)
        return generation

    def _stated(self, handover: Handover, stating: asyncio.Future[int]) -> None:
        error = stating.exception()
        if error is not None:
            _logger.error(
                *("FAILOVER: the store cannot state that it hands over: %s", error),
                exc_info=None if isinstance(error, TidelogError) else error,
            )
        if handover is not self._handover:
            return  # the server shuts down
        assert self._roles is not None and handover.heir is not None
        link = self._links[handover.heir.id]
        # The owner of an embedded store may be changing its role by hand.
        told = False
        with self._server.core.lock:
            if error is not None:
                why = "the new role is not on the disk"
            elif not self._is_there(link):
                why = "the follower's link is gone"
            elif self._roles.role.heir != handover.heir.id.hex():
                why = "the role of this store was changed"
            elif handover.state is State.STATING:
                handover.happened(Event.STATED)
                told = self._tell(handover, link, stating.result())
            else:
                why = ""  # it has been withdrawn, and says why
        if handover.state is not State.TOLD:
            handover.happened(Event.NOT_TOLD, why)
            self._return(handover)
        elif not told:
            self._lost(handover, link)

    def _tell(self, handover: Handover, link: Downstream, generation: int) -> bool:
        """Send PROMOTE, once. From here on only the heir knows how this ends. False: ask it."""
        try:
            link.sink.write(link.feed.tell_to_lead(handover.promote(generation)))
        except Exception as error:  # a connection that is just ending; it may have passed on a part
            _logger.warning("FAILOVER: %s cannot be told to lead: %r", link, error)
            link.sink.close()
            return False
        _logger.warning("FAILOVER: told %s to lead", link)
        return True

    def _is_there(self, link: Downstream) -> bool:
        return any(link is each for each in self._feeding.feeds)

    def _look_for_answer(self, handover: Handover) -> None:
        assert handover.heir is not None and self._roles is not None
        link = self._links[handover.heir.id]
        if link.feed.promoted is not None:
            handover.happened(Event.PROMOTED)
            _logger.warning(
                "FAILOVER: %s leads from LSN %d on; this store follows it",
                link,
                link.feed.promoted.lsn,
            )
            asked = self._roles.role
            following = in_thread(partial(self._roles.handed_over, asked, f"handed over to {link}"))
            following.add_done_callback(self._followed)
            self._end(ask=False)
            self._feeding.feeds.drop(link, "it leads now", logging.INFO)
        elif not self._is_there(link):
            self._lost(handover, link)

    def _lost(self, handover: Handover, link: Downstream) -> None:
        handover.happened(Event.LOST)
        _logger.warning("FAILOVER: the link to %s is gone; asking whether it leads", link)
        self._end()

    def _followed(self, following: asyncio.Future[None]) -> None:
        error = following.exception()
        if error is not None:
            _logger.error("FAILOVER: the new role could not be stated: %s", error)
            self._dial()  # asks the new leader, and then tries to state it again

    # --- back to leading

    def _return(self, handover: Handover) -> None:
        """Lead as before. Called at each tick until that has worked."""
        if self._server.loop.time() < self._again_at:
            return
        if handover.heir is None:
            self._try(handover)  # nothing was published, so nothing waits for the disk
        elif self._returning is None:
            self._returning = in_thread(partial(self._lead_again, handover.heir))
            self._returning.add_done_callback(partial(self._tried, handover))

    def _tried(self, handover: Handover, returning: asyncio.Future[None]) -> None:
        self._returning = None
        if handover is not self._handover:
            return  # the server shuts down
        error = returning.exception()
        if isinstance(error, CheckpointFailed):
            self._try(handover)  # the system gives no thread
        else:
            self._returned(handover, error)

    def _try(self, handover: Handover) -> None:
        try:
            self._lead_again(handover.heir)
        except Exception as error:
            self._returned(handover, error)
        else:
            self._returned(handover, None)

    def _lead_again(self, heir: Candidate | None) -> None:
        """The heir was not told. Raises what `Roles.take_back` raises."""
        assert self._roles is not None
        self._roles.release()  # finds out which role REPLICA states
        role = self._roles.role
        if heir is not None and role.heir == heir.id.hex():
            self._roles.take_back(role, NOT_TOLD)

    def _returned(self, handover: Handover, error: BaseException | None) -> None:
        if error is None or isinstance(error, StoreClosed | StorePoisoned):
            handover.happened(Event.RETURNED)
            _logger.warning("FAILOVER: aborted: %s", handover.why)
            self._end()
        else:
            self._again_at = self._server.loop.time() + AGAIN_S
            self._let_go(handover)
        if error is not None and str(error) != self._said:
            self._said = str(error)
            _logger.error(
                *("FAILOVER: the store cannot lead again: %s", error),
                exc_info=None if isinstance(error, TidelogError) else error,
            )

    def _end(self, ask: bool = True) -> None:
        """Let waiting clients go on."""
        handover, self._handover = self._handover, None
        self._links = {}
        if handover is not None:
            self._let_go(handover)
        if ask:
            self._server.loop.call_soon(self._ask)  # behind what a change of the role has asked for

    def _let_go(self, handover: Handover) -> None:
        """Clients wait for it no longer, once the server has taken the role that was just stated."""
        self._server.loop.call_soon(self._go_on, handover)

    def _go_on(self, handover: Handover) -> None:
        if self._delays is handover:
            self._delays = None  # another FAILOVER may have begun in the same turn
        self._server.delay_writes(handover, False)

    def _ask(self) -> None:
        if not self._stopped:
            self._dial()

    def role_changed(self) -> None:
        """The role of the store changed. If a person did that, the handover is over."""
        handover = self._handover
        if handover is None or self._roles is None:
            return
        if handover.state not in OUT_OF_HAND:
            if handover.state is State.WAITING:
                handover.happened(Event.ABORT, "the role of this store was changed")
                self._return(handover)
            return  # otherwise a thread is about to find out
        if self._roles.role.hands_over:
            return
        _logger.warning("FAILOVER: ended, because the role of this store was changed")
        if handover.heir is not None and handover.heir.id in self._links:
            link = self._links[handover.heir.id]
            if self._is_there(link):
                self._feeding.feeds.drop(link, "the role of this store was changed")
        self._end(ask=False)

    def stop(self) -> None:
        """The server shuts down; the store may go on."""
        self._feeding.heard = lambda: None
        self._stopped = True
        handover, self._handover = self._handover, None
        if handover is not None and handover.state not in OUT_OF_HAND and self._roles is not None:
            try:
                self._lead_again(handover.heir)
            except (TidelogError, AofError, OSError):
                pass  # it was closed, or its next open finds out


def _candidate(link: Downstream) -> Candidate:
    return Candidate(link.id, link.host, link.port, link.feed.acked_lsn, link.feed.fsynced_lsn)
