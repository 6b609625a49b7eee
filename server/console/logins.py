"""Logins: who is signed in to the console. A login is a random token in a cookie; it names an ACL user.

A login ends with a logout, after IDLE_S without a request or LIFE_S in all, and as soon as the user is removed or
disabled or loses the password with which it signed in. Passwords are not kept; their hashes are those of the user.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.server.acl.user import User, hashed
from tidelog.server.acl.users import Acl
from tidelog.server.console import shown

IDLE_S: Final = 1800.0
LIFE_S: Final = 12 * 3600.0
LOGINS_MAX: Final = 100  # the one that was idle for longest makes room
FAILURES_MAX: Final = 10  # of one address within FAILURES_S
FAILURES_S: Final = 60.0
ADDRESSES_MAX: Final = 1000  # whose failures are remembered


class TooMany(Exception):
    """An address failed to sign in too often."""


class Login(NamedTuple):
    """A user who is signed in.

    csrf    what a request that changes something has to repeat
    secret  hash of the password
    """

    user: User
    csrf: str
    secret: bytes
    began: float

    @property
    def name(self) -> str:
        """The user's name as text."""
        return shown.text(self.user.name)


class Logins:
    """All logins of one server. Any thread may use it. `clock`: monotonic seconds."""

    def __init__(self, acl: Acl, clock: Callable[[], float]) -> None:
        self._acl = acl
        self._clock = clock
        self._lock = threading.Lock()
        self._logins: dict[str, Login] = {}  # in the order of their last use
        self._used: dict[str, float] = {}
        self._failures: dict[str, deque[float]] = {}

    def sign_in(self, name: str, password: str, peer: str) -> tuple[str, Login] | None:
        """(token, login); None if name or password is wrong, or the user needs no password. Raises TooMany."""
        now = self._clock()
        with self._lock:
            failures = self._failures.pop(peer, deque())
            self._failures[peer] = failures
            if len(self._failures) > ADDRESSES_MAX:
                del self._failures[next(iter(self._failures))]
            while failures and failures[0] <= now - FAILURES_S:
                failures.popleft()
            if len(failures) >= FAILURES_MAX:
                raise TooMany
            # Count the attempt before it is known whether it fails: others may be checked at the same time.
            failures.append(now)
        secret = hashed(password.encode())
        user = self._acl.authenticate(name.encode(), password.encode())
        with self._lock:
            if user is None or secret not in user.passwords:
                return None
            # Only this attempt was none: an address that signs in as one user has still failed as another.
            if now in failures:
                failures.remove(now)
            token, login = (
                secrets.token_urlsafe(32),
                Login(user, secrets.token_urlsafe(32), secret, now),
            )
            self._logins[token], self._used[token] = login, now
            while len(self._logins) > LOGINS_MAX:
                self._forget(next(iter(self._logins)))
            return token, login

    def find(self, token: str) -> Login | None:
        """The login of a token, which counts as used now."""
        now = self._clock()
        with self._lock:
            login = self._logins.get(token)
            if login is None:
                return None
            user = login.user
            stands = (
                now - login.began < LIFE_S
                and now - self._used[token] < IDLE_S
                and self._acl.users.get(user.name) is user
                and user.enabled
                and login.secret in user.passwords
            )
            self._forget(token)
            if not stands:
                return None
            self._logins[token], self._used[token] = login, now
            return login

    def sign_out(self, token: str) -> None:
        with self._lock:
            self._forget(token)

    def _forget(self, token: str) -> None:
        self._logins.pop(token, None)
        self._used.pop(token, None)
