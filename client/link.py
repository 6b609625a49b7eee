"""Link: the way to the server of a shared store, whichever process that is at the moment.

A link keeps a pool of connections, one for each call that is under way. A call whose connection breaks is repeated on a
new one, after an owner was started if there is none, when that is safe:

    READ     it changes nothing, or repeating it changes nothing more
    ONCE     a write: it has the number of its series, and the server knows whether it has stored that number
    FENCED   it settles one delivery. If the repeated call finds that the worker does not hold it any more, either the
             first one has settled it or another worker has it. RELEASE has a number, too (Remote.release)
    NEVER    raises OutcomeUnknown

After a fork the child uses connections, series and a heartbeat of its own.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import shlex
import ssl
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from tidelog.aof.errors import ELSEWHERE
from tidelog.aof.errors import StoreLocked as Locked
from tidelog.aof.identity import NAME as STORE
from tidelog.aof.identity import SETTINGS
from tidelog.aof.layout import SHARED
from tidelog.aof.log import POLICIES
from tidelog.client.address import Address
from tidelog.client.errors import OPENING, ended_elsewhere, error_of, unknown
from tidelog.client.pooled import Pooled, numbered
from tidelog.client.starting import FOR_OPERATOR, Starting, is_owner
from tidelog.client.wire import Broken, Wire, checked
from tidelog.disk.turn import Turn, take_turn
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs.own import ms_word
from tidelog.jobs.verbs.verb import Safe
from tidelog.store.errors import (
    CannotOpen,
    DataError,
    NotReplicated,
    StoreClosed,
    StoreLocked,
    TidelogError,
    Unreachable,
    Unsupported,
)
from tidelog.store.opening import refuse_parents
from tidelog.store.version import __version__

CONNECT_S: Final = 5.0  # for one attempt to connect
FIRST_PAUSE_S: Final = 0.005  # between two attempts; it doubles
LAST_PAUSE_S: Final = 0.25
TURN_S: Final = 5.0  # a call leaves it to another one to start the owner; up to four times as long
KILLED_MAX: Final = 5  # owners that are killed while they start, in one call
FREE_MAX: Final = 64  # connections that are kept while nothing uses them
_VERSION: Final = __version__.encode()
_draw: Final = random.SystemRandom().uniform  # the program's own generator stays as it is
_PROCESS: Final = secrets.token_hex(8).encode()
# This client knows the line with which an owner ends a connection when it hands over.
KNOWS_HANDOVER: Final = (b"TIDELOG", b"HANDOVER", b"KNOWN")
FSYNC: Final = b"fsync:"  # begins the word of TIDELOG CAPABILITIES that tells the fsync policy
LEADERLESS: Final = (b"READONLY", b"LOADING", b"MASTERDOWN")


# A command, or a function that gives the one for a connection: what it may say depends on the server's version.
Words = Sequence[bytes] | Callable[[Wire], Sequence[bytes]]


class Link:
    """See the module docstring. Many threads may use it.

    timeout    seconds that a call waits for a server, and for its reply beyond the time that it blocks
    start      start an owner if there is none, unless tidelog.toml leaves that to an operator
    broke      called after a connection broke, with nothing held
    silent_at  monotonic seconds at which the server last failed to end a call; others are not tried for `timeout`
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        timeout: float,
        options: Mapping[str, str],
        start: bool = True,
    ) -> None:
        self.start = start
        self.addresses, self.timeout = addresses, timeout
        self.address = addresses[0]  # of the server that answered last
        self._was_there = False  # one has answered
        # Of several servers, the one that leads is used.
        self._chooses = len(addresses) > 1 or bool(addresses[0].service)
        self._led_by = ""  # the leader that a follower named last
        self.options = options
        self._lock = threading.Lock()
        self.broke: Callable[[], None] = _nothing
        self.closed = False
        self.silent_at = -math.inf
        self._begin()

    def _begin(self) -> None:
        self.pid = os.getpid()
        self._client = secrets.token_hex(8).encode()
        self._numbers = count(1)
        self._free: list[Pooled] = []
        # Weakly: it belongs to who took it, and ends with that.
        self._busy: weakref.WeakSet[Pooled] = weakref.WeakSet()

    # --- calls

    def call(
        self,
        words: Words,
        safe: Safe,
        db: int = 0,
        *,
        block: float = 0.0,
        pooled: Pooled | None = None,
        needs: bytes | None = None,
    ) -> Reply:
        """Run a command. Raises the errors of the store, and Unsupported.

        block    seconds for which the server may block the call
        pooled   a connection that the caller took
        needs    the capabilities without which a server does not know the command, as words
        """
        found = self._calls((words,), safe, db, block, pooled, needs)[0]
        if isinstance(found, CommandError):
            if found.line.startswith(b"READONLY"):
                raise self._read_only(found, db, pooled)
            raise error_of(found)
        return found

    def _read_only(self, error: CommandError, db: int, pooled: Pooled | None) -> TidelogError:
        """The error of a write to a follower, with the address of its leader."""
        role = self._calls(((b"ROLE",),), Safe.READ, db, 0.0, pooled)[0]
        if isinstance(role, CommandError) or role[0] == b"master":
            return error_of(error)
        leader = f"{role[1].decode()}:{role[2]}"
        return error_of(CommandError(error.line + b" Its leader is " + leader.encode() + b"."))

    def calls(
        self,
        commands: Sequence[Words],
        safe: Safe,
        db: int = 0,
        *,
        pooled: Pooled | None = None,
    ) -> list[Reply]:
        """Run several commands, sent together. Errors of single commands are among the replies."""
        return self._calls(commands, safe, db, 0.0, pooled)

    def post(self, pooled: Pooled, words: Sequence[bytes]) -> None:
        """Send a command over a pooled connection, and do not wait for its reply."""
        wire = pooled.wire
        try:
            if wire is not None:
                wire.post(words, self.timeout)
        except Broken:
            pooled.drop()
            self.broke()
        except BaseException:
            pooled.drop()  # perhaps it was sent, and its reply comes
            self.broke()
            raise

    def confirm(
        self, pooled: Pooled, db: int, replicas: int, fsynced: bool, seconds: float
    ) -> None:
        """Wait until the last write of a connection is on the disk (`fsynced`), and `replicas` followers have it.

        Raises NotReplicated; OutcomeUnknown if the connection breaks meanwhile.
        """
        wanted, ms = b"%d" % replicas, ms_word(seconds)
        words = (b"WAITAOF", b"1", wanted, ms) if fsynced else (b"WAIT", wanted, ms)
        wire = pooled.wire
        found = self.call(words, Safe.NEVER, db, block=seconds, pooled=pooled)
        if replicas and pooled.wire is not wire:
            # The server knows nothing of writes of another connection.
            raise unknown(Broken("it was made before the write was confirmed", sent=True))
        confirmed = int(found[1] if fsynced else found)
        if confirmed < replicas:
            raise NotReplicated(confirmed, replicas)

    def take(self) -> Pooled:
        """A connection for a caller that needs the same one for several calls. It must be given back."""
        if os.getpid() != self.pid:
            self._forked()
        with self._lock:
            self._check_open()
            pooled = self._free.pop() if self._free else None
            if pooled is None:
                pooled = Pooled(b"%b:%d" % (self._client, next(self._numbers)))
            pooled.ended = False
            self._busy.add(pooled)
        return pooled

    def give_back(self, pooled: Pooled) -> None:
        """The counterpart of `take`."""
        if os.getpid() != self.pid:
            self._forked()
        with self._lock:
            if pooled not in self._busy:  # of the parent process, or the link was closed meanwhile
                pooled.drop()
                return
            self._busy.discard(pooled)
            if len(self._free) < FREE_MAX:
                self._free.append(pooled)
            else:
                pooled.drop()

    def close(self) -> None:
        """Close all connections. Calls that are under way fail."""
        if os.getpid() != self.pid:
            self._forked()
        with self._lock:
            self.closed = True
            connections, self._free = [*self._free, *self._busy], []
            for pooled in connections:
                pooled.hang_up()
                if pooled not in self._busy:
                    pooled.drop()
            self._busy.clear()

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosed("this shared store was closed; connect again")

    def _forked(self) -> None:
        """This process is a child of the one that made the connections."""
        self._lock = threading.Lock()  # a thread of the parent may have held it
        for pooled in (*self._free, *self._busy):
            pooled.drop()  # closes this process's descriptors; the parent's connections go on
        self._begin()

    def _calls(
        self,
        commands: Sequence[Words],
        safe: Safe,
        db: int,
        block: float,
        given: Pooled | None,
        needs: bytes | None = None,
    ) -> list[Reply]:
        pooled = given or self.take()
        try:
            if safe is Safe.ONCE:
                pooled.number += 1
                commands = [numbered(words, pooled) for words in commands if not callable(words)]
            until = time.monotonic() + self.timeout
            doubt: Broken | None = None
            while True:
                self._check_open()
                if pooled.ended:
                    if doubt is not None and safe is not Safe.READ:
                        raise unknown(doubt)
                    raise ended_elsewhere()
                try:
                    replies = self._try(pooled, commands, safe, db, block, until, needs)
                except Broken as broken:
                    pooled.drop()
                    self.broke()
                    if broken.sent and doubt is None:
                        doubt = broken
                    self._judge(broken, safe, until)
                    continue
                except TidelogError as error:
                    if doubt is not None and safe is not Safe.READ:
                        raise unknown(doubt) from error
                    raise
                except BaseException:
                    pooled.drop()  # a reply may still come
                    raise
                if self._chooses and _follows(replies[0]) and time.monotonic() < until:
                    pooled.drop()  # it followed since; another one leads, or will
                    time.sleep(FIRST_PAUSE_S)
                    continue
                if doubt is not None and safe is Safe.FENCED and replies[0] == 0:
                    raise unknown(doubt)
                return replies
        finally:
            if given is None:
                self.give_back(pooled)

    def _judge(self, broken: Broken, safe: Safe, until: float) -> None:
        """Return if a call whose connection broke is to be repeated."""
        self._check_open()
        if broken.sent and safe is Safe.NEVER:
            raise unknown(broken)
        if broken.late or time.monotonic() >= until:
            if broken.sent and safe is not Safe.READ:
                raise unknown(broken)
            raise Unreachable(str(broken)) from None

    def _try(
        self,
        pooled: Pooled,
        commands: Sequence[Words],
        safe: Safe,
        db: int,
        block: float,
        until: float,
        needs: bytes | None,
    ) -> list[Reply]:
        wire = pooled.wire
        # A call that is repeated anyway finds out when it sends.
        if wire is not None and not (wire.local and safe is not Safe.NEVER) and not wire.alive():
            pooled.drop()
            self.broke()
            wire = None
        if wire is None:
            wire = pooled.wire = self._connect(until)
            if pooled.ended:
                # `hang_up` found no connection to end
                raise ended_elsewhere()
        for each in () if needs is None else needs.split():
            if each not in wire.can:
                raise Unsupported(
                    f"the server {self.address} is of an earlier version of tidelog, or its user may not ask for its "
                    f"capabilities: TIDELOG CAPABILITIES does not list {each.decode()!r}"
                )
        if wire.db != db:
            checked_call(wire, [b"SELECT", b"%d" % db], self.timeout)
            wire.db = db
        said = [words(wire) if callable(words) else words for words in commands]
        return wire.calls(said, self.timeout + block)

    # --- connecting

    def _connect(self, until: float) -> Wire:
        """A connection to the server that leads. Starts an owner if there is none. Raises TidelogError."""
        starting: Starting | None = None
        turn: Turn | None = None
        # The one that has the turn may be stopped. Then one starts an owner after the other, not all at once.
        alone = time.monotonic() + TURN_S * _draw(1, 4)
        pause = FIRST_PAUSE_S
        killed = 0
        why: Exception | None = None
        try:
            while True:
                self._check_open()
                why, told = None, "none of them leads"
                for address in self.addresses:
                    left = max(FIRST_PAUSE_S, until - time.monotonic())
                    try:
                        wire = self._greeted(address, min(CONNECT_S, left))
                    except ssl.SSLCertVerificationError as error:
                        # it would fail again and again
                        raise Unreachable(f"{address}: {address.reason(error)}") from error
                    except (OSError, Broken) as error:
                        why = error
                        told = address.reason(error) if isinstance(error, OSError) else str(error)
                        continue
                    if wire is not None:
                        self.address, self._was_there = address, True
                        return wire
                left = until - time.monotonic()
                root = self.addresses[0].root
                waits = "" if root is None else self._waits_for(root)
                if left <= 0:
                    raise Unreachable(
                        f"no server of {self._named()} answers: {told}{self._led_by}{waits}"
                    )
                if root is None or waits:
                    time.sleep(min(pause, left))
                else:
                    # All threads of all clients miss a killed owner at once. One of them starts another.
                    if turn is None:
                        turn = take_turn(root)
                        if turn is not None:
                            continue  # the one before it may have started an owner
                    if starting is None and (turn is not None or _is_left_alone(root, alone)):
                        starting = self._start(why)
                    if starting is None:
                        time.sleep(min(pause, left))
                    else:
                        said = starting.look(min(pause, left))
                        if said is not None:
                            # If the server that is ready is killed before this side connects, another one is started.
                            starting.close()
                            failed, starting = starting.failed, None
                            # One that was killed while it started is replaced as well.
                            killed += bool(said) and not failed
                            if failed or killed >= KILLED_MAX:
                                self._failed_start(said)
                pause = min(2 * pause, LAST_PAUSE_S)
        finally:
            if starting is not None:
                starting.close()
            if turn is not None:
                turn.close()

    def _greeted(self, address: Address, seconds: float) -> Wire | None:
        """A connection that is signed in; None if this server follows another one, or is an owner that ends."""
        if address.service:
            address = self._leader(address, seconds)
        wire = Wire(address.dial(SHARED, seconds), str(address))
        try:
            if address.password is not None:
                user = [address.user.encode()] if address.user else []
                checked_call(wire, [b"AUTH", *user, address.password.encode()], seconds)
            if self._chooses:
                role = checked_call(wire, [b"ROLE"], seconds)
                if role[0] != b"master":
                    self._led_by = f"; {address} follows {role[1].decode()}:{role[2]}"
                    wire.close()
                    return None
            elif address.root is None:
                checked_call(wire, [b"PING"], seconds)
            elif checked_call(wire, [b"TIDELOG", b"YIELD", _VERSION], seconds):
                # The owner is older than this package, and ends. The next attempt starts another one.
                wire.close()
                return None
            # Jobs of all connections of a process are lost together. A child of a fork is another process.
            process = b"%b-%d" % (_PROCESS, os.getpid())
            asked = [(b"TIDELOG", b"CAPABILITIES", process)]
            if address.root is not None:
                asked.append(KNOWS_HANDOVER)  # version 0.1 refuses it, and users may be denied it
            can = wire.calls(asked, seconds)[0]
            if isinstance(can, list):  # else a version that has none, or a user who may not ask
                wire.can = frozenset(can)
            self._check_fsync(wire, seconds)
            return wire
        except BaseException:
            wire.close()
            raise

    def _check_fsync(self, wire: Wire, seconds: float) -> None:
        """Raise DataError if the caller asked for a higher fsync policy than the server has."""
        wanted = self.options.get("appendfsync")
        if wanted is None:
            return
        found = next((word[len(FSYNC) :] for word in wire.can if word.startswith(FSYNC)), None)
        if found is None:  # a server of an earlier version
            found = checked_call(wire, (b"CONFIG", b"GET", b"appendfsync"), seconds)[1]
        policy = found.decode()
        if POLICIES.index(policy) > POLICIES.index(wanted):  # the safest is the first
            where = self.addresses[0].root
            told = shlex.quote(str(where)) if where is not None else "PATH"
            raise DataError(
                f"the store at {self._named()} is served with the fsync policy {policy}, and fsync={wanted!r} asks for "
                f"more. To change the policy for all, run `tidelog config {told} set appendfsync={wanted}` (also "
                f"port=N, if the server has a port) and start the server again. Until then, send CONFIG SET "
                f"appendfsync {wanted}. For single calls, leave fsync out and use at('fsynced')"
            )

    def _leader(self, sentinel: Address, seconds: float) -> Address:
        """The address of the leader, as a Sentinel knows it."""
        wire = Wire(sentinel.dial(SHARED, seconds), str(sentinel))
        try:
            words = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", sentinel.service.encode()]
            found = checked_call(wire, words, seconds)
        finally:
            wire.close()
        if found is None:
            raise Broken(f"the Sentinel {sentinel} knows no {sentinel.service!r}", sent=False)
        host, port = found
        return replace(sentinel, host=host.decode(), port=int(port), service="")

    def _waits_for(self, root: Path) -> str:
        """For whom this client waits, to be appended to an error; empty if it may start an owner."""
        told = f"; run `tidelog serve {shlex.quote(str(root))}`"
        if not self.start:
            return f". With start=False a client starts none{told}"
        if os.path.lexists(root / SETTINGS):
            # here: few stores have the file
            from tidelog.server.config.config import ConfigError
            from tidelog.server.config.stored import by_operator

            try:
                if by_operator(root):
                    return f". {FOR_OPERATOR[0].upper()}{FOR_OPERATOR[1:]}{told}"
            except ConfigError:
                pass  # an owner says what is wrong with it
        return ""

    def _start(self, why: Exception | None) -> Starting | None:
        root = self.addresses[0].root
        assert root is not None
        if self._was_there and not os.path.exists(root / STORE):
            raise StoreClosed(
                f"{root} was removed or moved while it was in use; restore a backup, or connect to the place where it "
                "is now. To connect to this path again begins a new store"
            )
        if isinstance(why, (Broken, BlockingIOError)):
            return None  # somebody listens: another owner begins or ends, or has too many callers at once
        if isinstance(why, PermissionError):
            raise CannotOpen(
                f"{root / SHARED} belongs to another user; ask that user to run a server, or use its port"
            ) from why
        if not sys.executable:
            raise CannotOpen(
                f"the process that serves {root} cannot be started: sys.executable, the Python to start, is "
                f"{sys.executable!r}"
            )
        try:
            return Starting(root, self.options)
        except OSError as error:
            raise CannotOpen(
                f"the process that serves {root} cannot be started with sys.executable {sys.executable!r}: {error}"
            ) from error

    def _failed_start(self, said: str) -> None:
        """An owner could not start. Returns if it is worth another attempt."""
        name, _, text = said.partition(": ")
        if name == "StoreLocked":
            root = self.addresses[0].root
            assert root is not None
            # One for an operator was told so meanwhile. One that ended meanwhile has left the lock.
            if is_owner(root) or Locked.OWNER in text or text.startswith(FOR_OPERATOR):
                return  # it begins or ends, which takes its time
            try:
                wire = self._greeted(self.addresses[0], CONNECT_S)
            except (OSError, Broken):
                wire = None
            if wire is not None:
                wire.close()
                return
            if ELSEWHERE not in text:
                text += ". That process does not serve it: let it call tidelog.serve(db), or connect instead of open"
            refuse_parents(root)
            raise StoreLocked(text, None)
        kind = OPENING.get(name)
        why = said if kind is None else text
        raise (kind or CannotOpen)(
            f"the process that serves {self.addresses[0]} could not start: {why}"
        )

    def _named(self) -> str:
        return ", ".join(map(str, self.addresses))


def _follows(reply: Reply) -> bool:
    """Whether the server refused the command because another one leads."""
    return isinstance(reply, CommandError) and reply.line.split(b" ", 1)[0] in LEADERLESS


def _is_left_alone(root: Path, since: float) -> bool:
    """Whether nobody has started an owner that has the store."""
    return time.monotonic() >= since and not is_owner(root)


def _nothing() -> None:
    """Nobody asked to be told."""


def checked_call(wire: Wire, words: Sequence[bytes], seconds: float) -> Reply:
    """The reply of a command. Raises the errors of the store, and Broken."""
    try:
        return checked(wire.call(words, seconds))
    except CommandError as error:
        if error.line.split(b" ", 1)[0] in LEADERLESS:
            raise Broken(str(error), sent=False) from error
        raise error_of(error) from None
