"""Users: the entry of a server's own console. A reader without a login is the default user, with a login that user.

Without a login the console is open only while the default user needs no password, in protected mode only from this
machine, and only under an IP address or `localhost`, since the page of another site can make a browser believe that
its own name stands for this machine.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from tidelog.server.acl.user import User
from tidelog.server.connection import ConnectionHost
from tidelog.server.console.entry import Refusal, Visitor
from tidelog.server.console.link import Link
from tidelog.server.console.logins import Login, Logins, TooMany
from tidelog.server.http import Request

_logger = logging.getLogger("tidelog.server")


class Users:
    """See the module docstring. `Entry` describes its members."""

    signs_in = True
    tells = False

    def __init__(self, server: ConnectionHost, clock: Callable[[], float] = monotonic) -> None:
        self._server = server
        self.logins = Logins(server.acl, clock)

    @property
    def off(self) -> str:
        """See `Entry`."""
        on = self._server.config["console"]
        return "" if on else "the console is switched off (option console)"

    @property
    def read_only(self) -> str:
        """See `Entry`."""
        may = self._server.config["console-write"]
        return "" if may else "the console only reads; the option console-write is no"

    def find(self, token: str) -> Login | None:
        """See `Entry`."""
        return self.logins.find(token)

    def enter(self, given: dict[str, Any], peer: str) -> tuple[str, Login]:
        """See `Entry`."""
        user, password = given.get("user"), given.get("password")
        if not isinstance(user, str) or not isinstance(password, str):
            raise Refusal(400, "user and password must be texts")
        try:
            found = self.logins.sign_in(user, password, peer)
        except TooMany:
            raise Refusal(429, "too many failed logins from this address; wait a minute") from None
        except UnicodeEncodeError:
            found = None
        if found is None:
            _logger.warning("console: %s at %s could not sign in", ascii(user[:100]), peer)
            raise Refusal(
                401, "wrong user or password, or a user who is off or needs no password", login=True
            )
        _logger.info("console: user %s at %s signed in", ascii(user), peer)
        return found

    def leave(self, token: str) -> None:
        """See `Entry`."""
        self.logins.sign_out(token)

    def refusal(self, request: Request) -> str | None:
        """See `Entry`."""
        if not self._server.acl.default.open:
            return "sign in: the default user has a password"
        if self._server.config["protected-mode"] and not _is_loopback(request.peer[0]):
            return "sign in: in protected mode, only this machine reads without a login"
        host = _host(f"//{request.header('Host')}")
        if host != "localhost" and _address(host) is None:
            return "sign in, or use an IP address or localhost instead of a host name"
        return None

    def link(self, visitor: Visitor | None, request: Request, *, changes: bool) -> Link:
        """See `Entry`."""
        user: User = visitor.user if isinstance(visitor, Login) else self._server.acl.default
        host, port = request.peer
        return Link(self._server, user, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    def life(self, key: bytes, job: int) -> list[dict[str, Any]]:
        """See `Entry`."""
        raise Refusal(404, "the log is read by `tidelog console` and `tidelog why`")


def _host(url: str) -> str:
    """The name or address in a URL, without brackets and port; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(peer: str) -> bool:
    address = _address(peer)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(address is not None and (mapped or address).is_loopback)
