"""TIDELOG FOLLOW: a follower asks for the frames of the log, and its connection becomes a link (server/feeding.py).

From then on `_Link` is the protocol of its transport, and the bytes are messages (replication/protocol.py).

replication/handshake.py describes the request and the replies. Redis's own replication is refused: a Redis replica
could not read what a tidelog leader sends.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from tidelog.aof.epochs import generation
from tidelog.aof.errors import AofError
from tidelog.aof.seek import Source
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply, Status
from tidelog.replication.dial import give_up_after
from tidelog.replication.errors import ReplicationError
from tidelog.replication.feeds import AHEAD_BYTES_MAX, Downstream
from tidelog.replication.handshake import (
    EACH_OTHER,
    Follow,
    Refuse,
    Resync,
    Superseded,
    parse_follow,
    parse_reply,
)
from tidelog.server.connection import Connection
from tidelog.server.feeding import ReadAhead
from tidelog.server.host import Links
from tidelog.server.saving import in_thread
from tidelog.server.session import Session
from tidelog.server.wire.replies import NO_REPLY

CLOSING_S: Final = 10.0  # a follower that takes no bytes is told for so long why its link ends
_NOT_OURS = (
    b"ERR tidelog ships the frames of its own log and not Redis's replication stream: let a tidelog server follow this "
    b"one with REPLICAOF, or copy the data with `tidelog aof export`"
)
# As Redis says it, and whose link that is.
_NO_MASTER_LINK: Final = b"NOMASTERLINK Can't SYNC while not connected with my master %b"
_CIRCLE: Final = b"NOMASTERLINK Can't SYNC: " + EACH_OTHER.encode()
_READ_ONLY = "this store is open read-only, and its writer ships its log"


async def follow(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG FOLLOW version uuid id port lsn crc lives [REPLACE] [COPY] [COMPRESS]"""
    server, connection = session.server, session.connection
    assert isinstance(connection, Connection)
    feeding = server.replicating.feeding
    ahead: list[ReadAhead] = []

    def through(source: Source) -> ReadAhead:
        ahead.append(ReadAhead(source, feeding))
        return ahead[0]

    try:
        asked = parse_follow(args)
        asked = asked._replace(compress=asked.compress and server.config["repl-compression"])
        if session.core.checkpoints is None:
            raise _refused(_READ_ONLY)
        async with feeding.shaking.turn():
            if session.closed or connection.closing:
                return NO_REPLY  # it has waited for others, and is gone
            _check_that_it_leads(session, asked, _host(asked, connection))
            now = server.loop.time()
            line, feed = await in_thread(
                partial(feeding.feeds.answer, asked, now, through)  # it reads the log
            )
        if feed is None:
            reply = parse_reply(line)
            if isinstance(reply, Resync) and not asked.heir:
                return _offer(session, connection, asked, reply)
            if isinstance(reply, Superseded):
                name = f"{_host(asked, connection)}:{asked.port}"
                feeding.feeds.supersede(name, generation(asked.lives[0].number))
            if line.startswith(b"-"):
                raise CommandError(line[1:-2])
            return Status(line[1:-2])
    except ReplicationError as error:
        raise _refused(str(error)) from error
    except (AofError, OSError) as error:
        raise _refused(f"the log cannot be read: {error}") from error
    if session.closed or connection.closing:
        ahead[0].close()
        return NO_REPLY
    if asked.heir:  # it asked how its handover ended, and comes again as a follower
        ahead[0].close()
        return Status(line[1:-2])
    rival = feeding.feeds.rival(asked.id, server.loop.time())
    if rival is None and (connection.left_over or connection.requests.pending):
        rival = "it sent more commands behind TIDELOG FOLLOW"
    if rival is not None:
        ahead[0].close()
        raise _refused(rival)
    link = Downstream(
        asked.id, _host(asked, connection), asked.port, feed, _Sink(connection), ahead[0].close
    )
    _hand_over(session, connection, line, _Link(feeding, connection, link))
    session.follower = link
    feeding.begin(link, asked.lsn)
    return NO_REPLY


def _offer(session: Session, connection: Connection, asked: Follow, reply: Resync) -> Reply:
    """Hand the connection over to an offering of a snapshot (server/offering.py)."""
    feeding = session.server.replicating.feeding
    if session.closed or connection.closing:
        return NO_REPLY
    if connection.left_over or connection.requests.pending:
        raise _refused("it sent more commands behind TIDELOG FOLLOW")
    name = f"{_host(asked, connection)}:{asked.port}"
    # The follower goes on behind what both have. A snapshot that is older would take back what it confirmed.
    offering = feeding.offerings.begin(asked, reply.shared, name, _Sink(connection))
    session.follower = offering
    _hand_over(session, connection, reply.line(), _Offered(offering, connection))
    return NO_REPLY


def _check_that_it_leads(session: Session, asked: Follow, host: str) -> None:
    """Raise CommandError if this store follows, and gets nothing itself: it follows the store that asks, or is not
    connected.

    Else stores that follow each other would look connected, and each would wait for the other. A store that asks
    itself, or how its handover ended, gets the answer of the history.
    """
    link, replicating = session.core.link, session.server.replicating
    role = replicating.role
    if not replicating.following or link is None or asked.heir or asked.id.hex() == role.id:
        return
    if (role.host, role.port) == (host, asked.port):
        raise CommandError(_CIRCLE)
    if not link.up:
        raise CommandError(_NO_MASTER_LINK % f"{role.host}:{role.port}".encode())


def _host(asked: Follow, connection: Connection) -> str:
    return asked.host or connection.addr.rpartition(":")[0].strip("[]")


def _hand_over(
    session: Session, connection: Connection, line: bytes, protocol: asyncio.Protocol
) -> None:
    """Reply, and let the connection be a link from now on."""
    connection.send(line)
    connection.transport.set_protocol(protocol)


def _refused(reason: str) -> CommandError:
    return CommandError(Refuse(reason).line()[1:-2])


def foreign(session: Session, args: list[bytes]) -> Reply:
    """PSYNC, SYNC, REPLCONF: refused."""
    raise CommandError(_NOT_OURS)


class _Link(asyncio.Protocol):
    """The protocol of a connection that was handed over."""

    def __init__(self, feeding: Links, connection: Connection, link: Downstream) -> None:
        self._feeding, self._connection, self._link = feeding, connection, link

    def data_received(self, data: bytes) -> None:
        self._feeding.received(self._link, data)

    def resume_writing(self) -> None:
        self._feeding.pump()

    def connection_lost(self, error: Exception | None) -> None:
        self._feeding.lost(self._link, error)
        self._connection.connection_lost(error)


class _Offered(asyncio.Protocol):
    """The protocol of a connection that was handed over to an offering."""

    def __init__(self, offering: asyncio.Protocol, connection: Connection) -> None:
        self._offering, self._connection = offering, connection

    def data_received(self, data: bytes) -> None:
        self._offering.data_received(data)

    def resume_writing(self) -> None:
        self._offering.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._offering.connection_lost(error)
        self._connection.connection_lost(error)


class _Sink:
    """The `Sink` of a connection that was handed over."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def unsent(self) -> int:
        connection = self._connection
        if connection.out or connection.withheld:  # the reply to TIDELOG FOLLOW goes first
            return AHEAD_BYTES_MAX
        return connection.transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        self._connection.write(data)

    def close(self) -> None:
        # Not before: the system would also end a connection whose other side only reads slowly, or not for a while.
        peer = self._connection.transport.get_extra_info("socket")
        if peer is not None and self._connection.kind != "unix":
            give_up_after(peer, CLOSING_S)
        self._connection.close_soon()

    def kill(self) -> None:
        self._connection.kill()
