"""CLIENT (spec 16.1): the list of connections, settings of the caller's own connection, and control of others.

CLIENT TRACKING ON is refused, because the server sends no invalidation messages for a client-side cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.engine.errors import SYNTAX, CommandError, echo
from tidelog.engine.integers import int64, read_int64
from tidelog.engine.reply import OK, Map, Reply, Status
from tidelog.server.errors import UNBLOCKED
from tidelog.server.host import Host
from tidelog.server.monitoring.clients import client_type, is_plain, line
from tidelog.server.session import Session
from tidelog.server.wire.replies import NO_REPLY, SetReply, Verbatim

_ECHO = 1 << 16  # what Redis prints with a bare %s
_TYPES = frozenset((b"normal", b"slave", b"replica", b"pubsub", b"master"))


class _Client(NamedTuple):
    """One line of CLIENT LIST: a session, or the link to the leader, which has no user."""

    id: int
    kind: bytes
    addr: str
    laddr: str
    created: float
    session: Session | None
    kill: Callable[[], None]


Matches = Callable[[_Client], bool]


def _usage(args: list[bytes]) -> CommandError:
    return CommandError(
        b"ERR unknown subcommand or wrong number of arguments for '%b'. Try CLIENT HELP."
        % echo(args[1])
    )


def _type(word: bytes) -> bytes:
    name = word.lower()
    if name not in _TYPES:
        raise CommandError(b"ERR Unknown client type '%b'" % echo(word, _ECHO))
    return b"slave" if name == b"replica" else name


def _switch(word: bytes) -> bool:
    name = word.lower()
    if name not in (b"on", b"off"):
        raise CommandError(SYNTAX)
    return name == b"on"


# --- the caller's own connection


def client_id(session: Session, args: list[bytes]) -> Reply:
    return session.id


def client_info(session: Session, args: list[bytes]) -> Reply:
    return Verbatim(line(session, b"client|info"))


def client_setname(session: Session, args: list[bytes]) -> Reply:
    if not is_plain(args[2]):
        raise CommandError(
            b"ERR Client names cannot contain spaces, newlines or special characters."
        )
    session.name = args[2]
    return OK


def client_getname(session: Session, args: list[bytes]) -> Reply:
    return session.name or None


def client_setinfo(session: Session, args: list[bytes]) -> Reply:
    option = args[2].lower()
    if option not in (b"lib-name", b"lib-ver"):
        raise CommandError(b"ERR Unrecognized option '%b'" % echo(args[2], _ECHO))
    if not is_plain(args[3]):
        raise CommandError(
            b"ERR %b cannot contain spaces, newlines or special characters." % echo(args[2], _ECHO)
        )
    if option == b"lib-name":
        session.lib_name = args[3]
    else:
        session.lib_ver = args[3]
    return OK


def client_reply(session: Session, args: list[bytes]) -> Reply:
    mode = args[2].lower()
    if mode == b"on":
        session.reply_mode = "on"
    elif mode == b"off":
        session.reply_mode = "off"
    elif mode != b"skip":
        raise CommandError(SYNTAX)
    elif session.reply_mode == "on":
        session.reply_mode = "skip"
    session.settle()
    return OK if mode == b"on" else NO_REPLY


def client_no_evict(session: Session, args: list[bytes]) -> Reply:
    """CLIENT NO-EVICT: only shown in CLIENT LIST, since clients are never evicted."""
    session.no_evict = _switch(args[2])
    return OK


def client_no_touch(session: Session, args: list[bytes]) -> Reply:
    session.no_touch = _switch(args[2])
    session.settle()
    return OK


def client_tracking(session: Session, args: list[bytes]) -> Reply:
    if _switch(args[2]):
        raise CommandError(
            b"ERR CLIENT TRACKING ON is not supported: this server sends no invalidation messages"
        )
    if len(args) > 3:
        raise CommandError(SYNTAX)
    return OK


def client_trackinginfo(session: Session, args: list[bytes]) -> Reply:
    return Map([b"flags", SetReply([b"off"]), b"redirect", -1, b"prefixes", []])


def client_getredir(session: Session, args: list[bytes]) -> Reply:
    return -1


def client_caching(session: Session, args: list[bytes]) -> Reply:
    raise CommandError(
        b"ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
    )


# --- all connections


def _clients(server: Host[Session]) -> list[_Client]:
    """All clients, in the order of their IDs. Those that were killed leave at the end of the turn, and are no more."""
    found: list[_Client] = []
    for each in [session for session in server.sessions.values() if not session.killed]:
        outlet = each.connection
        at = outlet.addr, outlet.laddr, outlet.created
        found.append(_Client(each.id, client_type(each), *at, each, each.kill))
    upstream = server.replicating.upstream
    if upstream is not None:
        at = upstream.addr, upstream.laddr, upstream.created
        found.append(_Client(upstream.id, b"master", *at, None, upstream.kill))
        found.sort(key=lambda client: client.id)
    return found


def client_list(session: Session, args: list[bytes]) -> Reply:
    server = session.server
    found = _clients(server)
    option = args[2].lower() if len(args) > 3 else b""
    if option == b"type" and len(args) == 4:
        wanted = _type(args[3])
        found = [each for each in found if each.kind == wanted]
    elif option == b"id":
        by_id = {each.id: each for each in found}
        ids = [int64(word, b"ERR Invalid client ID") for word in args[3:]]
        found = [by_id[id_] for id_ in ids if id_ in by_id]
    elif len(args) != 2:
        raise CommandError(SYNTAX)
    upstream, now = server.replicating.upstream, server.loop.time()
    lines: list[bytes] = []
    for client in found:
        each = client.session
        if each is not None:
            lines.append(line(each, b"client|list" if each is session else b""))
        elif upstream is not None:
            lines.append(upstream.line(now))
    return Verbatim(b"".join(lines))


def client_kill(session: Session, args: list[bytes]) -> Reply:
    """CLIENT KILL addr, or CLIENT KILL with filters, all of which must match."""
    if len(args) == 3:
        addr = args[2].decode("utf-8", "surrogateescape")
        victims = [each for each in _clients(session.server) if each.addr == addr][:1]
        if not victims:
            raise CommandError(b"ERR No such client")
        return _killed(session, victims, OK)
    skip_me = True
    matches: list[Matches] = []
    for option, value in _pairs(args):
        if option == b"skipme":
            if value.lower() not in (b"yes", b"no"):
                raise CommandError(SYNTAX)
            skip_me = value.lower() == b"yes"
        else:
            matches.append(_filter(session, option, value))
    victims = [
        each
        for each in _clients(session.server)
        if not (each.session is session and skip_me) and all(match(each) for match in matches)
    ]
    return _killed(session, victims, len(victims))


def _pairs(args: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for at in range(2, len(args), 2):
        if at + 1 == len(args):
            raise CommandError(SYNTAX)
        yield args[at].lower(), args[at + 1]


def _filter(session: Session, option: bytes, value: bytes) -> Matches:
    server = session.server
    text = value.decode("utf-8", "surrogateescape")
    if option == b"id":
        id_ = read_int64(value)
        if id_ is None or id_ < 1:
            raise CommandError(b"ERR client-id should be greater than 0")
        return lambda each: each.id == id_
    if option == b"type":
        wanted = _type(value)
        return lambda each: each.kind == wanted
    if option == b"addr":
        return lambda each: each.addr == text
    if option == b"laddr":
        return lambda each: each.laddr == text
    if option == b"user":
        user = server.acl.users.get(value)
        if user is None:
            raise CommandError(b"ERR No such user '%b'" % echo(value, _ECHO))
        return lambda each: each.session is not None and each.session.user is user
    if option == b"maxage":
        seconds = int64(value, b"ERR maxage is not an integer or out of range")
        if seconds <= 0:
            raise CommandError(b"ERR maxage should be greater than 0")
        now = server.loop.time()
        return lambda each: now - each.created >= seconds
    raise CommandError(SYNTAX)


def _killed(session: Session, victims: list[_Client], reply: Reply) -> Reply:
    """Close these connections. The caller's own is closed after the reply."""
    itself = False
    for victim in victims:
        if victim.session is session:
            itself = True
        else:
            victim.kill()
    return session.last_reply(reply) if itself else reply


def client_unblock(session: Session, args: list[bytes]) -> Reply:
    error = False
    if len(args) > 4:
        raise _usage(args)
    if len(args) == 4:
        reason = args[3].lower()
        if reason not in (b"timeout", b"error"):
            raise CommandError(b"ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
        error = reason == b"error"
    blocked = session.server.sessions.get(int64(args[2]))
    return int(blocked is not None and blocked.unblock(UNBLOCKED if error else None))


def client_pause(session: Session, args: list[bytes]) -> Reply:
    if len(args) > 4:
        raise _usage(args)
    mode = args[3].lower() if len(args) == 4 else b"all"
    if mode not in (b"write", b"all"):
        raise CommandError(b"ERR CLIENT PAUSE mode must be WRITE or ALL")
    milliseconds = int64(args[2], b"ERR timeout is not an integer or out of range")
    if milliseconds < 0:
        raise CommandError(b"ERR timeout is negative")
    session.server.pause(milliseconds, mode == b"write")
    return OK


def client_unpause(session: Session, args: list[bytes]) -> Reply:
    session.server.unpause()
    return OK


def client_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(text) for text in _HELP]


_HELP = (
    b"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"CACHING (YES|NO)",
    b"    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    b"GETREDIR",
    b"    Return the client ID we are redirecting to when tracking is enabled.",
    b"GETNAME",
    b"    Return the name of the current connection.",
    b"ID",
    b"    Return the ID of the current connection.",
    b"INFO",
    b"    Return information about the current client connection.",
    b"KILL <ip:port>",
    b"    Kill connection made from <ip:port>.",
    b"KILL <option> <value> [<option> <value> [...]]",
    b"    Kill connections. Options are:",
    b"    * ADDR (<ip:port>|<unixsocket>:0)",
    b"      Kill connections made from the specified address",
    b"    * LADDR (<ip:port>|<unixsocket>:0)",
    b"      Kill connections made to specified local address",
    b"    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    b"      Kill connections by type.",
    b"    * USER <username>",
    b"      Kill connections authenticated by <username>.",
    b"    * SKIPME (YES|NO)",
    b"      Skip killing current connection (default: yes).",
    b"    * ID <client-id>",
    b"      Kill connections by client id.",
    b"    * MAXAGE <maxage>",
    b"      Kill connections older than the specified age.",
    b"LIST [options ...]",
    b"    Return information about client connections. Options:",
    b"    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    b"      Return clients of specified type.",
    b"UNPAUSE",
    b"    Stop the current client pause, resuming traffic.",
    b"PAUSE <timeout> [WRITE|ALL]",
    b"    Suspend all, or just write, clients for <timeout> milliseconds.",
    b"REPLY (ON|OFF|SKIP)",
    b"    Control the replies sent to the current connection.",
    b"SETNAME <name>",
    b"    Assign the name <name> to the current connection.",
    b"SETINFO <option> <value>",
    b"    Set client meta attr. Options are:",
    b"    * LIB-NAME: the client lib name.",
    b"    * LIB-VER: the client lib version.",
    b"UNBLOCK <clientid> [TIMEOUT|ERROR]",
    b"    Unblock the specified blocked client.",
    b"TRACKINGINFO",
    b"    Report tracking status for the current connection.",
    b"NO-EVICT (ON|OFF)",
    b"    Protect current client connection from eviction.",
    b"NO-TOUCH (ON|OFF)",
    b"    Will not touch LRU/LFU stats when this mode is on.",
    b"HELP",
    b"    Print this help.",
)
