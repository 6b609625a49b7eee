"""AUTH, HELLO, QUIT, RESET and ACL (spec 16.1): authentication and users.

Replies and errors are those of Redis 7.0, with two exceptions. A HELLO that fails changes nothing, as in 7.2 and later.
If a rule of ACL SETUSER is wrong, the error does not repeat a password.
"""

from __future__ import annotations

import secrets

from tidelog.api.face import REDIS_VERSION
from tidelog.engine.errors import SYNTAX, CommandError, echo
from tidelog.engine.integers import int64, read_int64
from tidelog.engine.reply import OK, Map, Reply, Status
from tidelog.server.acl.commands import CATEGORIES
from tidelog.server.acl.sessions import sign_in, users_changed
from tidelog.server.acl.users import DEFAULT
from tidelog.server.monitoring.clients import is_plain
from tidelog.server.session import Session
from tidelog.server.wire.replies import SetReply

_WRONGPASS = b"WRONGPASS invalid username-password pair or user is disabled."
_NOT_SIGNED_IN = (
    b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> "
    b"<pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
)
_NO_PASSWORD = (
    b"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration "
    b"is correct?"
)
_NO_FILE = (
    b"ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER "
    b"command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store "
    b"users in the Redis configuration."
)
_BITS = b"ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"
_BITS_MAX = 4096
_BITS_DEFAULT = 256
_LOG_DEFAULT = 10
_ECHO = 1 << 16  # what Redis prints with a bare %s


def auth(session: Session, args: list[bytes]) -> Reply:
    """AUTH [username] password"""
    if len(args) > 3:
        raise CommandError(SYNTAX)
    if len(args) == 2 and session.server.acl.default.nopass:
        raise CommandError(_NO_PASSWORD)
    name = args[1] if len(args) == 3 else DEFAULT
    if not sign_in(session, name, args[-1], b"auth"):
        raise CommandError(_WRONGPASS)
    return OK


def hello(session: Session, args: list[bytes]) -> Reply:
    """HELLO [protover [AUTH username password] [SETNAME clientname]]"""
    protocol = session.protocol
    if len(args) > 1:
        asked = read_int64(args[1])
        if asked is None:
            raise CommandError(b"ERR Protocol version is not an integer or out of range")
        if asked not in (2, 3):
            raise CommandError(b"NOPROTO unsupported protocol version")
        protocol = asked
    credentials: tuple[bytes, bytes] | None = None
    client_name: bytes | None = None
    at = 2
    while at < len(args):
        option, more = args[at].lower(), len(args) - at - 1
        if option == b"auth" and more >= 2:
            credentials = (args[at + 1], args[at + 2])
            at += 3
        elif option == b"setname" and more:
            client_name = args[at + 1]
            if not is_plain(client_name):
                raise CommandError(
                    b"ERR Client names cannot contain spaces, newlines or special characters."
                )
            at += 2
        else:
            raise CommandError(b"ERR Syntax error in HELLO option '%b'" % echo(args[at], _ECHO))
    if credentials is not None:
        if not sign_in(session, *credentials, b"hello"):
            raise CommandError(_WRONGPASS)
    elif not session.authenticated:
        raise CommandError(_NOT_SIGNED_IN)
    if client_name is not None:
        session.name = client_name
    session.protocol = protocol
    session.settle()
    role = b"replica" if session.server.replicating.following else b"master"
    return Map(
        [
            *(b"server", b"redis", b"version", REDIS_VERSION.encode(), b"proto", protocol),
            *(b"id", session.id, b"mode", b"standalone", b"role", role, b"modules", []),
        ]
    )


def quit_(session: Session, args: list[bytes]) -> Reply:
    return session.last_reply(OK)


def reset(session: Session, args: list[bytes]) -> Reply:
    session.reset()
    return Status(b"RESET")


# --- users


def acl_setuser(session: Session, args: list[bytes]) -> Reply:
    """ACL SETUSER username [rule ...]"""
    session.server.acl.setuser(args[2], args[3:])
    users_changed(session.server, {args[2]}, session)
    return OK


def acl_deluser(session: Session, args: list[bytes]) -> Reply:
    """ACL DELUSER username [username ...]"""
    acl = session.server.acl
    user = session.user
    removed = acl.delusers(args[2:])
    users_changed(session.server, set(args[2:]), session)
    return removed if acl.users.get(user.name) is user else session.last_reply(removed)


def acl_getuser(session: Session, args: list[bytes]) -> Reply:
    """ACL GETUSER username"""
    user = session.server.acl.users.get(args[2])
    if user is None:
        return None
    return Map(
        [
            *(b"flags", SetReply(user.flags())),
            *(b"passwords", list(user.passwords)),
            *(b"commands", user.shown_commands()),
            *(b"keys", user.shown_keys()),
            *(b"channels", user.shown_channels()),
            *(b"selectors", []),
        ]
    )


def acl_list(session: Session, args: list[bytes]) -> Reply:
    return session.server.acl.lines()


def acl_users(session: Session, args: list[bytes]) -> Reply:
    return sorted(session.server.acl.users)


def acl_whoami(session: Session, args: list[bytes]) -> Reply:
    return session.user.name


def acl_load(session: Session, args: list[bytes]) -> Reply:
    """ACL LOAD: always an error, because users are kept in the config file and not in an ACL file."""
    raise CommandError(_NO_FILE)


def acl_save(session: Session, args: list[bytes]) -> Reply:
    raise CommandError(_NO_FILE)


# --- rules


def acl_cat(session: Session, args: list[bytes]) -> Reply:
    """ACL CAT [category]"""
    if len(args) > 3:
        raise _usage(args)
    if len(args) == 2:
        return [category.encode() for category in CATEGORIES]
    names = session.server.acl.catalog.listing(args[2])
    if names is None:
        raise CommandError(b"ERR Unknown category '%b'" % echo(args[2]))
    return names


def acl_genpass(session: Session, args: list[bytes]) -> Reply:
    """ACL GENPASS [bits]: random bits as hexadecimal digits, rounded up to whole digits."""
    if len(args) > 3:
        raise _usage(args)
    bits = int64(args[2]) if len(args) == 3 else _BITS_DEFAULT
    if not 0 < bits <= _BITS_MAX:
        raise CommandError(_BITS)
    digits = (bits + 3) // 4
    return secrets.token_hex((digits + 1) // 2)[:digits].encode()


def acl_dryrun(session: Session, args: list[bytes]) -> Reply:
    """ACL DRYRUN username command [arg ...]: OK, or the reason for the refusal as a string."""
    acl = session.server.acl
    user = acl.users.get(args[2])
    if user is None:
        raise CommandError(b"ERR User '%b' not found" % echo(args[2], _ECHO))
    table = session.server.commands.table
    words = args[3:]
    name = words[0].lower()
    if name in table.containers and len(words) > 1:
        name += b"|" + words[1].lower()
    elif b"|" in name:
        name = b""
    if name not in table.commands and name not in table.containers:
        raise CommandError(b"ERR Command '%b' not found" % echo(words[0], _ECHO))
    refused = acl.dry_run(user, table.resolve(words), words)
    return OK if refused is None else refused


def acl_log(session: Session, args: list[bytes]) -> Reply:
    """ACL LOG [count | RESET]"""
    if len(args) > 3:
        raise _usage(args)
    log = session.server.acl.log
    if len(args) == 3 and args[2].lower() == b"reset":
        log.reset()
        return OK
    count = int64(args[2]) if len(args) == 3 else _LOG_DEFAULT
    return log.reply(count, session.server.loop.time())


def acl_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _HELP]


def _usage(args: list[bytes]) -> CommandError:
    return CommandError(
        b"ERR unknown subcommand or wrong number of arguments for '%b'. Try ACL HELP."
        % echo(args[1])
    )


_HELP = b"""ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
CAT [<category>]
    List all commands that belong to <category>, or all command categories
    when no category is specified.
DELUSER <username> [<username> ...]
    Delete a list of users.
DRYRUN <username> <command> [<arg> ...]
    Returns whether the user can execute the given command without executing the command.
GETUSER <username>
    Get the user's details.
GENPASS [<bits>]
    Generate a secure 256-bit user password. The optional `bits` argument can
    be used to specify a different size.
LIST
    Show users details in config file format.
LOAD
    Reload users from the ACL file.
LOG [<count> | RESET]
    Show the ACL log entries.
SAVE
    Save the current config to the ACL file.
SETUSER <username> <attribute> [<attribute> ...]
    Create or modify a user with the specified attributes.
USERS
    List all the registered usernames.
WHOAMI
    Return the current connection username.
HELP
    Print this help.""".split(b"\n")
