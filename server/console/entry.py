"""Entry: who may look into a console, and how it asks the store. The console of a server and that of `tidelog console`
have one each: users.py, ticket.py.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tidelog.engine.errors import CommandError
from tidelog.server.http import Request


class Refusal(Exception):
    """The request is not answered. `login`: a login may help."""

    def __init__(self, status: int, text: str, *, login: bool = False) -> None:
        super().__init__(text)
        self.status, self.login = status, login


def same(given: str, known: str) -> bool:
    """Whether two texts are equal. The time taken does not reveal how much of `given` is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), known.encode())


class NoAnswer(Exception):
    """The store does not answer, or its server has stopped."""


class Link:
    """A connection to the store, signed in as one user."""

    def ask(self, *words: bytes) -> Any:
        """The reply of one command: bytes, int, list or None. Raises CommandError, NoAnswer."""
        (reply,) = self.ask_all([words])
        if isinstance(reply, CommandError):
            raise reply
        return reply

    def ask_all(self, commands: Iterable[Sequence[bytes]]) -> list[Any]:
        """The replies of several commands; that of a failed one is a CommandError. Raises NoAnswer."""
        raise NotImplementedError


class Visitor(Protocol):
    """A reader who is known.

    name    as the page shows it
    csrf    what a request that changes something has to repeat
    """

    @property
    def name(self) -> str: ...

    @property
    def csrf(self) -> str: ...


class Entry(Protocol):
    """See the module docstring.

    off        why nothing is answered; empty: the console is on
    read_only  why nothing can be changed; empty: visitors with the rights can change
    signs_in   whether visitors sign in with a password
    tells      whether `life` can tell what happened to a job
    """

    signs_in: bool
    tells: bool

    @property
    def off(self) -> str: ...

    @property
    def read_only(self) -> str: ...

    def find(self, token: str) -> Visitor | None:
        """The visitor with this cookie, which counts as used now."""

    def enter(self, given: dict[str, Any], peer: str) -> tuple[str, Visitor]:
        """(cookie, visitor) of a login. Raises Refusal."""

    def leave(self, token: str) -> None:
        """The visitor with this cookie leaves."""

    def refusal(self, request: Request) -> str | None:
        """Why a reader who is not known may not look; None: that reader may."""

    def link(
        self, visitor: Visitor | None, request: Request, *, changes: bool
    ) -> AbstractContextManager[Link]:
        """A link of the visitor. `changes`: it is to change something. Raises NoAnswer."""

    def life(self, key: bytes, job: int) -> list[dict[str, Any]]:
        """The life of a job as the log tells it; called if `tells`. Raises Refusal."""
