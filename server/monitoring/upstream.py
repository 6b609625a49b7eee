"""Upstream: the link to the leader, as CLIENT LIST shows it and CLIENT KILL finds it.

In Redis the connection to the leader is a client like any other. Here replication/link.py dials it, and it has no
session. It is listed while the leader sends.
"""

from __future__ import annotations

from tidelog.server.connection import address_name
from tidelog.server.host import Host
from tidelog.server.session import Session
from tidelog.store.commit.attached import Linking, Peers


class Upstream:
    """One connection to the leader.

    created    the loop's time
    """

    def __init__(self, id: int, link: Linking, connected: Peers) -> None:
        self.id = id
        self.addr, self.laddr = address_name(connected.peer), address_name(connected.own)
        self.created = connected.opened_at
        self.connected = connected
        self._link = link

    def line(self, now: float) -> bytes:
        """Return its line in CLIENT LIST, with the line end."""
        idle = max(int(now - self._link.follower.heard_at), 0)
        shown = (
            f"id={self.id} addr={self.addr} laddr={self.laddr} fd={self.connected.fd} name="
            f" age={int(now - self.created)} idle={idle} flags=M db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0"
            " qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=tidelog|follow"
            " user=(superuser) redir=-1 resp=3 lib-name= lib-ver=\n"
        )
        return shown.encode("utf-8", "surrogateescape")

    def kill(self) -> None:
        """End the connection. The link dials again."""
        self._link.kill()


class Upstreams:
    """Gives each connection to the leader an ID of its own."""

    def __init__(self, server: Host[Session]) -> None:
        self._server = server
        self._last: Upstream | None = None

    def now(self) -> Upstream | None:
        """The connection to the leader, or None."""
        link = self._server.core.link
        connected = None if link is None else link.connected
        if link is None or connected is None:
            self._last = None
        elif self._last is None or self._last.connected is not connected:
            self._last = Upstream(self._server.next_id(), link, connected)
        return self._last
