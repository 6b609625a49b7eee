"""Session: one client's state and command execution, from its first command to its disconnect.

Nothing here reads or writes a socket: commands come in through `execute`, replies go to the session's outlet, in order.
All of it runs in the event loop's thread.

    execute(args)        run one command; afterwards `busy` tells whether it is still running
    busy                 a read or a call is blocked, or a handler is awaited: the next command has to wait
    resume               the session calls this on its outlet when it stops being busy; the outlet then goes on

A command takes one of three paths. XADD with a server-made ID, by far the most frequent, goes to `Core.add`. The
engine's commands go to `Core.command`. Commands that need a connection go to their handler in server/commands/. The log
buffers the records of all commands. The server flushes it once per turn of the loop, and a reply is sent when the LSN
it depends on has reached the fsync policy's level.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections import deque
from collections.abc import Coroutine
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Final, Protocol

from tidelog.aof.log import Log
from tidelog.api.face import nothing
from tidelog.engine.api import TABLE as ENGINE
from tidelog.engine.api import Command, Context, Transaction, Waiter, discarded
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.reply import NULL_ARRAY, QUEUED, Reply, Status, Streams
from tidelog.server import errors, lists, reserved, scripts
from tidelog.server.acl.users import User, no_permission
from tidelog.server.blocked import NOT_YET, BlockedCall
from tidelog.server.host import Host
from tidelog.server.jobs import LentJobs
from tidelog.server.seen import Seen
from tidelog.server.table import SCRIPTS, Way, may_write
from tidelog.server.wire.render import rendered
from tidelog.server.wire.replies import NO_REPLY, Push
from tidelog.server.wire.requests import Requests
from tidelog.store.commit.batch import run_exec
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.core import Answer
from tidelog.store.commit.durability import Promise
from tidelog.store.commit.following import UNBLOCKED
from tidelog.store.commit.reads import first_write
from tidelog.store.errors import StoreDamaged, TidelogError

_logger = logging.getLogger("tidelog.server")
_XADD = ENGINE.commands[b"xadd"]
_XREADGROUP = ENGINE.commands[b"xreadgroup"]  # the only command whose waiter has a `reader`
_PLAIN_REPLIES: Final = frozenset((bytes, int, Status))  # neither a coroutine nor a blocked call
_NO_WAY: Way[Session] = _XADD, 1, 0, None  # no number of arguments is right
# The commands that a RESP2 session may call while it is subscribed.
_SUBSCRIBED = frozenset(
    b"subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe ping quit reset".split()
)
# The first words of requests that a web page can make a browser send. If such a request were not refused, each line of
# its body would run as a command.
_HTTP = frozenset((b"post", b"host:"))
NO_TIMER = math.inf
_UNQUEUED = frozenset(b"multi exec discard watch quit reset".split())


XADD: Final = frozenset((b"XADD", b"xadd"))


def changes(command: Command) -> bool:
    """Whether CLIENT PAUSE WRITE delays the command: it writes, is a script, or publishes."""
    return may_write(command) or command.name in (b"publish", b"spublish")


def is_plain_add(args: list[bytes]) -> bool:
    """XADD key * field value ..., without options."""
    return len(args) > 4 and args[0] in XADD and args[2] == b"*" and len(args) & 1 == 1


# Replies, and the promise on which they depend: log, LSN, whether any of them wrote, bytes, number of replies,
# `Turns.now`.
Withheld = tuple[Log, int, bool, bytes, int, float]


class Outlet(Protocol):
    """Receives the replies of a session: its connection."""

    kind: str  # tcp, tls, unix
    addr: str
    laddr: str
    fd: int
    log: Log  # of the promises of its present replies
    created: float  # the loop's time
    requests: Requests
    withheld: deque[Withheld]
    out_bytes: int
    closing: bool
    # when the bytes of unread replies first exceeded the client's soft limit
    slow_since: float | None

    @property
    def left_over(self) -> bool:
        """Whether the connection has more commands for the session."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of replies that the client has not read."""

    @property
    def full(self) -> bool:
        """The client has not read its replies, or they wait to be written: start no further command."""

    def answer(self, data: bytes, promise: Promise) -> None:
        """Send one reply once the promise is fulfilled: `rests_on` and `send` in one call."""

    def send(self, data: bytes, replies: int = 1) -> None:
        """Send `data`, which contains `replies` replies, in order."""

    def expect(self, args: list[bytes]) -> None:
        """The client has sent `args` twice. If it sends them again, pass this same list object to `execute`."""

    def restrict(self, restricted: bool) -> None:
        """Set whether the client still has to authenticate; until then only small commands are accepted."""

    def rests_on(self, log: Log, lsn: int, wrote: bool) -> None:
        """Delay the next reply, and all after it, until the log has reached this LSN."""

    def take_back(self, args: list[bytes]) -> None:
        """Put a command that was delayed back at the front of the queue."""

    def resume(self) -> None:
        """The session is no longer busy: send its next commands."""

    def close_soon(self) -> None:
        """Close after everything sent so far has been written."""

    def kill(self) -> None:
        """Close at once. Nothing more is read or sent."""


class Seats(Protocol):
    """The seats beyond maxclients (reserve.py), as their sessions see them."""

    def admits(self, session: Session, command: Command) -> bool:
        """Whether the session may run the command. If not, it was told so, and is being closed."""


class Session:
    """One client. See the module docstring.

    authenticated   False until AUTH if the default user has a password
    reply_mode      "on", "off" or "skip", as set by CLIENT REPLY
    guarded         the client has sent what may be the name of a reserved key: check its commands (reserved.py)
    plain           commands go straight to the store: no password, ACL rule, transaction, subscription or pause, not
                    guarded, and it takes writes.
                    `settle` keeps this up to date so that the hot path tests one flag
    """

    def __init__(self, server: Host[Session], id_: int, connection: Outlet) -> None:
        self.server = server
        self.core = server.core
        self._ways = server.commands.ways
        self.id = id_
        self.connection = connection
        self.db = 0
        self.protocol = 2
        self.name = self.lib_name = self.lib_ver = b""
        self.user: User = server.acl.default
        self.authenticated = self.user.nopass and self.user.enabled
        self.transaction = Transaction(self.core.watches, table=server.commands.table)
        self.last_command = b""
        self.last_active = connection.created
        self.blocked: Waiter | None = None
        self._kept: Waiter | None = None  # the last parked read that has a `reader`
        # Set when the user of a blocked read loses the permission for it: the error that the read gets, and the denied
        # object.
        self._forbidden: tuple[CommandError, tuple[str, bytes]] | None = None
        self.channels: set[bytes] = set()
        self.patterns: set[bytes] = set()
        self.shard_channels: set[bytes] = set()
        self.reply_mode = "on"
        self.no_evict = self.no_touch = self.monitor = False
        self.busy = self.closed = False
        self.killed = False  # its connection is closing, and counts no more
        self.queued_change = False  # the transaction contains a command for which `changes` is true
        self.in_exec = False  # a handler runs as part of EXEC, so it must not block
        self.jobs: LentJobs | None = None  # taken by QUEUE TAKE
        self.process: object = object()  # of the client, as it says with TIDELOG CAPABILITIES
        # a handler within EXEC ended the session, so EXEC's reply is its last one
        self.ending = False
        self.plain = False
        self.guarded = False
        self.reserve: Seats | None = None  # if it is beyond maxclients
        self.follower: object = None  # the link, if the connection is a follower's
        self.wrote_lsn = 0  # LSN of this session's last write, for WAITAOF
        self.seen = Seen(server.core)  # for TIDELOG TOKEN
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NO_TIMER  # on the store's monotonic clock
        self._task: asyncio.Task[Reply] | None = None  # the loop itself does not keep it alive
        self._call: BlockedCall | None = None
        self._command = _XADD  # of the blocked read or `_call`
        self.settle()

    def settle(self) -> None:
        """Recompute `plain` and the connection's limits. Call after a change to anything that `plain` depends on."""
        self.connection.restrict(not self.authenticated)
        self.plain = (
            self.authenticated
            and self.user.superuser
            and not self.guarded
            and self.reserve is None
            and not self.transaction.active
            and not (self.protocol == 2 and (self.channels or self.patterns or self.shard_channels))
            and self.reply_mode == "on"
            and not self.no_touch
            and not self.server.paused
            and not self.server.monitors
            and not self.server.replicating.following
            and not self.server.replicating.lacking
        )

    def sees(self, key: bytes, needed: int = 0) -> bool:
        """Whether the user may see the key in a list. `needed` is as in `User.may`."""
        return lists.ordinary(key) and self.user.may(key, needed)

    def guard(self) -> None:
        """Set `guarded`, which stays."""
        self.guarded = True
        self.settle()

    # --- commands

    def execute(self, args: list[bytes]) -> None:
        """Run one command and send its reply, or become busy."""
        kept = self._kept
        if kept is not None and kept.args is args and self.plain and kept.db == self.db:
            # usually a consumer that repeats its read finds nothing new, and waits again
            if self.core.read_again(kept):
                self._park(kept, _XREADGROUP)
                return
        started = perf_counter_ns()
        command, least, most, handler = self._ways.get(args[0], _NO_WAY)
        if not least <= len(args) <= most:
            try:
                command, handler = self.server.commands.resolve(args)
            except CommandError as error:
                if args[0].lower() in _HTTP:
                    self.server.warn_of_http(self)
                    self.kill()
                    return
                known = self.server.commands.table.spellings.get(args[0])
                if known is not None:  # only the arity is wrong
                    self.server.stats.rejected(known.name)
                self._finish(None, started, self._unresolved(args, error))
                return
        plain = self.plain
        if not plain and self._intercepted(command, args, started):
            return
        data: bytes | None = None
        try:
            if plain and command is _XADD and self.add_each([args]):
                return
            if handler is not None:
                reply = handler(self, args)
                if reply.__class__ not in _PLAIN_REPLIES:
                    if inspect.iscoroutine(reply):
                        self._wait_for(reply, command, args, started)
                        return
                    if isinstance(reply, BlockedCall):
                        self._wait(reply, command)
                        return
            else:
                if plain and command is not _XREADGROUP:
                    reply, promise = self.core.command(self.db, args, self._caller, False)
                else:
                    reply, promise = self._run(args)
                if plain and reply.__class__ is int:
                    data = b":%d\r\n" % reply
                elif plain and reply.__class__ is Streams:
                    data = self._rendered(reply)
                elif reply.__class__ is Waiter:
                    if reply.reader is not None:
                        self._kept = reply
                    self._park(reply, command)
                    return
                else:
                    self.rest_on(promise)
        except Exception as error:
            reply = self.refused(command, error)
        if data is not None:
            self._answer(command, started, data, promise, args)
        else:
            self._finish(command, started, reply, args)

    def _run(self, args: list[bytes]) -> Answer:
        core, before = self.core, self._kept
        if before is not None:
            again = before.args
            if again is not args:
                if again == args:
                    self.connection.expect(again)
                else:
                    before = None
            if before is not None and before.db != self.db:
                before = None
        if not self.no_touch:
            return core.command(self.db, args, self._caller, False, before)
        core.landing.ctx.quiet = True
        try:
            return core.command(self.db, args, self._caller, False, before)
        finally:
            core.landing.ctx.quiet = False

    def _unresolved(self, args: list[bytes], error: CommandError) -> CommandError:
        """Handle an unknown or malformed command: it dooms an open transaction, and a malformed EXEC ends it."""
        try:
            with self.core.lock:  # may remove watches, which other threads read
                self.transaction.submit(self.core.landing.ctx, args)
        except CommandError as told:
            error = told
        self.settle()
        return error

    def _intercepted(self, command: Command, args: list[bytes], started: int) -> bool:
        """Answer, queue or delay the command if it must not reach the store yet. Return whether that happened.

        The order of the checks is Redis's.
        """
        server, name = self.server, command.name
        if not self.authenticated and "no_auth" not in command.flags:
            self._reject(command, CommandError(errors.NO_AUTH))
            return True
        if not self.user.superuser or not self.authenticated:
            refusal = server.acl.refusal(self.user, command, args)
            if refusal is not None and "no_auth" not in command.flags:
                self._note_refusal(command, args)
                self._reject(command, refusal)
                return True
        if self.reserve is not None and not self.reserve.admits(self, command):
            return True
        if self.guarded:
            refusal = reserved.refusal(command, args)
            if refusal is not None:
                self._reject(command, refusal)
                return True
        if server.replicating.following:
            line = server.replicating.refusal(command)
            if line is not None:
                self._reject(command, CommandError(line))
                return True
        if server.replicating.lacking and self._writes(command):
            self._reject(command, CommandError(errors.NO_REPLICAS))
            return True
        if self.subscribed and self.protocol == 2 and name not in _SUBSCRIBED:
            self._reject(
                command,
                CommandError(
                    b"ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
                    b"allowed in this context" % name
                ),
            )
            return True
        if self.transaction.active and "no_multi" in command.flags:
            self._reject(command, CommandError(errors.NO_MULTI))
            return True
        if server.paused and server.delays(self, command):
            self.busy = True
            server.postpone(self, args)
            return True
        if self.transaction.active and name not in _UNQUEUED:
            reply: Reply = QUEUED
            try:
                self.transaction.submit(self.core.landing.ctx, args)
            except CommandError as error:
                reply = error
            if reply is QUEUED and changes(command):
                self.queued_change = True
            self.last_command = name
            self._finish(None, started, reply)
            return True
        if server.monitors and name != b"exec":  # MONITOR shows EXEC after the commands it runs
            server.show(self, args, self.db)
        return False

    def _writes(self, command: Command) -> bool:
        """Whether it writes, or is the EXEC of a transaction that does."""
        if command.name == b"exec":
            return first_write(self.transaction.commands) is not None
        return may_write(command)

    @property
    def subscribed(self) -> bool:
        """Whether the session is subscribed to any channel or pattern."""
        return bool(self.channels or self.patterns or self.shard_channels)

    def _note_refusal(self, command: Command, args: list[bytes]) -> None:
        denied = self.user.denies(command, args)
        if denied is not None:
            self.server.note_denied(self, command, denied)

    def _reject(self, command: Command, error: CommandError) -> None:
        if command.name == b"exec":  # EXEC ends the transaction even if EXEC itself is rejected
            self.core.forget(self.transaction)
            self.settle()
            error = discarded(error)
        self.transaction.abort()
        self.server.stats.rejected(command.name)
        self.server.stats.error(error.line)
        self.send(error)

    def add_each(self, commands: list[list[bytes]]) -> int:
        """Run the leading plain XADDs of `commands` one by one, so that a waiter is served before the next XADD runs.

        Return how many ran. It stops once no waiter is left, because `Turns.add_many` is faster for the rest.
        """
        core, stats = self.core, self.server.stats
        started = perf_counter_ns()
        ran = 0
        for args in commands:
            if not is_plain_add(args) or (ran and not core.waiting.keys):
                break
            ran += 1
            try:
                effect, log, lsn = core.add(self.db, args[1], tuple(args[3:]), False)
            except Exception as error:
                self._finish(_XADD, started, self._not_added(error), args)
                started = perf_counter_ns()
                continue
            text = b"%d-%d" % (effect[3], effect[4])
            self.connection.answer(b"$%d\r\n%b\r\n" % (len(text), text), (log, lsn, True))
            self.wrote_lsn = lsn
            self.last_command = _XADD.name
            now = perf_counter_ns()
            spent = now - started
            stats.spent[_XADD.name].append(spent)  # as `Stats.call`
            if spent >= stats.slow_ns:
                self._note_slow(_XADD, args, spent)
            started = now
        return ran

    def _not_added(self, error: Exception) -> CommandError:
        try:
            if isinstance(error, CommandError):
                self._rest_on_all()
        except Exception as failure:
            error = failure
        return self.refused(_XADD, error)

    def exec(self, args: list[bytes]) -> tuple[Reply, list[tuple[int, list[bytes]]]]:
        """Run EXEC's engine commands as one unit.

        Return the replies, and the (position, args) of the commands that handlers have to run afterwards.
        """
        later: list[tuple[int, list[bytes]]] = []
        position = -1
        stats, monitored = self.server.stats, bool(self.server.monitors)
        table = self.server.commands.table

        def one(ctx: Context, words: list[bytes]) -> Reply:
            nonlocal position
            position += 1
            started = perf_counter_ns()
            command = table.resolve(words)
            reply: Reply = None
            if not self.user.superuser:
                reply = self.server.acl.refusal(self.user, command, words, queued=True)
                if reply is not None:
                    self._note_refusal(command, words)
            if reply is None:
                if monitored:
                    self.server.show(self, words, ctx.db)
                if command.name in SCRIPTS:
                    try:
                        reply = scripts.decide(self.core, ctx, words)
                    except CommandError as error:
                        reply = error
                elif command.name in lists.LISTS:
                    reply = lists.decide(self.core, ctx, command.name, words, self.sees)
                elif command.name in ENGINE.commands and command.name != b"ping":
                    reply = self.core.decide(ctx, words)
                else:
                    later.append((position, words))
                    return None
            failed = isinstance(reply, CommandError)
            if failed:
                stats.error(reply.line)
            self.ran(command, words, started, failed)
            return reply

        try:
            (reply, promise), self.db = run_exec(self.core, self.db, self.transaction, args, one)
        finally:
            self.settle()
            if monitored:
                self.server.show(self, args, self.db)
        self.rest_on(promise)
        return reply, later

    def ran(self, command: Command, words: list[bytes], started: int, failed: bool) -> None:
        """Update the statistics for a command of a transaction."""
        stats = self.server.stats
        spent = perf_counter_ns() - started
        stats.call(command.name, spent, failed)
        if spent >= stats.slow_ns:
            self._note_slow(command, words, spent)

    # --- replies

    def send(self, reply: Reply) -> None:
        """Send the reply of a command, unless CLIENT REPLY suppresses it."""
        told = self.reply_mode == "on" or isinstance(reply, Push)
        if self.reply_mode == "skip":
            self.reply_mode = "on"
            self.settle()
        if told:
            self.push(reply)

    def push(self, reply: Reply) -> None:
        """Send a reply or an unsolicited message, regardless of the reply mode."""
        self.connection.send(self._rendered(reply))

    def tell(self, message: Reply, promise: Promise | None = None) -> None:
        """Push an unsolicited message; with a promise, once that is fulfilled.

        Only the output limit bounds these, and the periodic check would come too late, so check the limit here.
        """
        connection = self.connection
        if promise is not None:
            log, lsn, _ = promise
            connection.rests_on(log, lsn, False)
            self.seen.lsn = max(self.seen.lsn, lsn)
        if connection.closing:
            return
        self.push(message)
        if connection.full:
            self.server.check_behind(self)

    def _rendered(self, reply: Reply) -> bytes:
        try:
            return rendered(reply, self.protocol)
        except Exception as error:  # it may read a damaged block from disk
            told = StoreDamaged(str(error)) if isinstance(error, CorruptBlock) else error
            return b"-%b\r\n" % self._told(told, "a reply")

    def _answer(
        self,
        command: Command,
        started: int,
        data: bytes,
        promise: Promise,
        args: list[bytes] | None = None,
    ) -> None:
        """`rest_on` and `_finish` in one, for a `plain` session and a command that succeeded: the frequent case."""
        self.connection.answer(data, promise)
        if promise[2]:
            self.wrote_lsn = promise[1]
        else:
            self.seen.lsn = promise[1]
        name = self.last_command = command.name
        stats = self.server.stats
        spent = perf_counter_ns() - started
        stats.spent[name].append(spent)  # as `Stats.call`
        if spent >= stats.slow_ns and args is not None:
            self._note_slow(command, args, spent)

    def _finish(
        self, command: Command | None, started: int, reply: Reply, args: list[bytes] | None = None
    ) -> None:
        """Send the reply and update the statistics."""
        stats = self.server.stats
        failed = isinstance(reply, CommandError)
        if failed:
            stats.error(reply.line)
        if command is not None:
            spent = perf_counter_ns() - started
            self.last_command = command.name
            stats.call(command.name, spent, failed)
            if args is not None and spent >= stats.slow_ns:
                self._note_slow(command, args, spent)
        if reply is not NO_REPLY:
            if self.reply_mode == "on":
                self.push(reply)
            else:
                self.send(reply)

    def _note_slow(self, command: Command, args: list[bytes], ns: int) -> None:
        self.server.stats.slow(command, args, ns, self.connection.addr, self.name)

    def refused(self, command: Command, error: BaseException) -> CommandError:
        """Turn the exception that a command raised into the error to reply with."""
        if isinstance(error, CommandError):
            return error
        return CommandError(self._told(error, command.name.decode()))

    def _told(self, error: BaseException, what: str) -> bytes:
        if isinstance(error, TidelogError):
            if self.core.ended:
                self.server.store_ended(error)
        else:  # our own bug, which must not affect other sessions
            _logger.error("internal error in %s of client %d", what, self.id, exc_info=error)
        return errors.line(error)

    def rest_on(self, promise: Promise) -> None:
        """The next reply, which a handler is about to return, has to wait for this promise."""
        self.connection.rests_on(*promise)
        if promise[2]:
            self.wrote_lsn = promise[1]
        else:
            self.seen.lsn = promise[1]

    def _promise(self) -> Promise:
        return self.core.look(nothing)[1]

    def _rest_on_all(self) -> None:
        """The next reply describes the current state, so it has to wait for everything logged so far."""
        self.rest_on(self._promise())

    # --- handlers that await

    def _wait_for(
        self,
        answer: Coroutine[object, object, Reply],
        command: Command,
        args: list[bytes],
        started: int,
    ) -> None:
        self.busy = True
        self._task = self.server.loop.create_task(answer)
        self._task.add_done_callback(partial(self._waited, command, args, started))

    def _waited(
        self, command: Command, args: list[bytes], started: int, task: asyncio.Task[Reply]
    ) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if self.closed:
            return
        reply = task.result() if error is None else self.refused(command, error)
        self._finish(command, started, reply, args)
        self._idle()

    # --- blocked calls

    def woke(self, thread: int) -> None:
        """`woken` at the end of this turn, or of the next one if the caller is not the loop's thread."""
        self.server.turns.woke(self, thread)

    def deadline(self, timeout_ms: int) -> float | None:
        """When a call that begins now is late, by the store's monotonic clock; None without a timeout."""
        return self.core.monotonic() + timeout_ms / 1000 if timeout_ms else None

    def _wait(self, call: BlockedCall, command: Command) -> None:
        self.busy = True
        self._call = call
        self._command = command
        self._look_again(call)

    def _look_again(self, call: BlockedCall) -> None:
        at = call.next_look()
        if at is not None:
            self._wake_at(at)

    def _look(self, call: BlockedCall) -> None:
        """Go on with a blocked call: it may have its reply, or may be late."""
        try:
            reply = call.look()
            if reply is NOT_YET:
                if call.deadline is None or self.core.monotonic() < call.deadline:
                    self._look_again(call)
                    return
                reply = call.late()
        except Exception as error:
            reply = self.refused(self._command, error)
        self._end_call(call, reply)

    def _end_call(self, call: BlockedCall, reply: Reply) -> None:
        self._call = None
        call.forget()
        self._finish(self._command, perf_counter_ns(), reply)  # do not count the time spent blocked
        self._idle()

    def _idle(self) -> None:
        self.busy = False
        if self.connection.left_over:
            # Do not resume at once: another session's command may have ended this wait, and that command may still be
            # running.
            self.server.loop.call_soon(self.connection.resume)

    # --- blocking reads

    def _caller(self) -> Caller:
        return _SessionCaller(self)

    def _park(self, waiter: Waiter, command: Command) -> None:
        self.busy = True
        self.blocked = waiter
        self._command = command
        self.last_command = command.name
        # Set a timer only if the current one may fire too late. If another thread already served the waiter, `woken`
        # is scheduled, and an unneeded timer does no harm.
        if (
            waiter.deadline is None
            or waiter.deadline < self._timer_at
            or waiter.claim_at is not None
        ):
            self._set_timer(waiter)

    def _set_timer(self, waiter: Waiter) -> None:
        """Ensure that `woken` is called no later than the end of the wait.

        Setting a timer is expensive, and nearly all reads are served before it fires. So the timer is kept when a
        read is served and reused for the next one; if it fires too early, it is set again.
        """
        at = waiter.deadline
        if waiter.claim_at is None and waiter.ask_at is None:
            if at is None or self._timer_at <= at:
                return
        seconds = self.core.waits.patience(waiter)
        if seconds is None:
            return
        self._wake_at(self.core.monotonic() + seconds)

    def _wake_at(self, at: float) -> None:
        """Call `woken` at this time of the store's monotonic clock, or before."""
        if self._timer_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        seconds = max(0.0, at - self.core.monotonic())
        self._timer = self.server.loop.call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        self._timer_at = NO_TIMER
        self.woken()

    def woken(self) -> None:
        """Go on with the blocked read or call: it was served, or a timer of it may have fired."""
        if self._call is not None:
            self._look(self._call)
            return
        waiter = self.blocked
        if waiter is None:
            return
        started = perf_counter_ns()  # do not count the time spent blocked
        caller: Caller = waiter.owner
        if not caller.done:
            try:
                self.core.wake(waiter)
            except TidelogError as error:
                caller.fail(error)
            if not caller.done:
                self._set_timer(waiter)
                return
        self.blocked = None
        answer = caller.answer
        if answer is not None:
            caller.answer = None  # `_kept` may keep the waiter alive
            reply, promise = answer
            if self.plain and reply.__class__ is Streams:  # entries
                self._answer(self._command, started, self._rendered(reply), promise)
                self.busy = False  # as `_idle`
                if self.connection.left_over:
                    self._idle()
                return
            self.rest_on(promise)
            if self._forbidden is not None and reply is self._forbidden[0]:
                self.server.note_denied(self, self._command, self._forbidden[1])
                self._reject(self._command, self._forbidden[0])
                self._idle()
                return
        else:
            failure, caller.error = caller.error, None
            assert failure is not None
            reply = self.refused(self._command, failure)
        self._finish(self._command, started, reply)
        self._idle()
        if answer is None and self.core.following is not None:
            self.close_soon()  # see `expel`: the store has ended its wait already

    def judge(self) -> None:
        """Check again whether the user may make the blocked read. Call after the users changed."""
        waiter = self.blocked
        if waiter is None:
            return
        denied = self.user.denies_wait(self._command, waiter.args)
        if denied is not None:
            self.forbid(denied)
        elif self._forbidden is not None:  # the permission was restored
            self._forbidden = None
            self.core.allow(waiter)

    def forbid(self, denied: tuple[str, bytes]) -> None:
        """When the blocked read would be served, reply NOPERM instead and deliver nothing."""
        waiter = self.blocked
        if waiter is not None:
            self._kept = None  # it must not be reused for another read
            self._forbidden = no_permission(self.user, denied), denied
            self.core.forbid(waiter, self._forbidden[0])

    def expel(self) -> None:
        """The server has become a follower: end a blocked command with an error, and close (as Redis)."""
        if self.unblock(UNBLOCKED):
            self.close_soon()

    def unblock(self, error: bytes | None) -> bool:
        """End a blocked command with an error, or as if it timed out. False if it is not blocked."""
        call = self._call
        if call is not None:
            reply: Reply
            try:
                reply = CommandError(error) if error else call.late()
            except Exception as failure:
                reply = self.refused(self._command, failure)
            self._end_call(call, reply)
            return True
        waiter = self.blocked
        if waiter is None or waiter.owner.done:
            return False
        self.core.leave(waiter)
        if waiter.owner.done:  # another thread has just served it
            return False
        self.blocked = None
        started = perf_counter_ns()
        reply = CommandError(error) if error else NULL_ARRAY
        try:
            self._rest_on_all()
        except TidelogError as failure:
            reply = self.refused(self._command, failure)
        self._finish(self._command, started, reply)
        self._idle()
        return True

    @property
    def waits(self) -> bool:
        """Whether the session is blocked in a read or a call, which CLIENT UNBLOCK can end."""
        return self.blocked is not None or self._call is not None

    @property
    def waits_in(self) -> bytes:
        """Name of the command in which the session is blocked. Only while it `waits`."""
        return self._command.name

    # --- end of the session

    def reset(self) -> None:
        """RESET: restore the state of a new connection, except the ID and the library's name (spec 16.1)."""
        self.core.forget(self.transaction)
        self.server.pubsub.leave(self)
        self.server.unmonitor(self)
        self.db, self.protocol, self.name = 0, 2, b""
        if self.reply_mode == "off":  # "skip" suppresses the reply to RESET
            self.reply_mode = "on"
        self.no_evict = self.no_touch = False
        self.user = self.server.acl.default
        self.authenticated = self.user.nopass and self.user.enabled
        self.settle()

    def last_reply(self, reply: Reply) -> Reply:
        """Return the value for a handler that ends its own session: no more commands run, and the
        session closes after `reply`.
        """
        if self.in_exec:  # `reply` is an element of EXEC's reply; that reply is the session's last
            self.ending = True
            return reply
        self.send(reply)
        self.close_soon()
        return NO_REPLY

    def close_soon(self) -> None:
        """Close after everything sent so far has been written."""
        self.connection.close_soon()

    def kill(self) -> None:
        """Close at once."""
        self.killed = True
        self.connection.kill()

    def end(self) -> None:
        """The connection is gone. Entries already delivered to its blocked read stay pending, as after a crash."""
        self.closed = True
        self._kept = None  # it holds a reference to this session
        waiter = self.blocked
        if waiter is not None:
            self.blocked = None
            self.core.leave(waiter)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._call is not None:
            self._call.forget()
            self._call = None
        if self.jobs is not None:
            self.jobs.abandon(self.server.loop.call_later)
        self.core.forget(self.transaction)
        self.server.pubsub.leave(self)
        self.server.unmonitor(self)


class _SessionCaller(Caller):
    """Takes the answer to a session's blocked read."""

    __slots__ = ("_session", "_turns")

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._turns = session.server.turns

    def deliver(self, reply: Reply, promise: Promise) -> None:  # inlined `Caller.deliver`
        self.answer = reply, promise
        self.done = True
        self._turns.woke(self._session, get_ident())

    def nudge(self) -> None:
        self._turns.woke(self._session, get_ident())
