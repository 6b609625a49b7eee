"""WAIT and WAITAOF, with the replies of a leader without followers (spec 13).

They wait only for this connection's own writes, up to `session.wrote_lsn`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import FSYNCED
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import INT64_MAX, int64
from tidelog.engine.reply import Reply
from tidelog.server import errors
from tidelog.server.session import Session
from tidelog.store.commit.durability import unheld

FOLLOWERS: Final = 0  # number of followers that acknowledged

_NOT_ZERO_OR_ONE = b"ERR value is out of range, value must between 0 and 1"
_NOT_POSITIVE = b"ERR value is out of range, must be positive"
_TIMEOUT = b"ERR timeout is not an integer or out of range"


def wait(session: Session, args: list[bytes]) -> Reply:
    """WAIT numreplicas timeout"""
    wanted = int64(args[1])
    timeout_ms = _timeout(session, args[2])
    if wanted <= FOLLOWERS or session.in_exec:
        return FOLLOWERS
    return _wait(session, timeout_ms)


async def _wait(session: Session, timeout_ms: int) -> Reply:
    await _block(session, None, timeout_ms)
    return FOLLOWERS


def waitaof(session: Session, args: list[bytes]) -> Reply:
    """WAITAOF numlocal numreplicas timeout

    Redis waits for its fsync policy, with `no` perhaps for ever. We request a sync from the log, one for all concurrent
    waiters, so with numlocal 1 the reply comes soon under every policy.
    """
    local = int64(args[1])
    if not 0 <= local <= 1:
        raise CommandError(_NOT_ZERO_OR_ONE)
    followers = int64(args[2], _NOT_POSITIVE)
    if followers < 0:
        raise CommandError(_NOT_POSITIVE)
    timeout_ms = _timeout(session, args[3])
    log = session.core.log
    # After a recovery, the new log may end before units that this session wrote. Their callers got an error, so do not
    # wait for those units.
    lsn = min(session.wrote_lsn, log.next_lsn - 1)
    synced = lsn <= log.synced_lsn
    if (synced >= local and followers <= FOLLOWERS) or session.in_exec:
        return [int(synced), FOLLOWERS]
    return _wait_for_disk(session, lsn, bool(local), followers, timeout_ms)


async def _wait_for_disk(
    session: Session, lsn: int, local: bool, followers: int, timeout_ms: int
) -> Reply:
    """Wait until the write is on disk, or for the whole timeout if followers are requested as well."""
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
    await _block(session, None if followers > FOLLOWERS else synced, timeout_ms)
    error = synced.result() if synced.done() else None
    if error is not None:
        raise unheld(error, True)
    return [int(lsn <= log.synced_lsn), FOLLOWERS]


async def _block(
    session: Session, until: asyncio.Future[LogPoisoned | None] | None, timeout_ms: int
) -> None:
    """Wait for `until`, the timeout (0 = none) or CLIENT UNBLOCK. Raises CommandError if CLIENT UNBLOCK asks for an
    error.
    """
    unblocked = session.unblocked()
    try:
        await asyncio.wait(
            (unblocked,) if until is None else (unblocked, until),
            timeout=timeout_ms / 1000 if timeout_ms else None,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if unblocked.done() and unblocked.result():
            raise CommandError(errors.UNBLOCKED)
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
