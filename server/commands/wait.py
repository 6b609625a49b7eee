"""WAIT and WAITAOF (spec 13): how many followers have this connection's own writes, up to `session.wrote_lsn`.

A call that must wait is registered before its handler returns. So the followers get the write and the question how far
they are together, at the end of the same turn, and no acknowledgement comes between the look at them and the wait.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import FSYNCED, Log
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import INT64_MAX, int64
from tidelog.engine.reply import Reply
from tidelog.server.blocked import NOT_YET, BlockedCall
from tidelog.server.session import Session
from tidelog.store.acks import Awaited
from tidelog.store.commit.durability import unfulfilled

_WAIT_HERE = (
    b"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured "
    b"to be writable (which is not the default) writes to replicas are just local and are not propagated."
)
_WAITAOF_HERE = (
    b"ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and "
    b"are not propagated."
)
_NOT_ZERO_OR_ONE = b"ERR value is out of range, value must between 0 and 1"
_NOT_POSITIVE = b"ERR value is out of range, must be positive"
_TIMEOUT = b"ERR timeout is not an integer or out of range"


def wait(session: Session, args: list[bytes]) -> Reply:
    """WAIT numreplicas timeout"""
    if session.server.replicating.following:
        raise CommandError(_WAIT_HERE)
    wanted = int64(args[1])
    timeout_ms = parse_timeout(session, args[2])
    core, lsn = session.core, _written(session)
    acks, log = core.acks, core.log
    found = acks.count(log, lsn, False)
    if found >= wanted or session.in_exec:
        return found

    def reply(log: Log, lsn: int) -> Reply:
        return acks.count(log, lsn, False)

    return _Blocked(session, Awaited(log, lsn, wanted, False), False, timeout_ms, reply)


def _written(session: Session) -> int:
    """The LSN of this session's last write, if it is in the log."""
    # After a recovery, the new log may end before units that this session wrote. Their callers got an error, so do not
    # wait for those units.
    return min(session.wrote_lsn, session.core.log.next_lsn - 1)


def waitaof(session: Session, args: list[bytes]) -> Reply:
    """WAITAOF numlocal numreplicas timeout

    Redis waits for its fsync policy, with `no` perhaps for ever. We request a sync from the log, one for all concurrent
    waiters, so with numlocal 1 the reply comes soon under every policy.
    """
    if session.server.replicating.following:
        raise CommandError(_WAITAOF_HERE)
    local = int64(args[1])
    if not 0 <= local <= 1:
        raise CommandError(_NOT_ZERO_OR_ONE)
    followers = int64(args[2], _NOT_POSITIVE)
    if followers < 0:
        raise CommandError(_NOT_POSITIVE)
    timeout_ms = parse_timeout(session, args[3])
    log, lsn, acks = session.core.log, _written(session), session.core.acks
    synced, found = lsn <= log.synced_lsn, acks.count(log, lsn, True)
    if (synced >= local and found >= followers) or session.in_exec:
        return [int(synced), found]

    def reply(log: Log, lsn: int) -> Reply:
        return [int(lsn <= log.synced_lsn), acks.count(log, lsn, True)]

    waiting = Awaited(log, lsn, followers, True)
    return _Blocked(session, waiting, local > synced, timeout_ms, reply)


class _Blocked(BlockedCall):
    """A call that waits for followers and this store's own disk."""

    def __init__(
        self,
        session: Session,
        awaited: Awaited,
        local: bool,
        timeout_ms: int,
        reply: Callable[[Log, int], Reply],
    ) -> None:
        super().__init__(session.woke, session.deadline(timeout_ms))
        self._loop = session.server.loop
        self._core, self._acks = session.core, session.core.acks
        self._awaited, self._reply = awaited, reply
        self._failure: LogPoisoned | None = None
        self._over = False
        self._lacks_disk, self._lacks_followers = local, True
        awaited.told = self._told
        if self._acks.begin(awaited):
            self._lacks_followers = False
            if not local:
                self.nudge()
        if local:
            self._loop.call_soon(self._sync)  # behind the flush at the end of this turn

    def _told(self) -> None:
        """Enough followers have the write, or the store has another log. From any thread."""
        self._lacks_followers = False
        self.nudge()

    def look(self) -> Reply:
        """See `BlockedCall`."""
        core = self._core
        if self._failure is not None:
            raise unfulfilled(self._failure, True)
        if self._lacks_followers or core.following is not None:
            return NOT_YET  # a server that follows from now on ends the call (`Session.expel`)
        if self._awaited.log is not core.log:
            self._go_on(core.log)
        return NOT_YET if self._lacks_disk or self._lacks_followers else self.late()

    def _go_on(self, log: Log) -> None:
        """The store has recovered: go on with the log that has the write now."""
        was = self._awaited
        lsn = min(was.lsn, log.next_lsn - 1)
        self._lacks_followers = True  # before the wait begins, since any thread may end it
        self._awaited = Awaited(log, lsn, was.wanted, was.fsynced, self._told)
        if self._acks.begin(self._awaited):
            self._lacks_followers = False

    def _sync(self) -> None:
        if not self._over:
            self._awaited.log.subscribe(self._awaited.lsn, FSYNCED, self._sync_ended)

    def _sync_ended(self, error: LogPoisoned | None) -> None:
        """Called from the log's own thread or the loop's."""
        self._failure = error
        self._lacks_disk = False
        self.nudge()

    def late(self) -> Reply:
        """See `BlockedCall`."""
        return self._reply(self._awaited.log, self._awaited.lsn)

    def forget(self) -> None:
        """See `BlockedCall`."""
        self._over = True
        self._acks.forget(self._awaited)


def parse_timeout(session: Session, arg: bytes) -> int:
    """Parse a timeout in milliseconds, 0 = no timeout. Raises CommandError."""
    timeout_ms = int64(arg, _TIMEOUT)
    if timeout_ms < 0:
        raise CommandError(b"ERR timeout is negative")
    if timeout_ms > INT64_MAX - session.core.time_ns() // 1_000_000:
        raise CommandError(b"ERR timeout is out of range")
    return timeout_ms
