"""Ticket: the entry of `tidelog console`. A link with a token lets one browser in, once; its cookie then does.

The holder of the link has the rights of the user who ran the command. So the token is used up by its first use, and a
second use is refused, which tells its owner that somebody else was faster.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tidelog.server.console.entry import Link, Refusal, Visitor, same
from tidelog.server.http import Request

AGAIN = "run `tidelog console` again for a new link"


class Guest(NamedTuple):
    """The browser that came with the token."""

    name: str
    csrf: str


class Ticket:
    """See the module docstring. `Entry` describes its other members.

    token    the one-time token
    """

    signs_in = False
    off = read_only = ""

    def __init__(
        self,
        name: str,
        links: Callable[[bool], AbstractContextManager[Link]],
        lives: Callable[[bytes, int], list[dict[str, Any]]] | None,
    ) -> None:
        """`links` opens a link (True: for changes); `lives` tells the life of a job, None: nobody can."""
        self.token = secrets.token_urlsafe(32)
        self.tells = lives is not None
        self._links, self._lives = links, lives
        self._guest = Guest(name, secrets.token_urlsafe(32))
        self._cookie = ""
        self._lock = threading.Lock()

    def find(self, token: str) -> Guest | None:
        """See `Entry`."""
        with self._lock:
            return self._guest if self._cookie and same(token, self._cookie) else None

    def enter(self, given: dict[str, Any], peer: str) -> tuple[str, Guest]:
        """See `Entry`."""
        token = given.get("token")
        with self._lock:
            if not isinstance(token, str) or not self.token or not same(token, self.token):
                raise Refusal(401, f"this link is wrong, or was used already; {AGAIN}")
            self.token, self._cookie = "", secrets.token_urlsafe(32)
            return self._cookie, self._guest

    def leave(self, token: str) -> None:
        """See `Entry`."""
        with self._lock:
            self._cookie = ""

    def refusal(self, request: Request) -> str | None:
        """See `Entry`."""
        return f"open the link that `tidelog console` printed; if it was used already, {AGAIN}"

    def link(
        self, visitor: Visitor | None, request: Request, *, changes: bool
    ) -> AbstractContextManager[Link]:
        """See `Entry`."""
        return self._links(changes)

    def life(self, key: bytes, job: int) -> list[dict[str, Any]]:
        """See `Entry`."""
        assert self._lives is not None
        return self._lives(key, job)
