"""Connection: a socket and its session. Bytes in, commands to the session, replies out.

Replies are buffered until the turn of the loop ends (`finish_turn`). They are then written at once if the LSN they
depend on is safe by then; otherwise they wait, in order, until it is (`release`).

The server stops reading from a client that sends faster than its session executes, or that does not read its replies.
This bounds the memory kept for each client. It cannot do that with subscribers, whose messages arrive unrequested;
a subscriber that falls too far behind is disconnected.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice, takewhile
from time import perf_counter
from typing import Any, Final, Protocol, cast

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import Log
from tidelog.server import errors
from tidelog.server.host import Host, SessionTurns
from tidelog.server.session import XADD, Session, Withheld, is_plain_add
from tidelog.server.wire.requests import ProtocolError, Requests
from tidelog.store.commit import batch
from tidelog.store.commit.durability import Promise, unfulfilled

WAITING_BYTES_MAX: Final = 1 << 20  # commands, or replies that wait for the disk
# if a client has this many unread bytes of replies, start no more of its commands
UNREAD_BYTES_MAX: Final = 64 << 10
TURN_BYTES_MAX: Final = 256 << 10  # replies made in one turn: write them first
LATE_BYTES_MAX: Final = 128 << 10  # not parsed yet: stop reading
PIECE_BYTES: Final = 16 << 10  # of late data, parsed at a time
# after this many commands that one client sent together, other clients come first
LONG: Final = 128
LOOK: Final = 16  # commands between two checks of the clock
COMMAND_BYTES: Final = 200  # approximate overhead of a queued command
RUN: Final = 64  # queued commands, and XADDs between other commands, run in groups of this size


class ConnectionTurns(SessionTurns[Session], Protocol):
    """The turns of the loop (turns.py), as far as a connection takes part in them."""

    now: float  # the loop's time when this turn ended, while replies wait for followers
    late: float  # replies withheld since then, or longer, and not confirmed by followers, become errors

    @property
    def until(self) -> float:
        """time.perf_counter() at which this turn's time is used up."""

    @property
    def fulfilled(self) -> Callable[[Promise], bool]:
        """Whether replies may leave now."""

    def unconfirmed(self, log: Log, lsn: int) -> bytes:
        """The error line of a reply that followers have not confirmed in time."""

    def arrived(self, connection: Connection, data: bytes) -> None:
        """Buffer a client's bytes until all sockets of this turn have been read."""

    def touch(self, connection: Connection) -> None:
        """A connection has something to send in this turn. May be called twice."""

    def later(self, connection: Connection) -> None:
        """Resume this connection's queued commands in a later round. May be called twice."""

    def await_(self, connection: Connection) -> None:
        """Park a connection until the promise of its last withheld replies is fulfilled."""

    def add_many(self, adds: list[tuple[Connection, list[list[bytes]]]]) -> None:
        """Run XADDs of connections that have selected the same database. Each is its own unit."""

    def run_adds(self) -> None:
        """Run the collected XADDs now, before the turn ends."""

    def run_all(self) -> None:
        """Run everything that arrived now, before the turn ends, because a client is leaving."""


class ConnectionHost(Host[Session], Protocol):
    """A server as its connections see it."""

    @property
    def turns(self) -> ConnectionTurns: ...

    def next_id(self) -> int:
        """Return the ID for a new session."""

    def admit(self, connection: Connection) -> bytes | None:
        """Register a new connection. Return None, or the error line if it is refused."""

    def left(self, connection: Connection) -> None:
        """A connection is gone."""


class Connection(asyncio.Protocol):
    """One client's connection.

    queue     parsed commands that wait until the session is free
    out       replies of this turn, each followed by its promise or None. All promises are of `log`
    rests     an additional promise for the next reply and all after it, or None
    withheld  replies of earlier turns that wait for the disk
    slow_since    when the unread replies first exceeded the client's soft limit, or None
    adding    the client has sent XADDs that run at the end of this turn
    late      unparsed bytes that arrived after the turn's time was used up (`Turns.later`)
    operates  the client may get a seat beyond maxclients (reserve.py)
    greedy    the client sent more at once than its share, or its commands took longer than a turn: others go first
    """

    operates = True

    def __init__(self, server: ConnectionHost, kind: str) -> None:
        self.server = server
        self.kind = kind  # tcp, tls, unix
        self.addr = self.laddr = ""
        self.fd = -1
        self.created = server.loop.time()
        self.requests = Requests(server.limits)
        self.queue: deque[list[bytes]] = deque()
        self.queue_bytes = 0
        self.late: deque[bytes] = deque()
        self.late_bytes = 0
        self.greedy = False
        # replies and their promises: bytes, Promise | None, bytes, Promise | None, ...
        self.out: list[Any] = []
        self.out_bytes = 0
        self.rests: Promise | None = None
        self.log: Log = server.core.log
        self.withheld: deque[Withheld] = deque()
        self.withheld_bytes = 0
        self.adding = False
        self.closing = False
        self.slow_since: float | None = None
        self._readable = self._writable = True
        self._failure: bytes | None = None
        self.transport: asyncio.Transport
        # Let the transport call `Turns.arrived` directly, which saves one call per read.
        self.data_received = partial(server.turns.arrived, self)  # type: ignore[method-assign]

    # --- the life of a socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        peer = transport.get_extra_info("socket")
        if peer is not None:
            self.fd = peer.fileno()
        if self.kind == "unix":
            self.addr = self.laddr = f"{self.server.config['unixsocket']}:0"
        else:
            self.addr = address_name(transport.get_extra_info("peername"))
            self.laddr = address_name(transport.get_extra_info("sockname"))
            if peer is not None:
                _keep_alive(peer, self.server.config["tcp-keepalive"])
        self.session = Session(self.server, self.server.next_id(), self)
        refusal = self.server.admit(self)
        if refusal is not None:
            self.send(b"-%b\r\n" % refusal)
            self.close_soon()

    def take(self, data: bytes) -> list[list[bytes]]:
        """Run the commands that these bytes complete.

        If all of them are XADDs with server-made IDs, return them instead: the XADDs of all connections run together.
        """
        if self.closing or self._failure is not None:
            return []
        session = self.session
        session.last_active = self.server.clock
        if self.adding:  # keep the order
            self.server.turns.run_adds()
        try:
            commands = self.requests.feed(data)
        except ProtocolError as error:
            self._failure = error.line
            commands = error.commands
        if self.requests.marked and not session.guarded:
            session.guard()
        self.greedy = len(commands) > LONG
        if session.busy or self.queue:
            self._put_by(commands)
        elif (
            not self.server.core.waiting.keys  # a waiter may wake: no faster together
            and session.plain
            and commands
            and commands[0][0] in XADD
            and self._failure is None
            and all(map(is_plain_add, commands))
            and not self.full
        ):
            self.adding = True
            return commands
        else:
            self.run(commands)
        if self.queue or self._failure is not None or self.requests.held_back:
            self._after()
        return []

    @property
    def ready(self) -> bool:
        """Whether the next XADD can go straight to the store, with nothing queued before it.

        This does not test `full`: one more reply is harmless, since a client that does not read is not read from.
        """
        session = self.session
        return not (
            self.adding
            or self.closing
            or self.waiting
            or self.requests.pending
            or self._failure is not None
            or session.busy
            or not session.plain
        )

    @property
    def waiting(self) -> bool:
        """Whether the client has queued commands or unparsed bytes."""
        return bool(self.queue or self.late)

    def put_off(self, data: bytes) -> None:
        """Keep bytes for a later turn, because this one has used up its time."""
        if self.closing or self._failure is not None:
            return  # as `take`: nothing is read behind what is no protocol
        self.late_bytes += len(data)
        if len(data) > PIECE_BYTES:
            self.greedy = True
            self.late += [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
        else:
            self.late.append(data)
        self.server.turns.later(self)
        if self.late_bytes > LATE_BYTES_MAX:
            self._brake()

    def _put_by(self, commands: list[list[bytes]]) -> None:
        """Queue commands until the session is free."""
        self.queue.extend(commands)
        self.queue_bytes += sum([COMMAND_BYTES + sum(map(len, args)) for args in commands])

    def take_back(self, args: list[bytes]) -> None:
        """Put a command that was delayed back at the front of the queue."""
        self.queue.appendleft(args)
        self.queue_bytes += COMMAND_BYTES + sum(map(len, args))

    def run(self, commands: list[list[bytes]]) -> None:
        """Give the session one command after the other until it is busy. Consecutive XADDs run together."""
        session = self.session
        waiting = self.server.core.waiting
        room = TURN_BYTES_MAX  # see `full`
        if self.withheld_bytes > WAITING_BYTES_MAX or not self._writable:
            room = -1
        turns = self.server.turns
        look = LOOK
        numbered = enumerate(commands)
        for at, args in numbered:
            if session.busy or self.closing or self.out_bytes > room:
                self._put_by(commands[at:])
                break
            if at >= look:
                look = at + LOOK
                if perf_counter() > turns.until:
                    self._put_by(commands[at:])
                    self.greedy = True
                    turns.later(self)
                    break
            if args[0] in XADD and at + 1 < len(commands) and session.plain:
                some = commands[at : at + RUN]  # not all: most may be other commands
                # If each XADD may wake a waiter, run them one by one. Exception: it is known in advance which waiters
                # get the entries (store/commit/blocked.py).
                many = len(some) >= batch.FEW and is_plain_add(args)
                known = many and (session.db, args[1]) in waiting.groups
                if waiting.keys and not known:
                    ran = session.add_each(some)
                else:
                    ran = self._add_many([*takewhile(is_plain_add, some)])
                if ran:
                    deque(islice(numbered, ran - 1), 0)  # skip the commands that ran
                    continue
            session.execute(args)

    def _add_many(self, commands: list[list[bytes]]) -> int:
        """Run XADDs with server-made IDs (`is_plain_add`) of a `plain` session, each as its own unit.

        Return how many ran: all of them, or 0 if there are fewer than two.
        """
        if len(commands) < 2:
            return 0
        self.server.turns.add_many([(self, commands)])
        return len(commands)

    @property
    def full(self) -> bool:
        """The client has not read its replies, or they wait to be written: start no further command."""
        return (
            self.out_bytes > TURN_BYTES_MAX
            or self.withheld_bytes > WAITING_BYTES_MAX
            or not self._writable
        )

    def _after(self) -> None:
        """Handle leftovers: run held-back commands, report a protocol error in its place, adjust reading."""
        while self.requests.held_back and not (self.waiting or self.session.busy or self.closing):
            # `feed` returns a command that the parser held back. It raises if this command is too large for a client
            # that has not authenticated.
            try:
                commands = self.requests.feed(b"")
            except ProtocolError as error:
                self._failure = error.line
                commands = error.commands
            self.run(commands)
        if self._failure == b"" and self.session.waits:
            self.kill()  # its disconnect would go unnoticed
            return
        if self._failure is not None and not (self.waiting or self.session.busy or self.closing):
            if self._failure and self.session.reply_mode == "on":
                self.send(b"-%b\r\n" % self._failure)
            self.close_soon()
        self._brake()

    def _brake(self) -> None:
        """Pause or resume reading, depending on how much is buffered."""
        kept = max(self.withheld_bytes, self.queue_bytes)
        wanted = self._writable and kept <= WAITING_BYTES_MAX
        if self.late_bytes > LATE_BYTES_MAX:
            wanted = False
        if wanted != self._readable and not self.transport.is_closing():
            self._readable = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    @property
    def left_over(self) -> bool:
        """See `session.Outlet`."""
        return bool(self.waiting or self._failure is not None or self.requests.held_back)

    def resume(self) -> None:
        """Run queued commands: the session is free again, or it is this client's turn again."""
        if self.waiting and not (self.session.busy or self.closing or self.full):
            if self.adding:  # keep the order
                self.server.turns.run_adds()
            if not self.queue:
                self._take_late()
            else:
                # Take only a few commands at a time, because a command that makes the session busy puts all later ones
                # back into the queue.
                commands: list[list[bytes]] = []
                while self.queue and len(commands) < RUN:
                    args = self.queue.popleft()
                    self.queue_bytes -= COMMAND_BYTES + sum(map(len, args))
                    commands.append(args)
                rest, self.queue = self.queue, deque()
                rest_bytes, self.queue_bytes = self.queue_bytes, 0
                self.run(commands)
                self.queue.extend(rest)
                self.queue_bytes += rest_bytes
            if self.waiting and not (self.session.busy or self.closing or self.full):
                self.server.turns.later(self)
        self._after()

    def _take_late(self) -> None:
        """Parse and run the oldest late bytes."""
        data = self.late.popleft()
        self.late_bytes -= len(data)
        try:
            commands = self.requests.feed(data)
        except ProtocolError as error:
            self._failure = error.line
            commands = error.commands
            self.late.clear()  # the rest cannot be parsed
            self.late_bytes = 0
        if self.requests.marked and not self.session.guarded:
            self.session.guard()
        self.greedy = self.greedy and bool(self.late) or len(commands) > LONG
        if (
            len(commands) > 1
            and self.session.plain
            and not self.server.core.waiting.keys
            and all(map(is_plain_add, commands))
        ):
            self._add_many(commands)
        else:
            self.run(commands)

    def _run_late(self) -> None:
        """The client is leaving: run the late commands that can run at once."""
        while self.late and not (self.session.busy or self.closing or self.full):
            self.resume()

    def pause_writing(self) -> None:
        self._writable = False
        self._brake()

    def resume_writing(self) -> None:
        self._writable = True
        self.resume()

    def eof_received(self) -> bool:
        """The client sends no more, but may still read replies. Answer what it sent unless it is blocked (as Redis)."""
        self.server.turns.run_all()
        self._run_late()
        if self.session.busy and (self.out or self.withheld) and self.kind != "tls":
            self.session.end()  # end the blocked call, but still send the replies before it
            self.closing = True
            return True
        if self.session.busy or self.kind == "tls":
            return False
        if self._failure is None:
            self._failure = b""
        self._after()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.server.turns.run_all()
        self._run_late()
        self.closing = True
        self.withheld.clear()
        self.queue.clear()
        self.late.clear()
        self._sent()
        self.session.end()
        self.server.left(self)
        self.transport = _GONE

    # --- replies

    def answer(self, data: bytes, promise: Promise) -> None:
        """See `session.Outlet`."""
        if promise[0] is not self.log:
            self._begin_anew(promise[0])
        out = self.out
        if not out:
            self.server.turns.touch(self)
        out += data, promise
        self.out_bytes += len(data)

    def send(self, data: bytes, replies: int = 1) -> None:
        """See `session.Outlet`."""
        if not self.out:
            self.server.turns.touch(self)
        self.out += data, None
        if replies > 1:  # use one slot per reply, so that replies can be counted
            self.out += (b"", None) * (replies - 1)
        self.out_bytes += len(data)

    def expect(self, args: list[bytes]) -> None:
        """See `session.Outlet`."""
        self.requests.expect(args)

    def restrict(self, restricted: bool) -> None:
        """See `session.Outlet`."""
        self.requests.restrict(restricted)

    def rests_on(self, log: Log, lsn: int, wrote: bool) -> None:
        """See `session.Outlet`."""
        if log is not self.log:
            self._begin_anew(log)
        # The reply may already rest on an earlier promise: of an earlier call, or of a reply that CLIENT REPLY
        # suppressed. Keep that promise too.
        if self.rests is not None:
            lsn, wrote = max(lsn, self.rests[1]), wrote or self.rests[2]
        self.rests = log, lsn, wrote

    def _begin_anew(self, log: Log) -> None:
        """The next promises are of another log: the store rebuilt its memory and opened a new one."""
        if self.out:
            self._seal()
            self.server.turns.await_(self)
        self.rests = None
        session = self.session
        session.seen.begin_anew(self.log, session.wrote_lsn)
        self.log = log

    def withhold(self, promise: Promise, data: bytes, replies: int) -> None:
        """Append replies to those that wait for the log."""
        self.withheld.append((*promise, data, replies, self.server.turns.now))
        self.withheld_bytes += len(data)
        if self.withheld_bytes > WAITING_BYTES_MAX:
            self._brake()

    def _promise(self) -> Promise:
        """One promise that covers all replies of this turn."""
        promises = [promise for promise in (self.rests, *self.out[1::2]) if promise is not None]
        lsn = max((promise[1] for promise in promises), default=0)
        return self.log, lsn, any(promise[2] for promise in promises)

    def _seal(self) -> None:
        """Move this turn's replies to `withheld` as one group with one promise."""
        self.withhold(self._promise(), b"".join(self.out[::2]), len(self.out) >> 1)
        self._sent()

    def _sent(self) -> None:
        self.out.clear()
        self.out_bytes = 0
        self.rests = None

    def wait_for_log(self) -> None:
        """Withhold the replies of this turn: their promise is not fulfilled yet, or earlier replies wait."""
        self._seal()
        self.server.turns.await_(self)
        self._brake()

    def fulfilled(self, log: Log, through: int) -> bool:
        """Whether the promises of this turn's replies are fulfilled once `log` is safe through this LSN.

        Replies without a promise may always leave.
        """
        own, lsn, _ = self._promise()
        return lsn <= through and (own is log or not lsn)

    def release(self, written: Log, through: int, error: LogPoisoned | None = None) -> bool:
        """Write the withheld replies whose promise is fulfilled: up to LSN `through` of log `written`, or by their own
        check.

        A reply whose log failed or was retired is replaced by an error and the connection closes. `error` gives the
        reason; it need not be about the log that the reply depends on. A reply that followers have not confirmed in
        time is replaced by an error, too. Return whether nothing is withheld any more.
        """
        turns = self.server.turns
        pieces = []
        while self.withheld:
            log, lsn, wrote, data, replies, since = self.withheld[0]
            if log is written and lsn <= through:  # checked once for all connections
                pieces.append(data)
            elif turns.fulfilled((log, lsn, wrote)):
                pieces.append(data)
            elif since <= turns.late and self.server.core.durability.fulfilled((log, lsn, wrote)):
                pieces.append(b"-%b\r\n" % turns.unconfirmed(log, lsn) * replies)
                if self.session.subscribed or self.session.monitor:
                    self.close_soon()  # some of the replies were messages
            elif log.ending is not None:
                told = b"-%b\r\n" % errors.line(
                    unfulfilled(error or LogPoisoned(str(log.ending)), wrote)
                )
                pieces.append(told * replies)
                self.close_soon()
            else:
                break
            self.withheld.popleft()
            self.withheld_bytes -= len(data)
        if pieces:
            self.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if not self.withheld:
            if not self.closing:
                if self.left_over or not self._readable:
                    self.resume()
            elif not self.out:
                self.transport.close()
        return not self.withheld

    def write(self, data: bytes) -> None:
        """Write to the socket, behind everything already written."""
        self.server.stats.net_output_bytes += len(data)
        transport = self.transport
        if transport.is_closing():
            return
        transport.write(data)
        if self.closing and not self.withheld and not self.out:
            transport.close()

    @property
    def unread_bytes(self) -> int:
        """Bytes of replies that the client has not read."""
        return self.transport.get_write_buffer_size() + self.withheld_bytes

    def close_soon(self) -> None:
        """See `session.Outlet`."""
        self.closing = True
        if not self.out and not self.withheld:
            self.transport.close()

    def kill(self) -> None:
        """See `session.Outlet`."""
        self.closing = True
        self.transport.abort()


class _Gone(asyncio.Transport):
    """Replaces a lost transport, so that its buffers and TLS state are freed at once.

    A connection and its session refer to each other, so only the garbage collector frees them, and `tidelog serve`
    runs it seldom.
    """

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


_GONE: Final = _Gone()


def finish_turn(touched: list[Connection], log: Log, through: int, all_fulfilled: bool) -> None:
    """The turn is over: write the replies of these connections, or withhold them.

    through        replies may leave if they depend on no later LSN of `log`
    all_fulfilled  no later LSN was assigned, so every promise of `log` is fulfilled
    """
    sent = 0
    for connection in touched:
        out = connection.out
        if not out:
            continue
        if not connection.withheld and (
            (all_fulfilled and connection.log is log) or connection.fulfilled(log, through)
        ):
            data = out[0] if len(out) == 2 else b"".join(out[::2])
            connection.out = []  # as `_sent`, without a call
            connection.out_bytes = 0
            connection.rests = None
            if connection.closing:
                connection.write(data)
            elif not connection.transport.is_closing():  # as `write`, without a call
                sent += len(data)
                connection.transport.write(data)
        else:
            connection.wait_for_log()
        if connection.queue and not (connection.session.busy or connection.full):
            connection.server.turns.later(connection)
    if touched:
        touched[0].server.stats.net_output_bytes += sent


def address_name(address: object) -> str:
    """Format an address as CLIENT LIST shows it."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "")


def _keep_alive(peer: socket.socket, seconds: int) -> None:
    """Probe an idle peer after `seconds`, and drop it after three unanswered probes (as Redis)."""
    if seconds:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 3, 1))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
