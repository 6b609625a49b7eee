"""The fields of a record: their names, as JSON and msgpack show them, and their kinds, which record_check.py checks.

The order of the fields is in engine/effects/effect.py; docs/guides/command-line.md explains each name. Three of them
are shown in another form than the record has: `ms` and `seq` are one ID, an ID list is a list of IDs, and rows are
counted, since the commands of the record have them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.ids import text as id_text

# The fields of each record behind its opcode, as NAME:KIND; those in brackets may be missing. The kinds:
# d: database, b: bytes, u: unsigned 64 bits, n: any integer, r: row, R: rows, B: blocks, i: IDs, s: slots, c: counts,
# k: keys
# fmt: off
_RECORDS: Final = {
    e.EPOCH:                 "number:u incarnation:u",
    e.XADD:                  "db:d key:b ms:u seq:u row:r",
    e.XADD_NODE:             "db:d key:b ms:u seq:u row:r",
    e.XADD_IDMP:             "db:d key:b ms:u seq:u row:r new_node:u pid:b iid:b [time:u]",
    e.XADD_MANY:             "db:d key:b ms:u seq:u head:R blocks:B tail:R",
    e.XREOPEN:               "db:d key:b ids:i rows:R deleted:b",
    e.XTRIM:                 "db:d key:b length:u removed:u drop:u floor:u slots:s ids:i",
    e.XDEL:                  "db:d key:b ids:i slots:s",
    e.XSETID:                "db:d key:b ms:u seq:u entries_added:u max_deleted_ms:u max_deleted_seq:u",
    e.XCFGSET:               "db:d key:b duration_s:u maxsize:u",
    e.XIDMPRECORD:           "db:d key:b pid:b iid:b ms:u seq:u [time:u]",
    e.IDMP_DUPLICATE:        "db:d key:b pid:b iid:b",
    e.STREAM_CREATE:         "db:d key:b",
    e.XGROUP_CREATE:         "db:d key:b group:b ms:u seq:u entries_read:n",
    e.XGROUP_SETID:          "db:d key:b group:b ms:u seq:u entries_read:n",
    e.XGROUP_DESTROY:        "db:d key:b group:b",
    e.XGROUP_CREATECONSUMER: "db:d key:b group:b consumer:b now:u",
    e.XGROUP_DELCONSUMER:    "db:d key:b group:b consumer:b",
    e.DELIVER:               "db:d key:b group:b consumer:b ids:i time:n counts:c now:n [ms:u seq:u entries_read:n]",
    e.XACK:                  "db:d key:b group:b ids:i",
    e.XNACK:                 "db:d key:b group:b ids:i counts:c",
    e.XACKDEL:               "db:d key:b group:b ids:i slots:s",
    e.DEL:                   "db:d keys:k",
    e.SET:                   "db:d key:b value:b expire_at:n",
    e.PEXPIREAT:             "db:d key:b at:n",
    e.PERSIST:               "db:d key:b",
    e.RENAME:                "db:d source:b target:b",
    e.COPY:                  "db:d source:b target_db:d target:b",
    e.MOVE:                  "db:d key:b target_db:d",
    e.SWAPDB:                "a:d b:d",
    e.FLUSHDB:               "db:d",
    e.FLUSHALL:              "",
    e.APPEND:                "db:d key:b suffix:b",
    e.RESTORE:               "db:d key:b kind:u value:b expire_at:n",
}
# fmt: on


def _kinds(fields: str) -> tuple[str, ...]:
    """The kinds of a record's fields: without those that may be missing, and with them."""
    always, _, more = fields.partition("[")
    parts = ["".join(re.findall(":(.)", part)) for part in (always, always + more)]
    return tuple(dict.fromkeys(parts))


NAMES: Final = {opcode: tuple(re.findall(r"(\w+):", text)) for opcode, text in _RECORDS.items()}
KINDS: Final = {opcode: _kinds(text) for opcode, text in _RECORDS.items()}

ADDS: Final = frozenset((e.XADD, e.XADD_NODE, e.XADD_IDMP, e.XADD_MANY))
_OF_GROUPS: Final = range(e.XGROUP_CREATE, e.XACKDEL + 1)
_WITH_CONSUMER: Final = frozenset((e.XGROUP_CREATECONSUMER, e.XGROUP_DELCONSUMER, e.DELIVER))
# where the ID list of a record is
IDS_AT: Final = {op: names.index("ids") + 1 for op, names in NAMES.items() if "ids" in names}


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
    """The number of entries that a record of ADDS adds."""
    if effect[0] & OPCODE != e.XADD_MANY:
        return 1
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
    if opcode in ADDS:
        begin: int = effect[3] << 64 | effect[4]
        return begin <= last and first < begin + entries_of(effect)
    if opcode == e.XIDMPRECORD:
        return bool(first <= effect[5] << 64 | effect[6] <= last)
    at = IDS_AT.get(opcode)
    return at is not None and any(first <= one <= last for one in idlist.unpack(effect[at]))
