"""The reply of COMMAND: adds ordered flags, categories, tips and key specs to a command's row in the table (spec 17).

Key positions follow from the row: first key, last key, step. How a command uses its keys is listed here. Source:
COMMAND of Redis 7.0; for newer commands spec 17.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.engine.api import Command
from tidelog.engine.integers import read_int64
from tidelog.engine.reply import Map, Reply, Status
from tidelog.jobs.verbs.found import VERBS
from tidelog.server.acl.commands import categories
from tidelog.server.table import SCRIPTS, Commands, S
from tidelog.server.wire.replies import SetReply

# In Redis's order.
FLAGS: Final = (
    "write readonly denyoom module admin pubsub noscript blocking loading stale skip_monitor skip_slowlog asking fast "
    "no_auth may_replicate no_mandatory_keys protected no_async_loading no_multi allow_busy movablekeys"
).split()

_ANY = "nondeterministic_output"
_ORDER = "nondeterministic_output_order"
_SHARDS, _NODES, _MANY = (f"request_policy:{p}" for p in ("all_shards", "all_nodes", "multi_shard"))
_SUM, _MIN, _ALL = (f"response_policy:{p}" for p in ("agg_sum", "agg_min", "all_succeeded"))
_SPECIAL = "response_policy:special"

TIPS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys("dump xadd xtrim xclaim xautoclaim xpending xinfo|consumers".split(), (_ANY,)),
    **dict.fromkeys("object|encoding object|freq object|idletime object|refcount".split(), (_ANY,)),
    **dict.fromkeys("client|info client|list ttl pttl time lastsave".split(), (_ANY,)),
    **dict.fromkeys("command command|docs command|info command|list".split(), (_ORDER,)),
    **dict.fromkeys("del exists touch unlink".split(), (_MANY, _SUM)),
    **dict.fromkeys("flushall flushdb ping memory|purge".split(), (_SHARDS, _ALL)),
    **dict.fromkeys("config|set latency|reset slowlog|reset".split(), (_NODES, _ALL)),
    **dict.fromkeys(
        "latency|histogram latency|history latency|latest".split(), (_ANY, _NODES, _SPECIAL)
    ),
    **dict.fromkeys(
        "info memory|doctor memory|malloc-stats memory|stats".split(), (_ANY, _SHARDS, _SPECIAL)
    ),
    "dbsize": (_SHARDS, _SUM),
    "keys": (_SHARDS, _ORDER),
    "randomkey": (_SHARDS, _ANY),
    "scan": (_ANY, "request_policy:special"),
    "mget": (_MANY,),
    "mset": (_MANY, _ALL),
    "msetnx": (_MANY, _MIN),
    "wait": (_SHARDS, _MIN),
    "slowlog|len": (_NODES, _SUM, _ANY),
    "slowlog|get": (_NODES, _ANY),
    **dict.fromkeys("function|flush function|delete".split(), (_SHARDS, _ALL)),
    **dict.fromkeys(
        "function|kill script|kill".split(), (_SHARDS, "response_policy:one_succeeded")
    ),
    "function|list": (_ORDER,),
    "function|stats": (_ANY, _SHARDS, _SPECIAL),
    **dict.fromkeys("script|flush script|load".split(), (_NODES, _ALL)),
    "script|exists": (_SHARDS, "response_policy:agg_logical_and"),
}

# Maps a way of using keys to the commands that use all their keys in this way. `_TWO_USES` has the commands that use
# two keys in different ways.
_USES: Final[dict[str, str]] = {
    "RO": "exists type touch strlen xlen watch memory|usage "
    "object|encoding object|freq object|idletime object|refcount",
    "RO access": "dump get mget ttl pttl expiretime pexpiretime xpending xrange xrevrange xread xreadgroup "
    "xinfo|stream xinfo|groups xinfo|consumers",
    "RW insert": "append xgroup|create xgroup|createconsumer",
    "RW update": "expire pexpire expireat pexpireat persist xack xadd xclaim xsetid xgroup|setid xcfgset "
    "xidmprecord xnack",
    "RW delete": "xautoclaim xdel xdelex xackdel xtrim xgroup|delconsumer xgroup|destroy",
    "RW access update": "eval evalsha incr decr incrby decrby getset getex move",
    "RW access delete": "getdel",
    "RW access update variable_flags": "set",
    "OW update": "restore setex psetex mset",
    "OW insert": "setnx msetnx",
    "RM delete": "del unlink",
    "not_key": "ssubscribe sunsubscribe spublish",
}
_USE: Final = {
    **{name: use for use, names in _USES.items() for name in names.split()},
    **{verb.command(): verb.facts.use for verb in VERBS},
}
_TWO_USES: Final = {
    "copy": ("RO access", "OW update"),
    "rename": ("RW access delete", "OW update"),
    "renamenx": ("RW access delete", "OW insert"),
}
_NOTES: Final = {
    "eval": "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",
    "xadd": "UPDATE instead of INSERT because of the optional trimming feature",
    "getex": "RW and UPDATE because it changes the TTL",
    "set": "RW and ACCESS due to the optional `GET` argument",
}
# Commands whose keys follow a keyword. The value is the index from which the keyword is searched.
_KEYWORD: Final = {"xread": 1, "xreadgroup": 4}


NUMBERED: Final = -1


class Keys(NamedTuple):
    """A run of keys in a command.

    first      index of the first key; 0: the keys follow the word STREAMS, searched for from `start`
    last       index of the last key, relative to the first; negative: from the end of the command
    step       distance from one key to the next
    limit      2 = only the first half of the arguments there are keys, 0 = all; NUMBERED = the argument at `first` is
               the number of keys, which follow it
    """

    use: tuple[str, ...]
    first: int
    start: int
    last: int
    step: int
    limit: int

    def find(self, args: list[bytes]) -> list[int] | None:
        """Return the indexes of the keys; None if there are none at the expected place."""
        first = self.first
        if self.limit == NUMBERED:
            count = read_int64(args[first]) or 0
            return (
                list(range(first + 1, first + 1 + count)) if 0 < count < len(args) - first else None
            )
        if not first:
            words = range(self.start, len(args) - 1)
            first = next((i + 1 for i in words if args[i].lower() == b"streams"), 0)
            if not first:
                return None
        last = first + self.last
        if self.last < 0:
            last = len(args) + self.last
            if self.limit:
                last = first + (len(args) - first) // self.limit - 1
        return list(range(first, last + 1, self.step)) or None


def keys(command: Command) -> list[Keys]:
    """Return where a command's keys are and how it uses them."""
    name = command.name.decode()
    start = _KEYWORD.get(name)
    if start is not None:
        return [Keys(_words(_USE[name]), 0, start, -1, 1, 2)]
    if command.name in SCRIPTS:
        return [Keys(_words(_USE[name]), 2, 0, 0, 1, NUMBERED)]
    if not command.first_key:
        return []
    first, last = command.first_key, command.last_key
    if name in _TWO_USES:
        return [Keys(_words(use), first + i, 0, 0, 1, 0) for i, use in enumerate(_TWO_USES[name])]
    relative = last if last < 0 else last - first
    return [Keys(_words(_USE[name]), first, 0, relative, command.key_step, 0)]


def find_keys(command: Command, args: list[bytes]) -> list[tuple[bytes, tuple[str, ...]]]:
    """Return a full command's keys and how it uses each; empty if there are none at the expected place."""
    found: list[tuple[bytes, tuple[str, ...]]] = []
    for run in keys(command):
        use = run.use
        if "variable_flags" in use:  # SET reads the old value only with GET
            reads = any(word.lower() == b"get" for word in args[3:])
            use = ("RW", "access", "update") if reads else ("OW", "update")
        found += ((args[at], use) for at in run.find(args) or ())
    return found


def subcommands(container: bytes, commands: Commands[S]) -> list[Command]:
    """Return a container's subcommands."""
    prefix = container + b"|"
    return [found for name, found in commands.table.commands.items() if name.startswith(prefix)]


def names(commands: Commands[S]) -> list[bytes]:
    """Return all command names, each container before its subcommands."""
    found: dict[bytes, None] = {}
    for name in commands.table.commands:
        found[name.partition(b"|")[0]] = None
        found[name] = None
    return list(found)


def categories_of(name: bytes, commands: Commands[S]) -> list[str]:
    """Return a command's ACL categories. A container does not have those of its subcommands, as in Redis 7.0."""
    command = commands.table.commands.get(name)
    if command is None:
        return ["slow"]
    return categories(command, commands.categories.get(name, frozenset()))


def describe(name: bytes, commands: Commands[S]) -> Reply:
    """Return one row of COMMAND; None if there is no such command. `name` is in lower case."""
    table = commands.table
    command = table.commands.get(name)
    if command is None:
        if name not in table.containers:
            return None
        command = Command(name, -2, frozenset(), 0, 0, 0, None)
    found = subcommands(name, commands) if b"|" not in name else []
    below = [describe(each.name, commands) for each in found]
    return [
        command.name,
        command.arity,
        _statuses(flag for flag in FLAGS if flag in command.flags),
        command.first_key,
        command.last_key,
        command.key_step,
        _statuses(f"@{category}" for category in categories_of(name, commands)),
        SetReply(tip.encode() for tip in TIPS.get(name.decode(), ())),
        SetReply(_spec(name.decode(), run) for run in keys(command)),
        below or SetReply(),
    ]


def _spec(name: str, run: Keys) -> Map:
    if run.first:
        begin = [b"type", b"index", b"spec", Map([b"index", run.first])]
    else:
        word = Map([b"keyword", b"STREAMS", b"startfrom", run.start])
        begin = [b"type", b"keyword", b"spec", word]
    found = [b"lastkey", run.last, b"keystep", run.step, b"limit", run.limit]
    reply = Map()
    if name in _NOTES:
        reply += b"notes", _NOTES[name].encode()
    reply += b"flags", _statuses(run.use), b"begin_search", Map(begin)
    kind = b"range"
    if run.limit == NUMBERED:
        kind, found = b"keynum", [b"keynumidx", 0, b"firstkey", 1, b"keystep", 1]
    reply += b"find_keys", Map([b"type", kind, b"spec", Map(found)])
    return reply


def _statuses(words: Iterable[str]) -> SetReply:
    return SetReply(Status(word.encode()) for word in words)


def _words(use: str) -> tuple[str, ...]:
    return tuple(use.split())
