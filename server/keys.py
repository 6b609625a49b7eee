"""Keys: which arguments of a command are keys, and what it does to each of them.

For the rules of users (`~pattern`, `%R~pattern`) and COMMAND GETKEYS. What is read or written there is as Redis 7.0 has
it in its key specifications: a command that only asks whether a key is there, or how long its value is, needs neither.
"""

from __future__ import annotations

from tidelog.engine.table import Command

READ = 1  # returns what the key holds, or something made of it
WRITE = 2

# Options of XREAD and XREADGROUP before STREAMS, and how many words each takes.
_READ_OPTIONS = {
    **dict.fromkeys((b"COUNT", b"BLOCK", b"CLAIM", b"MAXCOUNT", b"MAXSIZE"), 2),
    b"GROUP": 3,
    b"NOACK": 1,
}

_ONLY_ASK = frozenset(
    b"exists touch type strlen xlen watch memory|usage object|encoding object|freq object|idletime "
    b"object|refcount".split()
)
_READ_AND_WRITE = frozenset(b"decr decrby getdel getex getset incr incrby move".split())
# First key, last key.
_TWO_KEYS = {
    b"copy": (READ, WRITE),
    b"rename": (READ | WRITE, WRITE),
    b"renamenx": (READ | WRITE, WRITE),
}


def keys(command: Command, args: list[bytes]) -> list[bytes]:
    """The keys among the arguments, in order, repeated ones too.

    `args` has the command's arity; beyond that it may be nonsense, which then has no keys or some: the command itself
    will refuse it.
    """
    if "movablekeys" in command.flags:
        return _streams(args)
    first = command.first_key
    if not first or "pubsub" in command.flags:  # shard channels stand where keys would
        return []
    last = command.last_key
    if last < 0:
        last += len(args)
    return args[first : last + 1 : command.key_step]


def access(command: Command, args: list[bytes]) -> tuple[int, int]:
    """What the command does with its first key, and with all others: READ | WRITE, READ, WRITE or 0."""
    name = command.name
    both = _TWO_KEYS.get(name)
    if both is not None:
        return both
    if name in _ONLY_ASK:
        needed = 0
    elif name in _READ_AND_WRITE:
        needed = READ | WRITE
    elif name == b"set":
        needed = READ | WRITE if any(word.upper() == b"GET" for word in args[3:]) else WRITE
    elif name == b"xreadgroup" or "readonly" in command.flags:
        needed = READ  # what XREADGROUP changes is the group's, not the stream's
    else:
        needed = WRITE
    return needed, needed


def _streams(args: list[bytes]) -> list[bytes]:
    """The keys behind STREAMS. An option's value may be that word too, so the options are gone through."""
    at, end = 1, len(args)
    while at < end:
        word = args[at].upper()
        if word == b"STREAMS":
            break
        words = _READ_OPTIONS.get(word)
        if words is None:
            # A syntax error. Redis takes the first such word then, and so says NOPERM rather than that.
            at = next((i for i in range(1, end) if args[i].upper() == b"STREAMS"), end)
            break
        at += words
    rest = args[at + 1 :]
    return rest[: len(rest) // 2]
