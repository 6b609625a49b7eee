"""Commands as ACL rules name them: names, categories, and the commands that each covers.

A command's categories follow from its flags, plus its family (engine commands) or the categories it was listed
with (server commands). Categories of data types that we lack exist, as in Redis 7.0, but are empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.engine.api import Command, Table

# In the order of ACL CAT.
CATEGORIES = (
    "keyspace read write set sortedset list hash string bitmap hyperloglog geo stream pubsub admin fast slow blocking "
    "dangerous connection transaction scripting"
).split()

_BY_FLAG = {
    "write": ("write",),
    "readonly": ("read",),
    "admin": ("admin", "dangerous"),
    "pubsub": ("pubsub",),
    "fast": ("fast",),
    "blocking": ("blocking",),
}
# Categories that do not follow from the flags of an engine command. The name of a container includes its subcommands.
_FAMILIES = {
    "keyspace": (
        b"copy dbsize del dump exists expire expireat expiretime flushall flushdb keys move object persist pexpire "
        b"pexpireat pexpiretime pttl randomkey rename renamenx restore scan swapdb touch ttl type unlink"
    ),
    "string": (
        b"append decr decrby get getdel getex getset incr incrby mget mset msetnx psetex set setex setnx strlen"
    ),
    "stream": (
        b"xack xackdel xadd xautoclaim xcfgset xclaim xdel xdelex xgroup xidmprecord xinfo xlen xnack xpending xrange "
        b"xread xreadgroup xrevrange xsetid xtrim"
    ),
    "connection": b"echo ping select",
    "transaction": b"discard exec multi unwatch watch",
    "dangerous": b"flushall flushdb keys restore swapdb",
}
_FAMILY_OF: dict[bytes, set[str]] = {}
for _family, _names in _FAMILIES.items():
    for _name in _names.split():
        _FAMILY_OF.setdefault(_name, set()).add(_family)


def categories(command: Command, listed: frozenset[str] = frozenset()) -> list[str]:
    """Return a command's categories in the order of ACL CAT; `listed` are those it was listed with."""
    found = set(listed)
    for flag in command.flags:
        found.update(_BY_FLAG.get(flag, ()))
    if "fast" not in command.flags:
        found.add("slow")
    found.update(_FAMILY_OF.get(command.name.partition(b"|")[0], ()))
    return [category for category in CATEGORIES if category in found]


class Catalog:
    """All commands by the names that a rule can use.

    every        the names of all commands
    by_category  "read" -> names of commands
    """

    __slots__ = ("every", "by_category", "_containers")

    def __init__(self, table: Table, listed: Mapping[bytes, frozenset[str]]) -> None:
        self.every = frozenset(table.commands)
        self._containers = frozenset(table.containers)
        found: dict[str, set[bytes]] = {category: set() for category in CATEGORIES}
        for name, command in table.commands.items():
            for category in categories(command, listed.get(name, frozenset())):
                found[category].add(name)
        self.by_category = {category: frozenset(names) for category, names in found.items()}

    def named(self, name: bytes) -> frozenset[bytes] | None:
        """Return the commands that `xadd`, `xgroup` or `xgroup|create` covers; None if there is no such command."""
        if name in self._containers:
            inside = name + b"|"
            return frozenset(n for n in self.every if n == name or n.startswith(inside))
        return frozenset((name,)) if name in self.every else None

    def is_container(self, name: bytes) -> bool:
        return name in self._containers

    def category(self, name: bytes) -> frozenset[bytes] | None:
        """Return the commands of a category (given without `@`), as ACL CAT does; None if there is no such category."""
        return self.by_category.get(name.decode("latin-1").lower())

    def listing(self, name: bytes) -> list[bytes] | None:
        """The reply of ACL CAT for a category. Containers are listed under slow; no rule depends on that."""
        found = self.category(name)
        if found is None:
            return None
        shown = found | self._containers if name.lower() == b"slow" else found
        return sorted(shown)
