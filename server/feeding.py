"""Feeding: when the followers of a server get the frames of its log.

A follower's link begins as a client's connection. TIDELOG FOLLOW (server/commands/follow.py) hands it over.

Frames are sent at the end of each turn, behind the flush of the log. They are read from the segment that the log has
just written. If the owner's threads write while the loop sleeps, an alarm of the log wakes it, at most once a
millisecond. A follower that is far behind gets what a thread reads from older segments, so the loop does not wait for
the disk.

Without followers there is one check per turn, and no alarm is set.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import FSYNCED, Log
from tidelog.aof.seek import Source
from tidelog.replication.feed import TIMEOUT_S_MIN
from tidelog.replication.feeds import Downstream, End, Feeds
from tidelog.replication.status import Kept
from tidelog.server.host import Host
from tidelog.server.monitoring.kept import Looking
from tidelog.server.offering import Offerings
from tidelog.server.saving import in_thread
from tidelog.server.session import Session
from tidelog.server.shaking import Shaking
from tidelog.store.errors import TidelogError
from tidelog.store.keepers import Keeper

WAKE_S: Final = 0.001  # least time between two wakes by other threads

_logger = logging.getLogger("tidelog.replication")


class Pump(Protocol):
    """Sends what can be sent.

    ahead_bytes   how much is read for one connection before the system takes it
    """

    def pump(self) -> None: ...

    @property
    def ahead_bytes(self) -> int: ...


class Feeding:
    """The links of one server to its followers. Only the loop's thread uses it, but for `ask`, `_stirred`, `_synced`.

    feeds     the links
    shaking   the handshakes that are under way
    offerings those that ship a snapshot first
    active    whether there are any: checked at the end of each turn
    asked     a call waits for followers, and the next `pump` asks them how far they are
    counted   called when a follower has come or gone, and `hz` times a second
    heard     called when a follower was heard or is gone, and at each tick
    """

    def __init__(self, server: Host[Session]) -> None:
        self.feeds = Feeds(server.core)
        self.shaking = Shaking()
        self.offerings = Offerings(server.core, self._end_now, self._expect, self.shaking)
        self._looking = Looking(server, self.feeds)
        self.active = False
        self.counted: Callable[[], object] = lambda: None
        self.heard: Callable[[], object] = lambda: None
        self._server = server
        self._core = server.core
        self._loop = server.loop
        self._thread = threading.get_ident()
        self._armed: Log | None = None  # the log whose next unit calls `_stirred`
        self._awaited: Log | None = None  # the log whose next sync calls `_synced`
        self._wake: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None  # a scheduled `pump`
        self._ask_due = False  # `_ask_now` is scheduled
        self.asked = False
        self._core.acks.ask = self.ask

    def turn_ended(self) -> None:
        """A turn has ended, and the log was flushed. Called if `active`."""
        if self._armed is not self._core.log or self._soon is not None:
            self.pump()

    def pump(self) -> None:
        """Send each follower what it may get now."""
        core = self._core
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self.asked:
            self.asked = False
            self.feeds.ask()
        if not self.active or core.ended:
            return
        try:
            end = self._end()
        except TidelogError as error:
            _logger.error("the log cannot be sent to followers: %s", error)
            return
        if self.feeds.pump(end, self._loop.time()):
            self.pump_soon()
        log = core.log
        if end.good < log.next_lsn - 1 and self._awaited is not log:
            if self.feeds.level() == FSYNCED:
                self._awaited = log
                log.subscribe(log.next_lsn - 1, FSYNCED, self._synced)

    def _end(self) -> End:
        core = self._core
        with core.lock:
            log = core.log
            # Set the alarm first. Then a unit is either in what `end` says, or it calls `_stirred`.
            if self._armed is not log:
                self._armed = log
                log.alarm(self._stirred)
            return self.feeds.end()

    def _end_now(self) -> End:
        with self._core.lock:
            if self._core.trouble is not None:
                self._core.mend()
            return self.feeds.end()

    def pump_soon(self) -> None:
        """`pump` at the end of this turn, or else in the next round of the loop; once for all callers."""
        if self.active and self._soon is None:
            self._soon = self._loop.call_soon(self.pump)

    def ask(self) -> None:
        """A call waits for followers: ask them how far they are, in one message with what it wrote. From any thread."""
        if threading.get_ident() == self._thread:
            if not self.asked:
                self.asked = True
                self.pump_soon()
        elif self.active and not self._ask_due:  # once for all threads
            self._ask_due = True
            try:
                self._loop.call_soon_threadsafe(self._ask_now)
            except RuntimeError:
                pass  # the loop is closed

    def _ask_now(self) -> None:
        # First, because units that are written from here on may come too late for this `pump`.
        self._ask_due = False
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        self.asked = True
        self.pump()

    def tick(self) -> None:
        """Give signs of life, and close links that are silent. Called `hz` times a second."""
        timeout_s = max(self._server.config["repl-timeout"], TIMEOUT_S_MIN)
        self.offerings.tick(timeout_s)
        if self.active:
            self.feeds.check(self._loop.time(), timeout_s)
            self.pump()
            self.counted()
        self.heard()
        self._looking.tick()

    @property
    def kept(self) -> Kept:
        """The log that is kept for followers, and the records that were set aside, as of about a second ago."""
        return self._looking.now

    @property
    def ahead_bytes(self) -> int:
        """See `Pump`."""
        return self.feeds.ahead_bytes

    def moved(self) -> None:
        """Frames of this server's own leader were applied, so its own followers may get them."""
        if self.active:
            self.turn_ended()

    # --- woken

    def _stirred(self) -> None:
        """[lock] A unit is about to be written. From any thread."""
        self._armed = None
        if threading.get_ident() == self._thread:
            self.pump_soon()  # nearly always the end of this turn comes first
            return
        try:
            self._loop.call_soon_threadsafe(self._woke)
        except RuntimeError:
            pass  # the loop is closed

    def _woke(self) -> None:
        if self._wake is None:
            self._wake = self._loop.call_later(WAKE_S, self._slept)

    def _slept(self) -> None:
        self._wake = None
        self.pump()

    def _synced(self, error: LogPoisoned | None) -> None:
        """A sync ended. Called from the log's own thread or the loop's."""
        try:
            self._loop.call_soon_threadsafe(self._good, error)
        except RuntimeError:
            pass  # the loop is closed

    def _good(self, error: LogPoisoned | None) -> None:
        self._awaited = None
        if error is None:
            if self._core.acks.waiting:
                self.asked = True  # the calls have asked before these frames could be sent
            self.pump()

    # --- links

    def begin(self, link: Downstream, lsn: int) -> None:
        """A link begins, with the frames behind this LSN."""
        self.shaking.accepted(link, partial(self.feeds.drop, link, level=logging.INFO))
        self.feeds.add(link, lsn, self._loop.time())
        self._keep_log()
        self.active = True
        self.counted()
        _logger.info("the follower %s is connected", link)
        self.pump_soon()

    def _keep_log(self) -> None:
        if self._core.checkpoints is not None:
            self._core.checkpoints.followers = self._needed

    def _expect(self, id: bytes, name: str, lsn: int) -> None:
        self.feeds.expect(id, name, lsn, self._loop.time())
        self._keep_log()

    def _needed(self) -> list[Keeper]:
        """The log to keep for followers. From any thread."""
        config = self._server.config
        needed = self.feeds.needed(self._loop.time(), config["repl-backlog-ttl"])
        return [Keeper("follower", name, lsn, config["repl-backlog-size"]) for name, lsn in needed]

    def lost(self, link: Downstream, error: Exception | None) -> None:
        """The connection of a follower is gone."""
        self.shaking.heard(link)
        self.feeds.lost(link)
        self.active = bool(self.feeds)
        self.counted()
        _logger.info("the follower %s is gone%s", link, f": {error}" if error else "")
        self.heard()

    def received(self, link: Downstream, data: bytes) -> None:
        """Bytes came from a follower."""
        self.shaking.heard(link)
        self.feeds.received(link, data, self._loop.time())
        self.heard()

    def stop(self, reason: str) -> None:
        """End all links."""
        self.offerings.stop(reason)
        self.feeds.drop_all(reason)


class ReadAhead:
    """The frames of a log for one follower. The newest segment is read here, older ones by a thread, ahead of need."""

    def __init__(self, source: Source, ready: Pump) -> None:
        self._source = source
        self._ready = ready
        self._read = memoryview(b"")  # by the thread, not taken yet
        self._reading: asyncio.Future[bytes] | None = None
        self._failure: BaseException | None = None
        self._closed = False

    def read(self, nbytes_max: int, good: tuple[int, int]) -> bytes:
        """At most `nbytes_max` of the next bytes; b"" if there is none yet. Raises what `Source.read` raises."""
        if self._failure is not None:
            raise self._failure
        if self._read:
            data = bytes(self._read[:nbytes_max])
            self._read = self._read[nbytes_max:]
            return data
        if self._reading is not None:
            return b""
        if self._source.in_newest(good):
            return self._source.read(nbytes_max, good)
        nbytes = self._ready.ahead_bytes
        self._reading = in_thread(lambda: self._source.read(nbytes, good))
        self._reading.add_done_callback(self._arrived)
        return b""

    def _arrived(self, reading: asyncio.Future[bytes]) -> None:
        self._reading = None
        if self._closed:
            self._source.close()
            return
        self._failure = reading.exception()
        if self._failure is None:
            self._read = memoryview(reading.result())
        if self._read or self._failure is not None:
            self._ready.pump()

    def at_end(self, good: tuple[int, int]) -> bool:
        """Whether there is nothing to read up to `good` now. `ready` is called if that changes."""
        if self._read or self._failure is not None:
            return False
        return self._reading is not None or self._source.at_end(good)

    def close(self) -> None:
        """Close the segment, at once or when the thread has finished."""
        self._closed = True
        if self._reading is None:
            self._source.close()
