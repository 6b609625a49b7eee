"""Turns: when commands of all connections run, when the log is flushed, and when replies leave.

In a turn of the event loop all sockets that have something are read and their commands run; what those log is gathered.
XADDs of all clients run together when the turn ends (`_end`). Then the log is flushed once, as one frame, and the
replies leave: at once, if what they rest on holds the promise of the fsync policy by then; else when the log's own
thread has synced it. So a sync never holds up the loop, and one serves all who wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import Log
from tidelog.engine.table import TABLE
from tidelog.server import errors
from tidelog.server.connection import Connection
from tidelog.server.session import Session
from tidelog.store.batch import run_pipeline
from tidelog.store.core import RELOAD

if TYPE_CHECKING:
    from tidelog.server.server import Server

FEW: Final = 2  # XADDs that are faster one by one
RELIEF_S: Final = 0.01  # how often writers that wait for memory are looked at
XADD: Final = TABLE.commands[b"xadd"]

_Adds = list[tuple[Connection, list[list[bytes]]]]

_logger = logging.getLogger("tidelog.server")


class Turns:
    """The turns of one server. Used by the loop's thread alone, but for `woke` and `_synced`.

    flush_sleep    seconds to wait before each flush (DEBUG AOF-FLUSH-SLEEP)
    """

    def __init__(self, server: Server) -> None:
        self.flush_sleep = 0.0
        self._server = server
        self._core = server.core
        self._loop = server.loop
        self._thread = threading.get_ident()
        self._ending = False  # the end of this turn is on its way
        self._adds: _Adds = []
        self._awake: deque[Session] = deque()
        self._touched: list[Connection] = []
        self._parked: dict[Connection, None] = {}
        self._awaited: list[tuple[Log, int]] = []
        self._relief: asyncio.TimerHandle | None = None

    @property
    def under_way(self) -> bool:
        """Whether a turn has still to end."""
        return bool(self._ending or self._adds or self._awake or self._touched)

    @property
    def holding(self) -> bool:
        """Whether replies wait for the log."""
        return bool(self._parked)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._parked.pop(connection, None)

    def look(self) -> None:
        """See whether replies that wait may leave by now."""
        self._synced(None)

    def touch(self, connection: Connection) -> None:
        """A connection has something to send in this turn."""
        self._touched.append(connection)
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._end)

    def woke(self, session: Session, thread: int) -> None:
        """A blocked session was served, or is to look at its timers. From any thread, under the store's lock."""
        if thread == self._thread:
            self._awake.append(session)
            if not self._ending:
                self._ending = True
                self._loop.call_soon(self._end)
        else:
            try:
                self._loop.call_soon_threadsafe(self.woke, session, self._thread)
            except RuntimeError:
                pass  # the loop is closed: what was delivered is pending, as after a crash

    def add_later(self, connection: Connection, commands: list[list[bytes]]) -> None:
        """XADDs whose IDs are the server's to make: those of all connections run together when the turn ends."""
        self._adds.append((connection, commands))
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._end)

    def run_adds(self) -> None:
        """Run what `add_later` was given."""
        adds, self._adds = self._adds, []
        by_db: dict[int, _Adds] = {}
        for add in adds:
            connection, commands = add
            connection.adding = False
            if connection.closing:
                continue
            session = connection.session
            if len(adds) > FEW and session.plain:
                by_db.setdefault(session.db, []).append(add)
            else:  # few are faster one by one; and a pause may have come in between
                connection.run(commands)
        for found in by_db.values():
            self.add_many(found)

    def add_many(self, adds: _Adds) -> None:
        """XADDs of connections that have selected the same database: each a unit of its own."""
        started = perf_counter_ns()
        session = adds[0][0].session
        rows = [(args[1], tuple(args[3:])) for _, commands in adds for args in commands]
        try:
            replies, claim = run_pipeline(self._core, session.db, rows, False)
        except Exception as error:
            replies, claim = [session.refused(XADD, error)] * len(rows), (self._core.log, 0, False)
        log, lsn, wrote = claim
        at = failures = 0
        for connection, commands in adds:
            stop = at + len(commands)
            pieces = []
            for reply in replies[at:stop]:
                if reply.__class__ is bytes:
                    pieces.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
                else:
                    failures += 1
                    line = errors.line(reply)
                    self._server.stats.error(line)
                    pieces.append(b"-%b\r\n" % line)
            connection.rests_on(log, lsn, wrote)
            connection.send(pieces[0] if len(pieces) == 1 else b"".join(pieces), len(pieces))
            if wrote:
                connection.session.wrote_lsn = lsn
            at = stop
        spent = perf_counter_ns() - started
        self._server.stats.calls(XADD.name, len(rows), spent, failures)
        if spent // len(rows) >= self._server.stats.slow_ns:
            self._server.stats.slow(adds[0][1][0], spent // len(rows), session)

    def _end(self) -> None:
        self._ending = False
        try:
            if self._adds:
                self.run_adds()
            awake = self._awake
            while awake:
                awake.popleft().woken()
            self._server.pubsub.deliver()
        except Exception:  # a fault of ours; what is left over is for the next turn
            _logger.exception("a turn broke off")
            if self._awake and not self._ending:
                self._ending = True
                self._loop.call_soon(self._end)
        core = self._core
        log = core.log
        if log.written_lsn < log.next_lsn - 1 and (core.relaxed or self.flush_sleep):
            if self.flush_sleep:
                time.sleep(self.flush_sleep)
            with core.lock:
                try:
                    log.flush()
                except Exception as error:
                    _logger.error("the log could not be written: %s", error)
                    if log.in_doubt:
                        core.trouble = core.trouble or RELOAD
        touched, self._touched = self._touched, []
        through = self._held_through(log)
        for connection in touched:
            connection.finish_turn(log, through)
        if self._awaited:
            self._subscribe()

    def _held_through(self, log: Log) -> int:
        """The last LSN that holds what the fsync policy promises; replies that rest on none go in any case."""
        core = self._core
        if core.relaxed:
            return 0 if log.parked else log.written_lsn
        return log.synced_lsn if core.relief is None else 0

    def await_(self, connection: Connection) -> None:
        """What a connection has to send has to wait for the log."""
        self._parked[connection] = None
        log, lsn = connection.held[-1][:2]
        if self._awaited and self._awaited[-1][0] is log:
            self._awaited[-1] = log, max(lsn, self._awaited[-1][1])
        else:
            self._awaited.append((log, lsn))

    def _subscribe(self) -> None:
        level = self._core.policy_level()
        awaited, self._awaited = self._awaited, []
        for log, lsn in awaited:
            log.subscribe(lsn, level, self._synced)

    def _synced(self, error: LogPoisoned | None) -> None:
        """From the log's own thread, or this one."""
        try:
            self._loop.call_soon_threadsafe(self._release, error)
        except RuntimeError:
            pass  # the loop is closed, and so are its sockets

    def _release(self, error: LogPoisoned | None) -> None:
        if self._relief is not None:
            self._relief.cancel()
            self._relief = None
        for connection in list(self._parked):
            if connection.release(error):
                self._parked.pop(connection, None)
        if self._parked and self._core.relief is not None and self._relief is None:
            self._relief = self._loop.call_later(RELIEF_S, self._release, None)
