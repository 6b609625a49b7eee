"""Turns: when commands of all connections run, when the log is flushed, and when replies leave.

In each turn of the event loop, the server reads all readable sockets. Then (`_end`) it runs the commands in arrival
order, and after them the XADDs of all clients together; the log buffers their records. Then the log is flushed once, as
one frame. A reply is written at once if its promise is fulfilled by then; otherwise it waits for the next sync, which
releases all waiting replies together. While syncs are quick the loop's thread makes them itself, because two thread
wake-ups cost more (docs/decisions/server.md). Otherwise the log's own thread does, and a sync never blocks the loop.

With the option `replicate-before-reply`, a reply also waits until followers have what it says. Then it is withheld like
one that waits for the disk, acknowledgements release it, and after `replicate-timeout` it becomes an error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from time import perf_counter, perf_counter_ns
from typing import Final

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import Log
from tidelog.engine.api import TABLE
from tidelog.server import errors
from tidelog.server.connection import PIECE_BYTES, Connection, finish_turn
from tidelog.server.host import Host
from tidelog.server.session import Session, Withheld, is_plain_add
from tidelog.server.wire.requests import alike
from tidelog.store.acks import nothing_waits
from tidelog.store.commit.batch import run_pipeline
from tidelog.store.commit.durability import Promise
from tidelog.store.errors import NotReplicated

FEW: Final = 2  # up to this number, XADDs are faster one by one
MANY: Final = 8  # from this many requests on, parsing them together is faster if they are alike
# bytes buffered until the turn's end; when there are more, run the commands at once
ARRIVED_BYTES_MAX: Final = 16 << 20
# A read of up to this size is short. Short reads do not count against ARRIVED_BYTES_MAX, because a client sends at most
# one of them per turn.
SHORT_BYTES_MAX: Final = 4 << 10
# After this time the remaining commands wait for the next turn. Clients that send little go first.
TURN_S: Final = 0.005
ADDS_MAX: Final = 8192  # XADDs that run together; the rest waits
AGAIN_S: Final = 0.001  # least time between two looks for late replies
NEVER: Final = -math.inf
RELIEF_S: Final = 0.01  # pause between two checks whether writers still wait for memory
XADD: Final = TABLE.commands[b"xadd"]

_data_of = itemgetter(1)
_Adds = list[tuple[Connection, list[list[bytes]]]]
_Answers = tuple[Promise, list[tuple[Connection, bytes, int]]]  # connection, bytes, replies

_logger = logging.getLogger("tidelog.server")


class Turns:
    """The turns of one server. Only the loop's thread uses it, except for `woke` and `_synced`.

    flush_sleep    seconds to wait before each flush (DEBUG AOF-FLUSH-SLEEP)
    fulfilled      whether a reply may leave now
    now            the loop's time when this turn ended, while replies wait for followers
    late           replies withheld since then, or longer, and not confirmed by followers, become errors
    """

    def __init__(self, server: Host[Session]) -> None:
        self.flush_sleep = 0.0
        # Replaced while replies wait for followers (`confirm`), so that others ask no extra question.
        self._through: Callable[[Log], int] = server.core.durability.through
        self.fulfilled: Callable[[Promise], bool] = server.core.durability.fulfilled
        self.now, self.late = 0.0, NEVER
        self._wanted = 0  # followers that replies wait for
        self._seconds = 0.0  # for so long at most; 0 = no limit
        self._overdue: asyncio.TimerHandle | None = None
        self._acked = False  # `_confirmed` is scheduled
        self._ends = False  # `_confirm_no_more` is scheduled
        self._server = server
        self._core = server.core
        self._feeding = server.replicating.feeding
        self._loop = server.loop
        self._thread = threading.get_ident()
        self._ending = False  # `_end` is scheduled or running
        self._arrived: list[tuple[Connection, bytes]] = []
        self._arrived_bytes = 0
        self._adds: _Adds = []
        self._mixed = False  # other commands may have run since the XADDs in `_adds` were collected
        self.until = 0.0  # time.perf_counter() at which this turn's time is used up
        self._soon: dict[Connection, None] = {}  # connections to resume next
        self._greedy: dict[Connection, None] = {}  # to resume after those in `_soon`
        self._awake: deque[Session] = deque()
        self._touched: list[Connection] = []
        self._parked: dict[Connection, None] = {}
        self._awaited: list[tuple[Log, int]] = []
        # the log will call `_synced` after its next sync, and `_synced` calls `_release`
        self._subscribed = False
        self._relief: asyncio.TimerHandle | None = None

    @property
    def under_way(self) -> bool:
        """Whether the current turn has not ended."""
        waiting = self._arrived or self._adds or self._awake or self._soon or self._greedy
        return bool(self._ending or waiting or self._touched)

    @property
    def withholding(self) -> bool:
        """Whether replies wait for the log."""
        return bool(self._parked)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._parked.pop(connection, None)
        self._soon.pop(connection, None)
        self._greedy.pop(connection, None)

    def look(self) -> None:
        """Check whether waiting replies may be sent."""
        self._synced(None)

    def touch(self, connection: Connection) -> None:
        """A connection has something to send in this turn. May be called twice."""
        self._touched.append(connection)
        if not self._ending:
            self._schedule()

    def later(self, connection: Connection) -> None:
        """Resume this connection's queued commands in a later round. May be called twice."""
        (self._greedy if connection.greedy else self._soon)[connection] = None
        if not self._ending:
            self._schedule()

    def woke(self, session: Session, thread: int) -> None:
        """A blocked session was served, or has to check its timers. From any thread, perhaps under the store's lock."""
        if thread == self._thread:
            self._awake.append(session)
            if not self._ending:
                self._schedule()
        else:
            try:
                self._loop.call_soon_threadsafe(self.woke, session, self._thread)
            except RuntimeError:
                pass  # the loop is closed; entries delivered to it stay pending, as after a crash

    def _schedule(self) -> None:
        self._ending = True
        self._loop.call_soon(self._end)

    def arrived(self, connection: Connection, data: bytes) -> None:
        """Buffer a client's bytes until all sockets of this turn have been read."""
        if connection.late:
            connection.put_off(data)
            return
        self._arrived.append((connection, data))
        if len(data) > SHORT_BYTES_MAX:
            self._arrived_bytes += len(data)
            if self._arrived_bytes > ARRIVED_BYTES_MAX:
                self._take()
        if not self._ending:
            self._schedule()

    def _take(self) -> None:
        """Run the commands that arrived in this turn, in order. XADDs are only collected."""
        arrived, self._arrived = self._arrived, []
        if self._arrived_bytes and len(arrived) > 1:
            # Short requests are parsed quickly, so they go first. The requests of each client stay in order.
            long = {of for of, data in arrived if of.greedy or len(data) > SHORT_BYTES_MAX}
            arrived.sort(key=lambda each: each[0] in long)
        self._server.stats.net_input_bytes += sum(map(len, map(_data_of, arrived)))
        self._arrived_bytes = 0
        if len(arrived) >= MANY and self._take_alike(arrived):
            return
        now = perf_counter()
        until = self.until = now + TURN_S
        adds = 0
        for connection, data in arrived:
            if (
                connection.late
                or connection.greedy
                or len(data) > PIECE_BYTES
                or adds > ADDS_MAX
                or now > until
            ):
                connection.put_off(data)
                continue
            try:
                commands = connection.take(data)
            except Exception:  # a bug of ours must not affect other clients
                self._broke(connection)
                commands = []
            began, now = now, perf_counter()
            if commands:
                self._adds.append((connection, commands))
                adds += len(commands)
                # Extend the turn by the time that these XADDs took. ADDS_MAX limits them instead, because they are
                # cheap when they run together.
                until += now - began
            else:
                self._mixed = True
            if now - began > TURN_S:
                connection.greedy = True

    def _take_late(self) -> None:
        """Resume waiting connections, a few commands each, until the turn's time is used up."""
        until = self.until = perf_counter() + TURN_S
        while self._soon or self._greedy:
            waiting = self._soon or self._greedy
            connection = next(iter(waiting))
            del waiting[connection]
            try:
                connection.resume()
            except Exception:
                self._broke(connection)
            if perf_counter() > until:
                break

    def _broke(self, connection: Connection) -> None:
        _logger.exception("closing client %d after an internal error", connection.session.id)
        connection.kill()

    def _take_alike(self, arrived: list[tuple[Connection, bytes]]) -> bool:
        """Parse all requests together if they are one XADD of each client, as with many producers.

        Return whether they were; if not, nothing was done.
        """
        for connection, _ in arrived:
            if not connection.ready:
                return False
        if len(dict(arrived)) != len(arrived):
            return False
        commands = alike([data for _, data in arrived], self._server.limits)
        if commands is None or not is_plain_add(commands[0]):
            return False
        if {(args[0], args[2]) for args in commands} != {(commands[0][0], b"*")}:
            return False
        clock = self._server.clock
        for (connection, _), args in zip(arrived, commands):
            connection.adding = True
            connection.session.last_active = clock
            self._adds.append((connection, [args]))
        return True

    def run_adds(self) -> None:
        """Run the collected XADDs now, before the turn ends."""
        _hand_out(self._run_adds())

    def run_all(self) -> None:
        """Run everything that arrived now, before the turn ends, because a client is leaving."""
        if self._arrived:
            self._take()
        if self._adds:
            self.run_adds()

    def add_many(self, adds: _Adds) -> None:
        """Run XADDs of connections that have selected the same database. Each is its own unit."""
        _hand_out([self._add_many(adds)])

    def _run_adds(self) -> list[_Answers]:
        """Run the collected XADDs. Return the answers of connections that have nothing else to send so far."""
        adds, self._adds = self._adds, []
        # Run XADDs one by one if there are only a few, because that is faster; also if they may wake waiters.
        together = len(adds) > FEW and not self._core.waiting.keys
        if together and not self._mixed and len({add[0].session.db for add in adds}) == 1:
            return [self._add_many(adds)]
        by_db: dict[int, _Adds] = {}
        for add in adds:
            connection, commands = add
            connection.adding = False
            if connection.closing:
                connection.close_soon()
                continue
            session = connection.session
            if together and session.plain:
                by_db.setdefault(session.db, []).append(add)
            else:  # CLIENT PAUSE, for one, may have run meanwhile
                connection.run(commands)
        return [self._add_many(found) for found in by_db.values()]

    def _add_many(self, adds: _Adds) -> _Answers:
        started = perf_counter_ns()
        session = adds[0][0].session
        rows = [(args[1], tuple(args[3:])) for _, commands in adds for args in commands]
        try:
            replies, promise = run_pipeline(self._core, session.db, rows, False)
        except Exception as error:
            replies, promise = (
                [session.refused(XADD, error)] * len(rows),
                (self._core.log, 0, False),
            )
        _, lsn, wrote = promise
        failures = 0
        pieces = []
        for reply in replies:
            if reply.__class__ is bytes:
                pieces.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
            else:
                failures += 1
                line = errors.line(reply)
                self._server.stats.error(line)
                pieces.append(b"-%b\r\n" % line)
        answers = []
        at = 0
        for connection, commands in adds:
            connection.adding = False
            count = len(commands)
            data = pieces[at] if count == 1 else b"".join(pieces[at : at + count])
            if connection.out or connection.withheld:
                connection.rests_on(*promise)
                connection.send(data, count)
            else:
                answers.append((connection, data, count))
            connection.session.last_command = XADD.name
            if wrote:
                connection.session.wrote_lsn = lsn
            at += count
        spent = perf_counter_ns() - started
        self._server.stats.calls(XADD.name, len(rows), spent, failures)
        if spent // len(rows) >= self._server.stats.slow_ns:
            addr = adds[0][0].addr
            self._server.stats.slow(XADD, adds[0][1][0], spent // len(rows), addr, session.name)
        return promise, answers

    def _end(self) -> None:
        self._ending = True  # work that arrives from here on belongs to this turn
        answers: list[_Answers] = []
        pubsub = self._server.pubsub
        try:
            if self._arrived:
                self._take()
            # If a sync is running, keep the XADDs until the replies that wait for it have been sent. Until then more
            # XADDs arrive, and running all of them together costs less.
            if self._subscribed and not self._core.durability.relaxed:
                self._mixed = True
            elif self._adds:
                answers = self._run_adds()
                self._mixed = False
            awake = self._awake
            if awake or pubsub.waiting or self._soon or self._greedy:
                _hand_out(answers)
                answers = []
                self._take_late()
                while awake:
                    awake.popleft().woken()
                pubsub.deliver()
        except Exception:  # a bug of ours; the next turn takes the rest
            _logger.exception("internal error in a turn")
        core = self._core
        log = core.log
        if self._wanted:
            self.now = self._loop.time()
        if log.written_lsn < log.next_lsn - 1 and not (
            self._subscribed and not core.durability.relaxed
        ):
            if self.flush_sleep:
                time.sleep(self.flush_sleep)
            with core.lock:
                try:
                    log.flush()
                except Exception as error:
                    _logger.error("the log could not be written: %s", error)
                    if log.in_doubt:
                        core.doubt()
        self._ending = False
        if self._awake or self._soon or self._greedy:  # left over
            self._schedule()
        touched, self._touched = self._touched, []
        if (
            not core.durability.relaxed
            and log.written_lsn > log.synced_lsn
            and (touched or answers)
        ):
            log.sync_if_quick()
        feeding = self._feeding
        if feeding.asked:
            # Calls of this turn wait for followers, so these get the frames before clients get their replies.
            feeding.pump()
        through = self._through(log)
        all_fulfilled = through >= log.next_lsn - 1  # the answers' records were appended by now
        for promise, told in answers:
            if promise[1] <= through and (promise[0] is log or not promise[1]):
                for connection, data, _ in told:
                    connection.write(data)
            else:
                self._await(promise)
                for connection, data, count in told:
                    connection.withhold(promise, data, count)
                    self._parked[connection] = None
        finish_turn(touched, log, through, all_fulfilled)
        if self._wanted and self._parked:
            self._await_followers()
        if feeding.active:
            feeding.turn_ended()
        if self._awaited:
            self._subscribe()

    def await_(self, connection: Connection) -> None:
        """Park a connection until the promise of its last withheld replies is fulfilled."""
        self._parked[connection] = None
        self._await(connection.withheld[-1])

    def _await(self, promise: Promise | Withheld) -> None:
        log, lsn = promise[:2]
        if self._awaited and self._awaited[-1][0] is log:
            self._awaited[-1] = log, max(lsn, self._awaited[-1][1])
        else:
            self._awaited.append((log, lsn))

    def _subscribe(self) -> None:
        durability = self._core.durability
        level = durability.level()
        awaited, self._awaited = self._awaited, []
        if self._wanted:  # some wait only for followers
            awaited = [each for each in awaited if each[1] > durability.through(each[0])]
        self._subscribed = bool(awaited)
        for log, lsn in awaited:
            log.subscribe(lsn, level, self._synced)

    def _synced(self, error: LogPoisoned | None) -> None:
        """A sync ended. Called from the log's own thread or the loop's."""
        try:
            self._loop.call_soon_threadsafe(self._release, error)
        except RuntimeError:
            pass  # the loop and its sockets are closed

    def _release(self, error: LogPoisoned | None) -> None:
        if self._relief is not None:
            self._relief.cancel()
            self._relief = None
        self._subscribed = False
        parked = list(self._parked)
        if self._adds and not self._ending:
            self._end()  # first, to keep the disk busy meanwhile
        log = self._core.log
        through = self._through(log)
        for connection in parked:
            if connection.release(log, through, error):
                self._parked.pop(connection, None)
        if self._wanted and self._parked:
            self._await_followers()
        if self._parked and self._core.durability.relief is not None and self._relief is None:
            self._relief = self._loop.call_later(RELIEF_S, self._release, None)

    # --- replies that wait for followers

    def confirm(self, wanted: int, seconds: float) -> None:
        """From now on replies wait for `wanted` followers (0: for none), for `seconds` at most (0: without limit)."""
        self._ends = not wanted
        if wanted:
            self._core.acks.moved = self._moved
            self._through, self.fulfilled = self._through_followers, self._fulfilled_with_followers
            self._wanted, self._seconds = wanted, seconds
            self._stop_timer()
            self._moved()
        elif self._wanted:
            self._loop.call_soon(self._confirm_no_more)  # a command of this turn may have called

    def _confirm_no_more(self, ended_at: float | None = None) -> None:
        """Replies withheld since `ended_at`, now by default, or longer become errors. Later ones do not wait any
        more.
        """
        if not self._ends:
            return
        ended_at = self._loop.time() if ended_at is None else ended_at
        self._fail_parked(ended_at)
        if any(connection.withheld[0][-1] <= ended_at for connection in self._parked):
            # The disk does not have them yet, and the error says that it has.
            self._loop.call_later(RELIEF_S, self._confirm_no_more, ended_at)
            return
        durability = self._core.durability
        self._stop_timer()
        self._wanted = 0
        self._core.acks.moved = nothing_waits
        self._through, self.fulfilled = durability.through, durability.fulfilled
        self._release(None)

    def _stop_timer(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _through_followers(self, log: Log) -> int:
        core = self._core
        return min(core.durability.through(log), core.acks.through(log, self._wanted))

    def _fulfilled_with_followers(self, promise: Promise) -> bool:
        core, (log, lsn, _) = self._core, promise
        return core.durability.fulfilled(promise) and (
            not lsn or core.acks.count(log, lsn, False) >= self._wanted
        )

    def _await_followers(self) -> None:
        """Ask followers how far they are, and look at the time when the first reply is late."""
        self._core.acks.ask()
        if self._overdue is None and self._seconds:
            since = min(connection.withheld[0][-1] for connection in self._parked)
            at = max(since + self._seconds, self._loop.time() + AGAIN_S)
            self._overdue = self._loop.call_at(at, self._look_at_late)

    def _look_at_late(self) -> None:
        self._overdue = None
        self._fail_parked(self._loop.time() - self._seconds)

    def _fail_parked(self, late: float) -> None:
        """Replies withheld since `late`, or longer, become errors unless followers have confirmed them."""
        self.late = late
        try:
            self._release(None)
        finally:
            self.late = NEVER

    def _moved(self) -> None:
        """A follower has come further, or the role has changed. From any thread, perhaps with the store's lock."""
        if threading.get_ident() != self._thread:
            try:
                self._loop.call_soon_threadsafe(self._moved)
            except RuntimeError:
                pass  # the loop is closed
        elif not self._acked:
            self._acked = True
            self._loop.call_soon(self._confirmed)

    def _confirmed(self) -> None:
        self._acked = False
        if self._parked:
            self._release(None)

    def unconfirmed(self, log: Log, lsn: int) -> bytes:
        """The error line of a reply that followers have not confirmed in time."""
        found = self._core.acks.count(log, lsn, False)
        return errors.line(NotReplicated(found, self._wanted))


def _hand_out(answers: list[_Answers]) -> None:
    """Pass the answers to their connections, which send them with their other replies of this turn."""
    for promise, told in answers:
        for connection, data, count in told:
            connection.rests_on(*promise)
            connection.send(data, count)
