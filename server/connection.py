"""Connection: a socket, and the session behind it. Bytes in, commands to the session, replies out.

Replies are gathered until the turn of the loop ends (`finish_turn`), then written at once, if what they rest on holds
by then; otherwise they wait, in order, until the log has reached it (`release`).

A client that sends faster than its session can take, or reads slower than it asks, is not read from for as long as that
lasts: what is kept for it stays bounded. One that is sent messages it did not ask for one by one, a subscriber, has
no such brake, and is closed when it is too far behind.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from functools import partial
from itertools import islice, takewhile
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import Log
from tidelog.server import errors
from tidelog.server.requests import ProtocolError, Requests
from tidelog.server.session import XADD, Session, is_plain_add
from tidelog.store import batch
from tidelog.store.promise import Promise, unheld

if TYPE_CHECKING:
    from tidelog.server.server import Server

WAITING_BYTES_MAX: Final = 1 << 20  # of commands, or of replies that wait for the disk
UNREAD_BYTES_MAX: Final = 64 << 10  # of replies not taken: none of its commands is begun
TURN_BYTES_MAX: Final = 256 << 10  # of replies made in one turn, which are then written first
LATE_BYTES_MAX: Final = 128 << 10  # that are not taken apart yet: no more are read
PIECE_BYTES: Final = 16 << 10  # of what is late, taken apart at a time
LONG: Final = 128  # commands sent together: others go first
LOOK: Final = 16  # commands between two looks at the clock
COMMAND_BYTES: Final = 200  # what a command that waits takes besides its arguments, about
RUN: Final = 64  # commands that waited, and XADDs among others, are taken up so many at a time

# What has to hold, and the replies that rest on it: log, LSN, whether any of them wrote, bytes, number of replies.
Held = tuple[Log, int, bool, bytes, int]


class Connection(asyncio.Protocol):
    """One client's connection.

    queue     commands that wait for the session to be free
    out       replies of this turn, and behind each its promise: what it rests on, or None. All promises are of `log`
    rests     what the next reply, and all after it, rest on besides, or None
    held      replies of turns before that wait for the disk
    slow_since    when it was seen to leave more unread than its soft limit
    adding    it has sent XADDs that run at the end of this turn
    late      what came while others had used up the turn (`Turns.later`), not taken apart yet
    greedy    it sent more at once than its share, or what it sent took longer than a turn: others go first
    """

    def __init__(self, server: Server, kind: str) -> None:
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
        self.out: list[Any] = []  # bytes, Promise | None, bytes, Promise | None, ...
        self.out_bytes = 0
        self.rests: Promise | None = None
        self.log: Log = server.core.log
        self.held: deque[Held] = deque()
        self.held_bytes = 0
        self.adding = False
        self.closing = False
        self.slow_since: float | None = None
        self._readable = self._writable = True
        self._failure: bytes | None = None
        self.transport: asyncio.Transport
        # What comes goes straight there, without a call in between.
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
        """Run the commands that these bytes complete. XADDs whose IDs are the server's to make are returned instead, if
        there is nothing else: those of all connections run together.
        """
        if self.closing or self._failure is not None:
            return []
        session = self.session
        session.last_active = self.server.clock
        if self.adding:  # what came first goes first
            self.server.turns.run_adds()
        try:
            commands = self.requests.feed(data)
        except ProtocolError as error:
            self._failure = error.line
            commands = error.commands
        self.greedy = len(commands) > LONG
        if session.busy or self.queue:
            self._put_by(commands)
        elif (
            not self.server.core.waiting.keys  # each may wake somebody, so that together is not faster
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
        """Whether nothing stands between the next XADD and the store, and nothing waits to be run before it.

        One more reply may always be made: who does not take them is not read from.
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
        """Whether commands wait for their turn."""
        return bool(self.queue or self.late)

    def put_off(self, data: bytes) -> None:
        """Keep bytes for a later turn: this one has taken long enough."""
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
        """Keep commands until the session is free for them."""
        self.queue.extend(commands)
        self.queue_bytes += sum([COMMAND_BYTES + sum(map(len, args)) for args in commands])

    def take_back(self, args: list[bytes]) -> None:
        """A command that was begun and held back is the first of those that wait."""
        self.queue.appendleft(args)
        self.queue_bytes += COMMAND_BYTES + sum(map(len, args))

    def run(self, commands: list[list[bytes]]) -> None:
        """Give the session one command after the other, until it is busy; XADDs in a row together."""
        session = self.session
        waiting = self.server.core.waiting
        room = TURN_BYTES_MAX  # see `full`
        if self.held_bytes > WAITING_BYTES_MAX or not self._writable:
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
                some = commands[at : at + RUN]  # not all: most may be something else
                # Each may wake somebody, unless it is known beforehand whom (store/waits.py).
                many = len(some) >= batch.FEW and is_plain_add(args)
                known = many and (session.db, args[1]) in waiting.groups
                if waiting.keys and not known:
                    ran = session.add_each(some)
                else:
                    ran = session.add_many([*takewhile(is_plain_add, some)])
                if ran:
                    deque(islice(numbered, ran - 1), 0)  # pass over them
                    continue
            session.execute(args)

    @property
    def full(self) -> bool:
        """The client has not read its replies, or they wait to be written: start no further command."""
        return (
            self.out_bytes > TURN_BYTES_MAX
            or self.held_bytes > WAITING_BYTES_MAX
            or not self._writable
        )

    def _after(self) -> None:
        """Something is left over: see whether to go on reading, and tell the client what it sent wrong, in its turn."""
        while self.requests.held_back and not (self.waiting or self.session.busy or self.closing):
            # What may be too large for one who has not said yet who it is.
            try:
                commands = self.requests.feed(b"")
            except ProtocolError as error:
                self._failure = error.line
                commands = error.commands
            self.run(commands)
        if self._failure == b"" and self.session.waits:
            self.kill()  # its end would not be noticed any more
            return
        if self._failure is not None and not (self.waiting or self.session.busy or self.closing):
            if self._failure:
                self.send(b"-%b\r\n" % self._failure)
            self.close_soon()
        self._brake()

    def _brake(self) -> None:
        """Read on, or not."""
        kept = max(self.held_bytes, self.queue_bytes)
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
        """The session is free for its next command, or it is this client's turn again."""
        if self.waiting and not (self.session.busy or self.closing or self.full):
            if self.adding:  # what came first goes first
                self.server.turns.run_adds()
            if not self.queue:
                self._take_late()
            else:
                # Some at a time: each that makes it busy would have the rest put by again.
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
        """Take apart what came first of all that is late, and run it."""
        data = self.late.popleft()
        self.late_bytes -= len(data)
        try:
            commands = self.requests.feed(data)
        except ProtocolError as error:
            self._failure = error.line
            commands = error.commands
            self.late.clear()  # nothing more can be made of its bytes
            self.late_bytes = 0
        self.greedy = self.greedy and bool(self.late) or len(commands) > LONG
        if (
            len(commands) > 1
            and self.session.plain
            and not self.server.core.waiting.keys
            and all(map(is_plain_add, commands))
        ):
            self.session.add_many(commands)
        else:
            self.run(commands)

    def _run_late(self) -> None:
        """The client is leaving: run what came before that, as far as it can be run at once."""
        while self.late and not (self.session.busy or self.closing or self.full):
            self.resume()

    def pause_writing(self) -> None:
        self._writable = False
        self._brake()

    def resume_writing(self) -> None:
        self._writable = True
        self.resume()

    def eof_received(self) -> bool:
        """The client sends no more, but may want the replies to what it sent: as Redis, unless it is blocked."""
        self.server.turns.run_all()
        self._run_late()
        if self.session.busy and (self.out or self.held) and self.kind != "tls":
            self.session.end()  # it waits for nothing any more, but is owed the replies before that
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
        self.held.clear()
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
        if replies > 1:  # each has its place, so that they can be counted
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
        if self.rests is not None:  # of a reply that is not told (CLIENT REPLY), or of one more
            lsn, wrote = max(lsn, self.rests[1]), wrote or self.rests[2]
        self.rests = log, lsn, wrote

    def _begin_anew(self, log: Log) -> None:
        """What comes rests on another log: that of a store whose memory was rebuilt."""
        if self.out:
            self._seal()
            self.server.turns.await_(self)
        self.rests = None
        self.log = log

    def hold(self, promise: Promise, data: bytes, replies: int) -> None:
        """Replies that wait for the log, behind those that do already."""
        self.held.append((*promise, data, replies))
        self.held_bytes += len(data)
        if self.held_bytes > WAITING_BYTES_MAX:
            self._brake()

    def _promise(self) -> Promise:
        """What the replies of this turn rest on, all together."""
        promises = [promise for promise in (self.rests, *self.out[1::2]) if promise is not None]
        lsn = max((promise[1] for promise in promises), default=0)
        return self.log, lsn, any(promise[2] for promise in promises)

    def _seal(self) -> None:
        """What was sent so far rests on what it rests on; what comes is another group."""
        self.hold(self._promise(), b"".join(self.out[::2]), len(self.out) >> 1)
        self._sent()

    def _sent(self) -> None:
        self.out.clear()
        self.out_bytes = 0
        self.rests = None

    def wait_for_log(self) -> None:
        """The replies of this turn may not leave yet, or not before others."""
        self._seal()
        self.server.turns.await_(self)
        self._brake()

    def holds(self, log: Log, through: int) -> bool:
        """Whether the replies of this turn rest on no more than that; those that rest on nothing do."""
        own, lsn, _ = self._promise()
        return lsn <= through and (own is log or not lsn)

    def release(self, written: Log, through: int, error: LogPoisoned | None = None) -> bool:
        """Write what may leave by now: what rests on `written` up to `through` does. `error`: what is said of a log
        that failed; it need not be the one that a reply rests on. Whether nothing is left.
        """
        core = self.server.core
        pieces = []
        while self.held:
            log, lsn, wrote, data, replies = self.held[0]
            if log is written and lsn <= through:  # one look at the log for all connections
                pieces.append(data)
            elif core.durability.holds((log, lsn, wrote)):
                pieces.append(data)
            elif log.failure is not None:
                told = b"-%b\r\n" % errors.line(
                    unheld(error or LogPoisoned(str(log.failure)), wrote)
                )
                pieces.append(told * replies)
                self.close_soon()
            else:
                break
            self.held.popleft()
            self.held_bytes -= len(data)
        if pieces:
            self.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if not self.held:
            if not self.closing:
                if self.left_over or not self._readable:
                    self.resume()
            elif not self.out:
                self.transport.close()
        return not self.held

    def write(self, data: bytes) -> None:
        """Write what may leave, after all that was written before."""
        self.server.stats.net_output_bytes += len(data)
        transport = self.transport
        if transport.is_closing():
            return
        transport.write(data)
        if self.closing and not self.held and not self.out:
            transport.close()

    @property
    def unread_bytes(self) -> int:
        """Bytes of replies that the client has not taken."""
        return self.transport.get_write_buffer_size() + self.held_bytes

    def close_soon(self) -> None:
        """See `session.Outlet`."""
        self.closing = True
        if not self.out and not self.held:
            self.transport.close()

    def kill(self) -> None:
        """See `session.Outlet`."""
        self.closing = True
        self.transport.abort()


class _Gone(asyncio.Transport):
    """In place of a transport that was lost: with it go its buffers and the state of TLS. A connection and its session
    refer to each other, and stay until the collector comes by, which `tidelog serve` has it do seldom.
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


def finish_turn(touched: list[Connection], log: Log, through: int, all_hold: bool) -> None:
    """The turn is over: write what these have to send, if it may leave. `through`: the last LSN of `log` on which that
    may rest; `all_hold`: there is no later one.
    """
    sent = 0
    for connection in touched:
        out = connection.out
        if not out:
            continue
        if not connection.held and (
            (all_hold and connection.log is log) or connection.holds(log, through)
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
    """As CLIENT LIST shows it."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "")


def _keep_alive(peer: socket.socket, seconds: int) -> None:
    """Probe a silent peer after so long, and give it up after three probes without an answer (as Redis)."""
    if seconds:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 3, 1))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
