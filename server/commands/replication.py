"""REPLICAOF, SLAVEOF and ROLE (spec 16.4), and TIDELOG STATUS, DIGEST, VERIFY. server/replicating.py does the work."""

from __future__ import annotations

import asyncio
import json
from functools import partial

from tidelog.aof.errors import AofError
from tidelog.engine.api import wrong_arity
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Reply, Status
from tidelog.replication.errors import Different, ProtocolError, ReplicationError
from tidelog.replication.handover import NOT_TOLD_YET
from tidelog.replication.status import of_open
from tidelog.replication.verify import answer, parse_frame_end
from tidelog.server.saving import in_thread
from tidelog.server.session import Session
from tidelog.server.wire.replies import NO_REPLY
from tidelog.store.errors import DataError, TidelogError

_BAD_PORT = b"ERR Invalid master port"
_BAD_HOST = b"ERR Invalid master host"
_READ_ONLY = b"ERR this store is open read-only, so its role cannot be changed here"
_NO_STATUS = b"ERR this store is open read-only: ask the server of its writer"
_FAILING_OVER = b"ERR REPLICAOF not allowed while failing over."
_SAME = Status(b"OK Already connected to specified master")


async def replicaof(session: Session, args: list[bytes]) -> Reply:
    """REPLICAOF host port [REPLACE] | NO ONE: follow a leader from now on, or lead. The role is on the disk before OK.

    REPLACE    a person agrees that records are set aside if the leader's history does not have them
    """
    server = session.server
    replace = len(args) == 4 and args[3].lower() == b"replace"
    if len(args) > 3 and not replace:
        raise wrong_arity(args[0].lower())
    if session.core.checkpoints is None:
        raise CommandError(_READ_ONLY)
    if server.replicating.handing.state in NOT_TOLD_YET:
        raise CommandError(_FAILING_OVER)
    if args[1].lower() == b"no" and args[2].lower() == b"one":
        if replace:
            raise CommandError(SYNTAX)
        if server.replicating.following:
            await in_thread(server.replicating.promote)
        return OK
    port = int64(args[2], _BAD_PORT)
    if not 0 < port <= 65535:
        raise CommandError(_BAD_PORT)
    try:
        host = args[1].decode("ascii")
    except UnicodeDecodeError:
        raise CommandError(_BAD_HOST) from None
    role = server.replicating.role
    same = (role.kind, role.host, role.port) == ("follower", host, port)
    if not replace and same:
        return _SAME
    try:
        await in_thread(partial(server.replicating.follow, host, port, replace))
    except DataError as error:
        raise CommandError(_BAD_HOST) from error
    return OK


async def status(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG STATUS: role, followers, lag and log, as a JSON object (replication/status.py)."""
    server, core = session.server, session.core
    if core.roles is None:
        raise CommandError(_NO_STATUS)
    feeding = server.replicating.feeding
    fetching = [str(each) for each in feeding.offerings]
    complete = of_open(core, feeding.feeds, fetching, server.loop.time())
    try:
        return json.dumps(await in_thread(complete)).encode()
    except (AofError, OSError) as error:
        raise CommandError(
            b"ERR the store cannot be read: %b" % str(error).encode(errors="surrogateescape")
        ) from error


def role(session: Session, args: list[bytes]) -> Reply:
    """ROLE: what this server is, and how far it and its followers are. Offsets are LSNs, as in INFO."""
    core, replicating = session.core, session.server.replicating
    if replicating.following:
        found, link = replicating.role, core.link
        state = b"none" if link is None else link.state.encode()
        return [b"slave", found.host.encode(), found.port, state, core.log.written_lsn]
    followers: list[Reply] = [
        [link.host.encode(), b"%d" % link.port, b"%d" % link.feed.acked_lsn]
        for link in replicating.feeding.feeds
    ]
    return [b"master", core.log.next_lsn - 1, followers]


async def digest(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG DIGEST lsn crc: the digest of the state at an LSN (replication/verify.py)."""
    core = session.core
    if core.roles is None:
        raise CommandError(_NO_STATUS)
    try:
        place = parse_frame_end(args)
        async with session.server.replicating.digesting:
            if session.closed:
                return NO_REPLY  # it has waited for others, and needs no process any more
            line = await in_thread(partial(answer, core, place))
    except ProtocolError as error:
        raise CommandError(b"ERR %b" % error.reason.encode()) from error
    except AofError as error:
        raise CommandError(
            b"ERR the store cannot be read: %b" % str(error).encode(errors="surrogateescape")
        ) from error
    if line.startswith(b"-"):
        raise CommandError(line[1:])
    return Status(line[1:])


async def verify(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG VERIFY: compare the data of this follower with its leader's. +SAME and the LSN, or an error."""
    link = session.core.link
    if session.core.following is None or link is None:
        raise CommandError(b"ERR this store follows no leader")
    try:
        lsn = await asyncio.wrap_future(link.verify())
    except Different as error:
        raise CommandError(b"DIFFERENT %b" % str(error).encode(errors="surrogateescape")) from error
    except (ReplicationError, TidelogError, AofError, OSError) as error:
        raise CommandError(
            b"ERR %b" % " ".join(str(error).split()).encode(errors="surrogateescape")
        ) from error
    return Status(b"SAME %d" % lsn)
