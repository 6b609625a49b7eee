"""WAIT and WAITAOF (spec 13): how many followers have this connection's own writes, up to `session.wrote_lsn`.

Followers acknowledge by themselves, at most a millisecond late, so they are not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import FSYNCED
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import INT64_MAX, int64
from tidelog.engine.reply import Reply
from tidelog.replication.feeds import Awaited
from tidelog.server.session import Session
from tidelog.store.commit.durability import unheld

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
    timeout_ms = _timeout(session, args[2])
    lsn, feeds = _written(session), session.server.replicating.feeding.feeds
    found = feeds.count(lsn, False)
    if found >= wanted or session.in_exec:
        return found
    return _wait(session, lsn, wanted, timeout_ms)


async def _wait(session: Session, lsn: int, wanted: int, timeout_ms: int) -> Reply:
    feeds = session.server.replicating.feeding.feeds
    with _followers(session, lsn, wanted, False) as enough:
        await _block(session, (enough,), timeout_ms)
    return feeds.count(lsn, False)


def _written(session: Session) -> int:
    """The LSN of this session's last write, if it is in the log."""
    # After a recovery, the new log may end before units that this session wrote. Their callers got an error, so do not
    # wait for those units.
    return min(session.wrote_lsn, session.core.log.next_lsn - 1)


@contextmanager
def _followers(
    session: Session, lsn: int, wanted: int, fsynced: bool
) -> Iterator[asyncio.Future[None]]:
    """Within, a future that is done when so many followers have this LSN."""
    enough: asyncio.Future[None] = session.server.loop.create_future()

    def told() -> None:
        if not enough.done():
            enough.set_result(None)

    feeding = session.server.replicating.feeding
    feeds = feeding.feeds
    awaited = Awaited(lsn, wanted, fsynced, told)
    feeds.await_(awaited)
    if feeds.count(lsn, fsynced) >= wanted:  # they came while this call was on its way here
        told()
    feeding.pump_soon()
    try:
        yield enough
    finally:
        feeds.forget(awaited)
        enough.cancel()


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
    timeout_ms = _timeout(session, args[3])
    log, lsn = session.core.log, _written(session)
    feeds = session.server.replicating.feeding.feeds
    synced, found = lsn <= log.synced_lsn, feeds.count(lsn, True)
    if (synced >= local and found >= followers) or session.in_exec:
        return [int(synced), found]
    return _wait_for_disks(session, lsn, bool(local), followers, timeout_ms)


async def _wait_for_disks(
    session: Session, lsn: int, local: bool, followers: int, timeout_ms: int
) -> Reply:
    """Wait until the write is on the disks that are asked for, or for the timeout."""
    loop, log = session.server.loop, session.core.log
    synced: asyncio.Future[LogPoisoned | None] = loop.create_future()

    def settle(error: LogPoisoned | None) -> None:
        if not synced.done():
            synced.set_result(error)

    def told(error: LogPoisoned | None) -> None:
        """The sync ended. Called from the log's own thread or the loop's."""
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:
            pass  # the loop is closed

    if local:
        log.subscribe(lsn, FSYNCED, told)
    feeds = session.server.replicating.feeding.feeds
    with _followers(session, lsn, followers, True) as enough:
        waited: list[asyncio.Future[Any]] = [synced] if local else []
        if feeds.count(lsn, True) < followers:
            waited.append(enough)
        await _block(session, waited, timeout_ms)
    error = synced.result() if synced.done() else None
    if error is not None:
        raise unheld(error, True)
    return [int(lsn <= log.synced_lsn), feeds.count(lsn, True)]


async def _block(session: Session, until: Sequence[asyncio.Future[Any]], timeout_ms: int) -> None:
    """Wait for all of `until`, the timeout (0 = none), or the end of the wait by somebody else.

    Raises CommandError if that comes with an error.
    """
    loop = session.server.loop
    deadline = loop.time() + timeout_ms / 1000 if timeout_ms else None
    unblocked = session.unblocked()
    waiting = list(until)
    try:
        while waiting and not unblocked.done():
            left = None if deadline is None else max(deadline - loop.time(), 0)
            done, _ = await asyncio.wait(
                (unblocked, *waiting), timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            waiting = [each for each in waiting if not each.done()]
        if unblocked.done() and (line := unblocked.result()) is not None:
            raise CommandError(line)
    finally:
        unblocked.cancel()


def _timeout(session: Session, arg: bytes) -> int:
    """Parse a timeout in milliseconds, 0 = no timeout. Raises CommandError."""
    timeout_ms = int64(arg, _TIMEOUT)
    if timeout_ms < 0:
        raise CommandError(b"ERR timeout is negative")
    if timeout_ms > INT64_MAX - session.core.time_ns() // 1_000_000:
        raise CommandError(b"ERR timeout is out of range")
    return timeout_ms
