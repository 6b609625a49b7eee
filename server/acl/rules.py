"""Rules for users: parses and applies the words of ACL SETUSER, such as `on`, `>password`, `~pattern`, `+@read`.

Semantics are those of Redis 7.0. Command rules are kept and shown in the order in which they were given, as Redis does
since 7.2; Redis 7.0 shows an equivalent list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tidelog.engine.errors import echo
from tidelog.server.acl.commands import Catalog
from tidelog.server.acl.keys import READ, WRITE
from tidelog.server.acl.user import User, hashed

SYNTAX: Final = b"Syntax error"
UNKNOWN: Final = b"Unknown command or category name in ACL"
KEYS_AFTER_ALL: Final = (
    b"Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try "
    b"'resetkeys' to start with an empty list of patterns"
)
CHANNELS_AFTER_ALL: Final = (
    b"Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try "
    b"'resetchannels' to start with an empty list of channels"
)
BAD_HASH: Final = b"The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
NO_SUCH_PASSWORD: Final = b"The password you are trying to remove from the user does not exist"
FIRST_ARG_OF_SUB: Final = b"Allowing first-arg of a subcommand is not supported"
FIRST_ARG: Final = b"Allowing first-arg of a command is not supported"
SELECTOR: Final = b"Selectors are not supported"

_HASH = re.compile(rb"[0-9a-f]{64}")
_MARK = re.compile(rb"%(?:R|W|RW|WR)(?:~|\Z)", re.IGNORECASE)


class RuleError(Exception):
    """An invalid rule. `text` is the rule in quotes and the reason; a password is redacted."""

    def __init__(self, rule: bytes, reason: bytes) -> None:
        shown = (
            rule[:1] + b"(redacted)"
            if rule[:1] in (b">", b"<", b"#", b"!")
            else echo(rule, 1 << 16)
        )
        self.text = b"'%b': %b" % (shown, reason)
        super().__init__(self.text.decode("utf-8", "backslashreplace"))


def apply(user: User, rules: Iterable[bytes], catalog: Catalog) -> None:
    """Apply rules in order. Raises RuleError, which leaves the user partly changed."""
    for rule in rules:
        reason = _apply(user, rule, catalog)
        if reason is not None:
            raise RuleError(rule, reason)
    user.all_commands = user.granted >= catalog.every
    user.settle()


def has_spaces(word: bytes) -> bool:
    """Whether a name or pattern contains whitespace or NUL, which a user's line cannot represent."""
    return any(byte in b" \t\n\v\f\r\0" for byte in word)


def _apply(user: User, rule: bytes, catalog: Catalog) -> bytes | None:
    """Apply one rule. Return the reason why it is invalid, or None."""
    word = rule.lower()
    sign = rule[:1]
    if word == b"reset":
        for each in (
            b"resetpass",
            b"resetkeys",
            b"resetchannels",
            b"off",
            b"sanitize-payload",
            b"-@all",
        ):
            _apply(user, each, catalog)
    elif word == b"clearselectors":
        pass  # there are none
    elif word in (b"sanitize-payload", b"skip-sanitize-payload"):
        user.sanitize = word == b"sanitize-payload"
    elif word in (b"on", b"off"):
        user.enabled = word == b"on"
    elif word in (b"nopass", b"resetpass"):
        user.nopass = word == b"nopass"
        user.passwords.clear()
    elif word in (b"allkeys", b"~*"):
        user.all_keys = True
        user.keys.clear()
    elif word == b"resetkeys":
        user.all_keys = False
        user.keys.clear()
    elif word in (b"allchannels", b"&*"):
        user.all_channels = True
        user.channels.clear()
    elif word == b"resetchannels":
        user.all_channels = False
        user.channels.clear()
    elif word in (b"allcommands", b"+@all", b"nocommands", b"-@all"):
        user.base = word in (b"allcommands", b"+@all")
        user.granted = catalog.every if user.base else frozenset()
        user.rules.clear()
    elif sign in (b">", b"#", b"<", b"!"):
        return _password(user, sign, rule[1:])
    elif sign in (b"~", b"%"):
        return _keys(user, rule)
    elif sign == b"&":
        return _channel(user, rule[1:])
    elif sign in (b"+", b"-"):
        return _commands(user, sign, word[1:], catalog)
    elif sign == b"(":
        return SELECTOR
    elif rule:
        return SYNTAX
    return None


def _password(user: User, sign: bytes, word: bytes) -> bytes | None:
    if sign in (b"#", b"!") and not _HASH.fullmatch(word):
        return BAD_HASH
    stored = word if sign in (b"#", b"!") else hashed(word)
    if sign in (b">", b"#"):
        if stored not in user.passwords:
            user.passwords.append(stored)
        user.nopass = False
        return None
    if stored not in user.passwords:
        return NO_SUCH_PASSWORD
    user.passwords.remove(stored)
    return None


def _keys(user: User, rule: bytes) -> bytes | None:
    if user.all_keys:
        return KEYS_AFTER_ALL
    may, start = READ | WRITE, 1
    if rule[:1] == b"%":
        mark = _MARK.match(rule)
        if mark is None:
            return SYNTAX
        start = mark.end()
        letters = mark[0].upper()
        may = (READ if b"R" in letters else 0) | (WRITE if b"W" in letters else 0)
    pattern = rule[start:]
    if has_spaces(pattern):
        return SYNTAX
    user.keys[pattern] = user.keys.get(pattern, 0) | may
    return None


def _channel(user: User, pattern: bytes) -> bytes | None:
    if user.all_channels:
        return CHANNELS_AFTER_ALL
    if has_spaces(pattern):
        return SYNTAX
    if pattern not in user.channels:
        user.channels.append(pattern)
    return None


def _commands(user: User, sign: bytes, name: bytes, catalog: Catalog) -> bytes | None:
    """`name` is in lower case: a command, `container|sub`, or `@category`."""
    if name[:1] == b"@":
        found = catalog.category(name[1:])
    else:
        found = catalog.named(name)
        container, bar, sub = name.rpartition(b"|")
        if sign == b"+" and bar and catalog.named(container) is not None:
            if b"|" in container:
                return FIRST_ARG_OF_SUB
            if not sub:
                return SYNTAX
            if not catalog.is_container(container):
                return FIRST_ARG
    if found is None:
        return UNKNOWN
    user.granted = user.granted | found if sign == b"+" else user.granted - found
    # The new rule replaces earlier rules for this command and for its subcommands.
    part = name + b"|"
    user.rules = [r for r in user.rules if r[1:] != name and not r[1:].startswith(part)]
    user.rules.append(sign + name)
    return None
