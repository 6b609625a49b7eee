"""The fields of a record by their names, as JSON and msgpack show them.

The order of the fields is in engine/effects/effect.py; docs/guides/command-line.md explains each name. Three of them
are shown in another form than the record has: `ms` and `seq` are one ID, an ID list is a list of IDs, and rows are
counted, since the commands of the record have them.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.ids import text as id_text

_POSITION: Final = ("ms", "seq", "entries_read")

# fmt: off
NAMES: Final[dict[int, tuple[str, ...]]] = {
    e.EPOCH:                 ("number", "incarnation"),
    e.XADD:                  ("db", "key", "ms", "seq", "row"),
    e.XADD_NODE:             ("db", "key", "ms", "seq", "row"),
    e.XADD_IDMP:             ("db", "key", "ms", "seq", "row", "new_node", "pid", "iid", "time"),
    e.XADD_MANY:             ("db", "key", "ms", "seq", "head", "blocks", "tail"),
    e.XREOPEN:               ("db", "key", "ids", "rows", "deleted"),
    e.XTRIM:                 ("db", "key", "length", "removed", "drop", "floor", "slots", "ids"),
    e.XDEL:                  ("db", "key", "ids", "slots"),
    e.XSETID:                ("db", "key", "ms", "seq", "entries_added", "max_deleted_ms", "max_deleted_seq"),
    e.XCFGSET:               ("db", "key", "duration_s", "maxsize"),
    e.XIDMPRECORD:           ("db", "key", "pid", "iid", "ms", "seq", "time"),
    e.IDMP_DUPLICATE:        ("db", "key", "pid", "iid"),
    e.STREAM_CREATE:         ("db", "key"),
    e.XGROUP_CREATE:         ("db", "key", "group", *_POSITION),
    e.XGROUP_SETID:          ("db", "key", "group", *_POSITION),
    e.XGROUP_DESTROY:        ("db", "key", "group"),
    e.XGROUP_CREATECONSUMER: ("db", "key", "group", "consumer", "now"),
    e.XGROUP_DELCONSUMER:    ("db", "key", "group", "consumer"),
    e.DELIVER:               ("db", "key", "group", "consumer", "ids", "time", "counts", "now", *_POSITION),
    e.XACK:                  ("db", "key", "group", "ids"),
    e.XNACK:                 ("db", "key", "group", "ids", "counts"),
    e.XACKDEL:               ("db", "key", "group", "ids", "slots"),
    e.DEL:                   ("db", "keys"),
    e.SET:                   ("db", "key", "value", "expire_at"),
    e.PEXPIREAT:             ("db", "key", "at"),
    e.PERSIST:               ("db", "key"),
    e.RENAME:                ("db", "source", "target"),
    e.COPY:                  ("db", "source", "target_db", "target"),
    e.MOVE:                  ("db", "key", "target_db"),
    e.SWAPDB:                ("a", "b"),
    e.FLUSHDB:               ("db",),
    e.FLUSHALL:              (),
    e.APPEND:                ("db", "key", "suffix"),
    e.RESTORE:               ("db", "key", "kind", "value", "expire_at"),
}
# fmt: on

_ADDS: Final = frozenset((e.XADD, e.XADD_NODE, e.XADD_IDMP))
_OF_GROUPS: Final = range(e.XGROUP_CREATE, e.XACKDEL + 1)
_WITH_CONSUMER: Final = frozenset((e.XGROUP_CREATECONSUMER, e.XGROUP_DELCONSUMER, e.DELIVER))
# where the ID list of a record is
_IDS_AT: Final = {
    **{e.XDEL: 3, e.XREOPEN: 3, e.XTRIM: 8},
    **{e.DELIVER: 5, e.XACK: 4, e.XNACK: 4, e.XACKDEL: 4},
}


def fields_of(effect: Effect) -> dict[str, Any]:
    """The fields by name: bytes, integers, and lists of these."""
    opcode = effect[0] & OPCODE
    fields = dict(zip(NAMES[opcode], effect[1:], strict=False))
    if "ms" in fields:
        name = "last_id" if opcode in (e.XSETID, *_OF_GROUPS) else "id"
        fields[name] = id_text(fields.pop("ms") << 64 | fields.pop("seq"))
    if "max_deleted_ms" in fields:
        deleted = fields.pop("max_deleted_ms") << 64 | fields.pop("max_deleted_seq")
        fields["max_deleted_id"] = id_text(deleted)
    if "ids" in fields:
        fields["ids"] = idlist.texts(fields["ids"])
    if opcode == e.XADD_MANY:
        del fields["head"], fields["blocks"], fields["tail"]
        fields["entries"] = entries_of(effect)
    elif opcode == e.XREOPEN:
        del fields["rows"]
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


def entries_of(effect: Effect) -> int:
    """The number of entries that an XADD_MANY adds."""
    _, _, _, _, _, head, blocks, tail = effect
    return len(head) + sum(int(count) for count, _ in blocks) + len(tail)


def group_of(effect: Effect) -> bytes | None:
    """The group that a record is about; None if it is about none."""
    return effect[3] if effect[0] & OPCODE in _OF_GROUPS else None


def consumer_of(effect: Effect) -> bytes | None:
    """The consumer that a record names; None if it names none."""
    return effect[4] if effect[0] & OPCODE in _WITH_CONSUMER else None


def names_id(effect: Effect, first: int, last: int) -> bool:
    """Whether a record is about an entry with an ID from `first` to `last`. Opens no sealed block."""
    opcode = effect[0] & OPCODE
    if opcode in _ADDS:
        return bool(first <= effect[3] << 64 | effect[4] <= last)
    if opcode == e.XADD_MANY:
        begin: int = effect[3] << 64 | effect[4]
        return begin <= last and first < begin + entries_of(effect)
    if opcode == e.XIDMPRECORD:
        return bool(first <= effect[5] << 64 | effect[6] <= last)
    at = _IDS_AT.get(opcode)
    return at is not None and any(first <= one <= last for one in idlist.unpack(effect[at]))
