"""Users: their passwords, and the commands, keys and channels that each may use.

Pure: no connection, no clock, no files. The rules are those of Redis's ACL SETUSER, in rules.py. Parts of Redis's
that we lack (selectors, rules for single first arguments) are refused. Replies and errors are those of Redis 8.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.engine.api import Command, Table
from tidelog.engine.errors import CommandError, echo
from tidelog.server.acl.commands import Catalog
from tidelog.server.acl.log import AclLog
from tidelog.server.acl.rules import RuleError, apply, has_spaces
from tidelog.server.acl.user import CHANNEL, COMMAND, KEY, User

__all__ = ["Acl", "User"]

DEFAULT = b"default"

_NOPERM = {
    COMMAND: b"NOPERM User %b has no permissions to run the '%b' command",
    KEY: b"NOPERM No permissions to access a key",
    CHANNEL: b"NOPERM No permissions to access a channel",
}
_NOPERM_QUEUED = {
    COMMAND: b"no permission to execute the command or subcommand",
    KEY: b"no permission to touch the specified keys",
    CHANNEL: b"no permission to access one of the channels used as arguments",
}
_DRY = {
    COMMAND: b"User %b has no permissions to run the '%b' command",
    KEY: b"User %b has no permissions to access the '%b' key",
    CHANNEL: b"User %b has no permissions to access the '%b' channel",
}


def no_permission(user: User, denied: tuple[str, bytes]) -> CommandError:
    """The error for what `User.denies` returned."""
    reason, what = denied
    text = _NOPERM[reason]
    return CommandError(text % (user.name, what) if reason == COMMAND else text)


class Acl:
    """All users.

    users      by name; `default` always exists, and a new session is this user
    log        recent refusals
    catalog    the commands by names and categories
    """

    def __init__(self, table: Table, categories: Mapping[bytes, frozenset[str]]) -> None:
        """Create the users of a server with these commands; `categories`: see `server.table.Commands`."""
        self.catalog = Catalog(table, categories)
        self.log = AclLog()
        self.default = User(DEFAULT)
        self.users: dict[bytes, User] = {DEFAULT: self.default}
        self.setuser(DEFAULT, [b"on", b"nopass", b"~*", b"&*", b"+@all"])

    # --- signing in

    def authenticate(self, name: bytes, password: bytes) -> User | None:
        """Return the user, or None if there is no such user, the password is wrong, or the user is disabled."""
        user = self.users.get(name)
        # Check a password even if the user does not exist. Otherwise the time of the reply would reveal which names
        # exist.
        right = (user or self.default).knows(password)
        if user is None or not user.enabled or not (right or user.nopass):
            return None
        return user

    def set_default_password(self, password: bytes) -> None:
        """Apply the option requirepass: the default user's only password; empty: no password needed."""
        self.setuser(DEFAULT, [b"resetpass", b">" + password if password else b"nopass"])

    # --- changing users

    def setuser(self, name: bytes, rules: Iterable[bytes]) -> User:
        """Create or change a user. Applies all rules or none. Raises CommandError."""
        if not name:
            raise CommandError(b"ERR Usernames can't be empty")  # its line could not be parsed back
        if has_spaces(name):
            raise CommandError(b"ERR Usernames can't contain spaces or null characters")
        user = self.users.get(name)
        changed = User(name)
        if user is not None:
            changed.copy_from(user)
        try:
            apply(changed, rules, self.catalog)
        except RuleError as error:
            raise CommandError(b"ERR Error in ACL SETUSER modifier " + error.text) from None
        if user is None:
            user = self.users[name] = changed
        else:
            user.copy_from(changed)
        return user

    def delusers(self, names: Iterable[bytes]) -> int:
        """Remove users and return how many existed. The caller closes their sessions. Raises CommandError."""
        wanted = list(names)
        if DEFAULT in wanted:
            raise CommandError(b"ERR The 'default' user cannot be removed")
        return sum(self.users.pop(name, None) is not None for name in wanted)

    # --- permission checks

    def refusal(
        self, user: User, command: Command, args: list[bytes], queued: bool = False
    ) -> CommandError | None:
        """Return the NOPERM error, or None if the user may run it. queued: EXEC checks a queued command again."""
        denied = user.denies(command, args)
        if denied is None:
            return None
        if queued:
            return CommandError(
                b"NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. "
                b"This command is no longer allowed for the following reason: "
                + _NOPERM_QUEUED[denied[0]]
            )
        return no_permission(user, denied)

    def dry_run(self, user: User, command: Command, args: list[bytes]) -> bytes | None:
        """Return ACL DRYRUN's message for a call that would be refused, or None."""
        denied = user.denies(command, args)
        return None if denied is None else _DRY[denied[0]] % (user.name, denied[1])

    # --- saving and loading

    def lines(self) -> list[bytes]:
        """One line per user, sorted by name, for ACL LIST and the config file. Passwords appear only as hashes."""
        return [self.users[name].line() for name in sorted(self.users)]

    def load(self, lines: Iterable[bytes]) -> None:
        """Load users from such lines, all or none. A line replaces all rules of its user.

        Raises CommandError, which names the user and the rule, never a password.
        """
        loaded: dict[bytes, User] = {}
        for line in lines:
            words = line.split()
            if len(words) < 2 or words[0] != b"user":
                raise CommandError(b"ERR A user's line begins with 'user' and a name")
            user = User(words[1])
            if user.name in loaded:
                raise CommandError(
                    b"ERR Error in user declaration '%b': Duplicate user found. A user can only be defined once in "
                    b"config files" % echo(user.name)
                )
            try:
                apply(user, words[2:], self.catalog)
            except RuleError as error:
                where = b"ERR Error in user declaration '%b': " % echo(user.name)
                raise CommandError(where + error.text) from None
            loaded[user.name] = user
        for name, user in loaded.items():
            kept = self.users.setdefault(name, user)
            if kept is not user:
                kept.copy_from(user)
