"""FAILOVER (spec of Redis 7.0): hand over to a follower. server/handing.py does the work, after the reply."""

from __future__ import annotations

from typing import Final

from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Reply
from tidelog.replication.feeds import Downstream
from tidelog.replication.handover import State, TooLate
from tidelog.server.session import Session

_TIMEOUT: Final = b"ERR FAILOVER timeout must be greater than 0"
_NONE: Final = b"ERR No failover in progress."
_ALREADY: Final = b"ERR FAILOVER already in progress."
_REPLICA: Final = b"ERR FAILOVER is not valid when server is a replica."
_NO_REPLICAS: Final = b"ERR FAILOVER requires connected replicas."
_FORCE: Final = b"ERR FAILOVER with force option requires both a timeout and target HOST and IP."
_NOT_A_REPLICA: Final = b"ERR FAILOVER target HOST and PORT is not a replica."
_NOT_ONLINE: Final = b"ERR FAILOVER target replica is not online."
# Redis's replicas always serve clients.
_NO_PORT: Final = (
    b"ERR FAILOVER needs a replica that serves clients on a port, so that this server can follow it, and %b "
    b"announces port 0: set its `port`, `tls-port` or `replica-announce-port`, or serve the embedded store with "
    b"tidelog.serve"
)


def failover(session: Session, args: list[bytes]) -> Reply:
    """FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]. The reply comes before the handover."""
    replicating = session.server.replicating
    handing, feeding = replicating.handing, replicating.feeding
    if len(args) == 2 and args[1].lower() == b"abort":
        if handing.state is State.HANDED_OVER:
            raise CommandError(_NONE)
        try:
            handing.abort()
        except TooLate as error:
            raise CommandError(b"ERR FAILOVER cannot be aborted: " + str(error).encode()) from error
        return OK
    timeout_ms, force = 0, False
    address: tuple[str, int] | None = None
    at = 1
    while at < len(args):
        word = args[at].lower()
        if word == b"timeout" and at + 1 < len(args) and not timeout_ms:
            timeout_ms = int64(args[at + 1])
            if timeout_ms <= 0:
                raise CommandError(_TIMEOUT)
            at += 2
        elif word == b"to" and at + 2 < len(args) and address is None:
            address = args[at + 1].decode(errors="replace"), int64(args[at + 2])
            at += 3
        elif word == b"force" and not force:
            force = True
            at += 1
        else:
            raise CommandError(SYNTAX)
    if handing.state is not State.HANDED_OVER:
        raise CommandError(_ALREADY)
    if replicating.following:
        raise CommandError(_REPLICA)
    if not len(feeding.feeds) + len(feeding.offerings):
        raise CommandError(_NO_REPLICAS)
    if force and (not timeout_ms or address is None):
        raise CommandError(_FORCE)
    target = None if address is None else _target(session, *address)
    serving = list(feeding.feeds) if target is None else [target]
    if serving and not any(link.port for link in serving):
        raise CommandError(_NO_PORT % b", ".join(str(link).encode() for link in serving))
    handing.begin(target, force, timeout_ms)
    return OK


def _target(session: Session, host: str, port: int) -> Downstream:
    feeding = session.server.replicating.feeding
    for link in feeding.feeds:
        if (link.host, link.port) == (host, port):
            return link
    fetching = f"{host}:{port}" in {str(offering) for offering in feeding.offerings}
    raise CommandError(_NOT_ONLINE if fetching else _NOT_A_REPLICA)
