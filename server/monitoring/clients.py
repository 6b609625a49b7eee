"""The line for one client in CLIENT LIST and CLIENT INFO (spec 16.1), and the check of client names.

Fields for buffers that we do not have are 0: arguments and reply buffers (argv-mem, rbs, rbp, obl, qbuf-free).
`tot-mem` is the memory kept for the connection's input, transaction and output.
"""

from __future__ import annotations

import re

from tidelog.server.session import Session

# CLIENT LIST separates fields by blanks, so names must be printable and without blanks.
_PLAIN = re.compile(rb"[!-~]*")


def is_plain(name: bytes) -> bool:
    """Whether a name has no blanks, line ends or special characters; an empty one unsets it."""
    return _PLAIN.fullmatch(name) is not None


def client_type(session: Session) -> bytes:
    """`normal`, `pubsub`, or `slave` for a follower."""
    if session.follower is not None:
        return b"slave"
    return b"pubsub" if session.subscribed else b"normal"


def flags(session: Session) -> str:
    """The letters of `flags=`, in Redis's order."""
    letters = ""
    if session.follower is not None:
        letters += "S"
    if session.monitor:
        letters += "O"
    if session.subscribed:
        letters += "P"
    if session.transaction.active:
        letters += "x"
    if session.waits:
        letters += "b"
    if session.transaction.broken:
        letters += "d"
    if session.connection.closing:
        letters += "c"
    if session.connection.kind == "unix":
        letters += "U"
    if session.no_evict:
        letters += "e"
    if session.no_touch:
        letters += "T"
    return letters or "N"


def line(session: Session, running: bytes = b"") -> bytes:
    """Return the line for one client, with its line end. `running`: the command in progress, for the calling client."""
    connection, transaction = session.connection, session.transaction
    server = session.server
    pending, unread = connection.requests.pending, connection.unread_bytes
    queued = transaction.queued_bytes
    shown = (
        f"id={session.id} addr={connection.addr} laddr={connection.laddr} fd={connection.fd}"
        f" name={session.name.decode()} age={int(server.loop.time() - connection.created)}"
        f" idle={max(int(server.clock - session.last_active), 0)} flags={flags(session)} db={session.db}"
        f" sub={len(session.channels)} psub={len(session.patterns)}"
        f" ssub={len(session.shard_channels)}"
        f" multi={transaction.queued if transaction.active else -1}"
        f" watch={len(transaction.watched)} qbuf={pending} qbuf-free=0 argv-mem=0"
        f" multi-mem={queued} rbs=0 rbp=0 obl=0 oll={len(connection.withheld)} omem={unread}"
        f" tot-mem={pending + queued + unread} events={'rw' if unread else 'r'}"
        f" cmd={(running or session.last_command).decode() or 'NULL'}"
        f" user={session.user.name.decode('utf-8', 'surrogateescape')} redir=-1"
        f" resp={session.protocol} lib-name={session.lib_name.decode()}"
        f" lib-ver={session.lib_ver.decode()}\n"
    )
    return shown.encode("utf-8", "surrogateescape")
