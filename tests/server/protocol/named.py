"""Names of the differences that replies of our server and of a real one may have in a random session.

A row of docs/reference/differences.md has the reason; `row` is its first cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.oracle.server import EIGHT, SEVEN, Release
from tests.server.protocol.words import Command

Node = Any  # (kind, text or list of nodes)
CONTAINERS: Final = frozenset(
    b"acl client command config function latency memory object pubsub script slowlog xgroup xinfo".split()
)


def name_of(args: Command) -> bytes:
    """The full name of a command."""
    name = args[0].lower()
    return name + b"|" + args[1].lower() if name in CONTAINERS and len(args) > 1 else name


class Named(NamedTuple):
    """A difference.

    commands   the names of the commands that may have it; "" for any
    alike      whether two replies of such a command differ by nothing else
    """

    row: str
    commands: str
    alike: Callable[[Node, Node], bool]
    releases: tuple[Release, ...] = (EIGHT, SEVEN)

    def says(self, name: bytes, ours: Node, theirs: Node) -> bool:
        return (
            not self.commands or name.decode("latin-1") in self.commands.split()
        ) and self.alike(ours, theirs)


def same_kind(ours: Node, theirs: Node) -> bool:
    return bool(ours[0] == theirs[0] and ours[0] != b"-")


def same_members(ours: Node, theirs: Node) -> bool:
    if not isinstance(ours[1], list) or not isinstance(theirs[1], list):
        return False
    return ours[0] == theirs[0] and sorted(map(repr, ours[1])) == sorted(map(repr, theirs[1]))


def errors(mine: bytes, other: bytes) -> Callable[[Node, Node], bool]:
    """Errors that begin so."""
    return lambda ours, theirs: (
        (ours[0], theirs[0]) == (b"-", b"-")
        and ours[1].startswith(mine)
        and theirs[1].startswith(other)
    )


def _letters(ours: Node, theirs: Node) -> bool:
    return bool(ours[0] == b"-" and theirs == (b"-", ours[1].replace(b"tmdnoc'", b"tmdn'")))


def _fewer(ours: Node, theirs: Node) -> bool:
    if not isinstance(ours[1], list) or not isinstance(theirs[1], list):
        return False
    return set(map(repr, ours[1])) <= set(map(repr, theirs[1]))


def _redacted(ours: Node, theirs: Node) -> bool:
    if (ours[0], theirs[0]) != (b"-", b"-"):
        return False
    before, mark, after = ours[1].partition(b"(redacted)'")
    return bool(mark) and theirs[1].startswith(before) and theirs[1].endswith(after)


def _cursor(ours: Node, theirs: Node) -> bool:
    return b"ERR invalid cursor" in (ours[1], theirs[1])


def _no_plus(ours: Node, theirs: Node) -> bool:
    return bool(theirs == (b"-", b"ERR Invalid stream ID specified as stream command argument"))


def _hidden(ours: Node, theirs: Node) -> bool:
    return (ours[0], ours[1], theirs[0]) in ((b"$", None, b"$"), (b"_", b"", b"$"))


def _expired(ours: Node, theirs: Node) -> bool:
    return (ours[0], ours[1], theirs[0]) in ((b"$", None, b":"), (b"_", b"", b":"))


_OF_THE_SERVER = (
    "hello info time lastsave client|id client|info client|list acl|genpass acl|log slowlog|get slowlog|len "
    "memory|usage memory|doctor lolwut role config|get latency|histogram function|stats"
)
_OF_THE_TABLE = "command command|count command|info command|docs command|list acl|cat"
_HELP = " ".join(f"{container.decode()}|help" for container in sorted(CONTAINERS))
_ANONYMOUS = b"NOPERM this user has no permissions to "
_ABORTED = b"EXECABORT Transaction discarded because of: NOPERM "
_SEVEN: Final = (SEVEN,)

# fmt: off
NAMED: Final = (
    Named("what each server says of itself", _OF_THE_SERVER, same_kind),
    Named("the table of commands", _OF_THE_TABLE, same_kind),
    Named("the texts of HELP", _HELP, same_kind),
    Named("the order of names", "keys pubsub|channels acl|users acl|list", same_members),
    Named("the walk over keys", "scan randomkey dbsize", same_kind),
    Named("`DUMP`", "dump", same_kind),
    Named("XINFO beside an older server", "xinfo|stream xinfo|groups xinfo|consumers", same_kind),
    Named("the letters of notify-keyspace-events", "config|set", _letters),
    Named("`ACL SETUSER` with a bad password", "acl|setuser", _redacted),
    Named("the clock of idle times", "object|idletime", same_kind),
    Named("a user's flags and rules", "acl|getuser acl|list", same_kind, _SEVEN),
    Named("KEYS, SCAN, RANDOMKEY and PUBSUB CHANNELS of a user with few rights", "keys pubsub|channels", _fewer),
    Named("KEYS, SCAN, RANDOMKEY and PUBSUB CHANNELS of a user with few rights", "randomkey", _hidden),
    Named("a consumer that gets nothing", "xgroup|createconsumer", same_kind, _SEVEN),
    Named("the texts of NOPERM", "", errors(b"NOPERM ", _ANONYMOUS), _SEVEN),
    Named("the texts of NOPERM", "exec", errors(_ABORTED, _ABORTED), _SEVEN),
    Named("the texts of NOPERM", "acl|dryrun", same_kind, _SEVEN),
    Named("the order of checks in HELLO", "hello", errors(b"", b""), _SEVEN),
    Named("the order of checks in COMMAND GETKEYS", "command|getkeys command|getkeysandflags",
          errors(b"ERR ", b"ERR wrong number of arguments"), _SEVEN),
    Named("`OBJECT REFCOUNT` of small integers", "object|refcount", same_kind, _SEVEN),
    Named("`MEMORY USAGE` of a key that has expired", "memory|usage", _expired),
    Named("a cursor of SCAN that is no number as Redis writes it", "scan", _cursor, _SEVEN),
    Named("`XREAD +`", "xread xreadgroup", _no_plus, _SEVEN),
    Named("an unbalanced list of streams", "xread xreadgroup",
          errors(b"ERR Unbalanced '", b"ERR Unbalanced XREAD"), _SEVEN),
)
# fmt: on
