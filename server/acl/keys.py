"""Keys: which arguments of a command are keys, and how it accesses each of them.

Used for ACL rules (`~pattern`, `%R~pattern`); COMMAND GETKEYS uses server/commands/describe.py. READ and WRITE are as
in Redis 7.0's key specifications: a command that only asks whether a key exists, or how long its value is, needs
neither.
"""

from __future__ import annotations

from tidelog.engine.api import Command
from tidelog.engine.integers import read_int64
from tidelog.jobs.verbs.found import VERBS
from tidelog.server.table import SCRIPTS

READ = 1  # the command returns the key's value, or something computed from it
WRITE = 2

# Options of XREAD and XREADGROUP that may come before STREAMS, with the number of words that each takes.
_READ_OPTIONS = {
    **dict.fromkeys((b"COUNT", b"BLOCK", b"CLAIM", b"MAXCOUNT", b"MAXSIZE"), 2),
    b"GROUP": 3,
    b"NOACK": 1,
}

_QUEUE = {verb.command().encode(): verb.facts.use.split() for verb in VERBS}
_ONLY_ASK = frozenset(
    b"exists touch type strlen xlen watch memory|usage object|encoding object|freq object|idletime "
    b"object|refcount".split()
) | {name for name, use in _QUEUE.items() if use == ["RO"]}
_READ_AND_WRITE = frozenset(
    b"decr decrby eval evalsha getdel getex getset incr incrby move".split()
) | {name for name, use in _QUEUE.items() if use[:2] == ["RW", "access"]}
# First key, last key.
_TWO_KEYS = {
    b"copy": (READ, WRITE),
    b"rename": (READ | WRITE, WRITE),
    b"renamenx": (READ | WRITE, WRITE),
}


def keys(command: Command, args: list[bytes]) -> list[bytes]:
    """Return the keys among the arguments, in order, with duplicates.

    `args` has the command's arity but may be malformed otherwise. The result is then arbitrary, and the command itself
    reports the error.
    """
    if command.name in SCRIPTS:
        count = read_int64(args[2]) or 0
        return args[3 : 3 + count] if 0 < count <= len(args) - 3 else []
    if "movablekeys" in command.flags:
        return _streams(args)
    first = command.first_key
    if not first or "pubsub" in command.flags:  # shard channels are declared like keys
        return []
    last = command.last_key
    if last < 0:
        last += len(args)
    return args[first : last + 1 : command.key_step]


def access(command: Command, args: list[bytes]) -> tuple[int, int]:
    """How the command accesses its first key, and all others: READ | WRITE, READ, WRITE or 0."""
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
        needed = READ  # XREADGROUP changes the group, not the stream
    else:
        needed = WRITE
    return needed, needed


def _streams(args: list[bytes]) -> list[bytes]:
    """Return the keys after STREAMS. Parses the options, because an option's value may also be the word STREAMS."""
    at, end = 1, len(args)
    while at < end:
        word = args[at].upper()
        if word == b"STREAMS":
            break
        words = _READ_OPTIONS.get(word)
        if words is None:
            # A word that is no option is a syntax error. As in Redis, look for the keys after the first STREAMS, so the
            # reply may be NOPERM instead.
            at = next((i for i in range(1, end) if args[i].upper() == b"STREAMS"), end)
            break
        at += words
    rest = args[at + 1 :]
    return rest[: len(rest) // 2]
