"""One user: passwords, permissions, and their text form. acl_rules.py applies rules to it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from tidelog.engine.api import Command
from tidelog.engine.glob import matcher
from tidelog.server.acl.keys import READ, WRITE, access, keys

COMMAND, KEY, CHANNEL = "command", "key", "channel"  # reasons, as ACL LOG names them

# Maps a command to those of its arguments that are channels. Unsubscribing needs no permission, so it is missing here.
_CHANNELS = {
    b"publish": slice(1, 2),
    b"spublish": slice(1, 2),
    b"subscribe": slice(1, None),
    b"ssubscribe": slice(1, None),
    b"psubscribe": slice(1, None),
}


class User:
    """One user. Sessions refer to it; ACL SETUSER changes it in place, so that the change takes effect at once.

    passwords     SHA-256 in lower-case hex, in the order in which they were given
    granted       names of commands that it may call; any command if `all_commands`
    base, rules   the rules behind `granted`: start with all or none, then apply `+name` and `-name` in order
    keys          pattern -> READ | WRITE, READ or WRITE; any key if `all_keys`
    channels      patterns; any channel if `all_channels`
    sanitize      shown as sanitize-payload, else as skip-sanitize-payload; every payload is checked either way
    superuser     may do everything: then this is the only check for each command. Maintained by `settle`
    """

    __slots__ = (
        *("name", "enabled", "nopass", "sanitize"),
        *("passwords", "base", "rules", "granted", "all_commands"),
        *("keys", "all_keys", "channels", "all_channels", "superuser", "_keys", "_channels"),
    )

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.enabled = self.nopass = False
        self.sanitize = True
        self.passwords: list[bytes] = []
        self.base = False
        self.rules: list[bytes] = []
        self.granted: frozenset[bytes] = frozenset()
        self.all_commands = self.all_keys = self.all_channels = False
        self.keys: dict[bytes, int] = {}
        self.channels: list[bytes] = []
        self.settle()

    def settle(self) -> None:
        """Recompute what depends on the other fields. Call after a change."""
        self.superuser = self.all_commands and self.all_keys and self.all_channels
        self._keys: list[tuple[Callable[[bytes], object], int]] = [
            (matcher(pattern), may) for pattern, may in self.keys.items()
        ]
        self._channels = [matcher(pattern) for pattern in self.channels]

    def copy_from(self, other: User) -> None:
        """Copy everything from `other` except the name."""
        self.enabled, self.nopass, self.sanitize = other.enabled, other.nopass, other.sanitize
        self.passwords = list(other.passwords)
        self.base, self.rules, self.granted = other.base, list(other.rules), other.granted
        self.all_commands = other.all_commands
        self.keys, self.all_keys = dict(other.keys), other.all_keys
        self.channels, self.all_channels = list(other.channels), other.all_channels
        self.settle()

    def knows(self, password: bytes) -> bool:
        """Whether it is one of the user's passwords. The time taken reveals only their number."""
        given = hashed(password)
        right = False
        for stored in self.passwords:
            right |= hmac.compare_digest(stored, given)
        return right

    @property
    def open(self) -> bool:
        """Whether this user needs no password."""
        return self.enabled and self.nopass

    # --- permissions

    def may(self, key: bytes, needed: int = 0) -> bool:
        """Whether it may access the key in this way: READ | WRITE, READ, WRITE, or 0 to know of it."""
        return self.all_keys or self._allows_key(key, needed)

    def allows(self, command: Command) -> bool:
        """Whether it may call the command at all. Commands that work without authentication are always allowed."""
        return self.all_commands or command.name in self.granted or "no_auth" in command.flags

    def allows_channel(self, channel: bytes, is_pattern: bool = False) -> bool:
        """Whether it may use the channel. A pattern to subscribe to must equal one of its own patterns."""
        if self.all_channels:
            return True
        if is_pattern:
            return channel in self.channels
        return any(matches(channel) for matches in self._channels)

    def denies(self, command: Command, args: list[bytes]) -> tuple[str, bytes] | None:
        """Return the reason for a refusal and the command, key or channel concerned; None if allowed."""
        if self.superuser:
            return None
        name = command.name
        if not self.allows(command):
            return COMMAND, name
        if not self.all_keys:
            names = keys(command, args)
            if names:
                needed, then = access(command, args)
                for key in names:
                    if not self._allows_key(key, needed):
                        return KEY, key
                    needed = then
        if not self.all_channels:
            where = _CHANNELS.get(name)
            if where is not None:
                for channel in args[where]:
                    if not self.allows_channel(channel, name == b"psubscribe"):
                        return CHANNEL, channel
        return None

    def denies_wait(self, command: Command, args: list[bytes]) -> tuple[str, bytes] | None:
        """As `denies`, for a command that already waits. A disabled user may not go on waiting."""
        if not self.enabled:
            return COMMAND, command.name
        return self.denies(command, args)

    def _allows_key(self, key: bytes, needed: int) -> bool:
        return any(may & needed == needed and matches(key) for matches, may in self._keys)

    # --- text form

    def flags(self) -> list[bytes]:
        return [
            b"on" if self.enabled else b"off",
            *([b"nopass"] if self.nopass else []),
            b"sanitize-payload" if self.sanitize else b"skip-sanitize-payload",
        ]

    def shown_keys(self) -> bytes:
        if self.all_keys:
            return b"~*"
        marks = {READ | WRITE: b"~%b", READ: b"%%R~%b", WRITE: b"%%W~%b"}
        return b" ".join(marks[may] % pattern for pattern, may in self.keys.items())

    def shown_channels(self) -> bytes:
        return b"&*" if self.all_channels else b" ".join(b"&" + name for name in self.channels)

    def shown_commands(self) -> bytes:
        return b" ".join((b"+@all" if self.base else b"-@all", *self.rules))

    def line(self) -> bytes:
        """One line for ACL LIST and the config file: `user bob on #5e88... ~* resetchannels +@all`."""
        channels = self.shown_channels()
        words = [
            *(b"user", self.name, *self.flags()),
            *(b"#" + password for password in self.passwords),
            self.shown_keys(),
            channels if self.all_channels else (b"resetchannels " + channels).rstrip(b" "),
            self.shown_commands(),
        ]
        if not words[-3]:
            del words[-3]
        return b" ".join(words)


def hashed(password: bytes) -> bytes:
    """The stored form of a password: SHA-256 in lower-case hex."""
    return hashlib.sha256(password).hexdigest().encode()
