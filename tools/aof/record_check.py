"""Is a decoded record an effect as engine/effects/effect.py describes it? Opcode, number of fields, and kind of each.

Checksums say that a record is what was written; this says that what was written makes sense to apply, which trusts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.keys.state import DATABASES

U64_MAX: Final = (1 << 64) - 1


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_u64(value: Any) -> bool:
    return type(value) is int and 0 <= value <= U64_MAX


def _is_db(value: Any) -> bool:
    return type(value) is int and 0 <= value < DATABASES


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_row(value: Any) -> bool:
    return type(value) is tuple and not len(value) % 2 and all(map(_is_bytes, value))


def _is_rows(value: Any) -> bool:
    return type(value) is tuple and all(map(_is_row, value))


def _is_numbers(value: Any) -> bool:
    return type(value) is tuple and all(map(_is_int, value))


def _is_pairs(value: Any) -> bool:
    return type(value) is tuple and not len(value) % 2 and all(map(_is_u64, value))


def _is_ids(value: Any) -> bool:
    return not len(value) % 8 if type(value) is bytes else _is_pairs(value)


def _is_counts(value: Any) -> bool:
    return _is_int(value) or _is_numbers(value)


def _is_keys(value: Any) -> bool:
    return type(value) is tuple and bool(value) and all(map(_is_bytes, value))


def _is_block(value: Any) -> bool:
    if type(value) is not tuple or len(value) != 2:
        return False
    count, sealed = value
    return _is_u64(count) and _is_bytes(sealed)


def _is_blocks(value: Any) -> bool:
    return type(value) is tuple and all(map(_is_block, value))


# Kinds of fields: d: db, b: bytes, u: unsigned 64 bits, n: any integer, r: row, R: rows, B: blocks, i:
# IDs, s: slots, c: counts, k: keys
_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "d": _is_db,
    "b": _is_bytes,
    "u": _is_u64,
    "n": _is_int,
    "r": _is_row,
    "R": _is_rows,
    "B": _is_blocks,
    "i": _is_ids,
    "s": _is_pairs,
    "c": _is_counts,
    "k": _is_keys,
}

# fmt: off
FIELDS: Final[dict[int, tuple[str, ...]]] = {
    e.EPOCH:                 ("uu",),
    e.XADD:                  ("dbuur",),
    e.XADD_NODE:             ("dbuur",),
    e.XADD_IDMP:             ("dbuurubb", "dbuurubbu"),
    e.XADD_MANY:             ("dbuuRBR",),
    e.XREOPEN:               ("dbiRb",),
    e.XTRIM:                 ("dbuuuusi",),
    e.XDEL:                  ("dbis",),
    e.XSETID:                ("dbuuuuu",),
    e.XCFGSET:               ("dbuu",),
    e.XIDMPRECORD:           ("dbbbuu", "dbbbuuu"),
    e.IDMP_DUPLICATE:        ("dbbb",),
    e.STREAM_CREATE:         ("db",),
    e.XGROUP_CREATE:         ("dbbuun",),
    e.XGROUP_SETID:          ("dbbuun",),
    e.XGROUP_DESTROY:        ("dbb",),
    e.XGROUP_CREATECONSUMER: ("dbbbu",),
    e.XGROUP_DELCONSUMER:    ("dbbb",),
    e.DELIVER:                ("dbbbincn", "dbbbincnuun"),
    e.XACK:                  ("dbbi",),
    e.XNACK:                 ("dbbic",),
    e.XACKDEL:               ("dbbis",),
    e.DEL:                   ("dk",),
    e.SET:                   ("dbbn",),
    e.PEXPIREAT:             ("dbn",),
    e.PERSIST:               ("db",),
    e.RENAME:                ("dbb",),
    e.COPY:                  ("dbdb",),
    e.MOVE:                  ("dbd",),
    e.SWAPDB:                ("dd",),
    e.FLUSHDB:               ("d",),
    e.FLUSHALL:              ("",),
    e.APPEND:                ("dbb",),
    e.RESTORE:               ("dbubn",),
}
# fmt: on


def fault(effect: Effect) -> str:
    """A description of the first fault of a record; empty if it has none."""
    opcode, fields = effect[0] & OPCODE, effect[1:]
    if opcode not in FIELDS or effect[0] >> 7 or type(effect[0]) is not int:
        return f"unknown opcode {effect[0]}"
    for kinds in FIELDS[opcode]:
        if len(kinds) == len(fields) and all(_KINDS[k](v) for k, v in zip(kinds, fields)):
            return ""
    return f"opcode {opcode} has fields of the wrong types"


# --- many records at once

_ALIKE: Final = 8  # fewer records of a kind than this are looked at one by one


def opcodes_if_sound(records: Sequence[Effect]) -> set[int] | None:
    """The opcodes, with and without END, of records in which `fault` finds nothing; None if one of them has a fault.

    A log is mostly long runs of one kind of record. So their fields are checked as columns, each with a few calls that
    loop in C: six times as fast as `fault` on each record. A test compares both.
    """
    try:
        found = _of_columns(records)
        if found is not None:
            return found
        if set(map(type, records)) != {tuple}:
            return None
        groups: dict[tuple[str, ...], list[Effect]] = {}
        for record in records:
            groups.setdefault(_SPECS[record[0]], []).append(record)
        if all(map(_group_sound, groups.values())):
            return set(map(itemgetter(0), records))
        return None
    except (LookupError, TypeError, ValueError):
        return None


def _group_sound(records: list[Effect]) -> bool:
    if len(records) >= _ALIKE and _of_columns(records) is not None:
        return True
    return not any(map(fault, records))


def _of_columns(records: Sequence[Effect]) -> set[int] | None:
    """The opcodes of records that are of one kind, with the same number of fields, and sound; None for any others.

    May raise LookupError or TypeError for a fault.
    """
    try:
        opcodes, *columns = zip(*records, strict=True)
    except ValueError:  # the numbers of fields differ, or there is no field
        return None
    found = set(opcodes)
    kinds = {_SPECS[opcode] for opcode in found}
    if len(kinds) != 1 or set(map(type, opcodes)) != {int}:
        return None
    for kind in kinds.pop():
        if len(kind) == len(columns) and all(_COLUMNS[k](c) for k, c in zip(kind, columns)):
            # The columns of byte strings are numbers. No other kind of field takes these.
            if not _NOT_NUMBERS.isdisjoint(kind) or set(map(type, records)) == {tuple}:
                return found
    return None


def _ints(column: Sequence[Any]) -> bool:
    return set(map(type, column)) == {int}


def _u64s(column: Sequence[Any]) -> bool:
    # No integer of msgpack is above U64_MAX.
    return set(map(type, column)) == {int} and min(column) >= 0


def _dbs(column: Sequence[Any]) -> bool:
    if set(map(type, column)) != {int}:
        return False
    first = column[0]
    return _is_db(first) and (column.count(first) == len(column) or all(map(_is_db, set(column))))


def _blobs(column: Sequence[Any]) -> bool:
    # Nothing else that msgpack gives can be joined: this is the quickest look at the type of each.
    b"".join(column)
    return True


def _rows(column: Sequence[Any]) -> bool:
    # A byte string gives numbers, which cannot be joined, unless it is empty; and a map of the log is always empty.
    b"".join(map(b"".join, column))
    lengths = set(map(len, column))
    if 0 in lengths and set(map(type, column)) != {tuple}:
        return False
    return not any(length & 1 for length in lengths)


def _each(name: str) -> Callable[[Sequence[Any]], bool]:
    check = _KINDS[name]
    return lambda column: all(map(check, column))


_COLUMNS: Final[dict[str, Callable[[Sequence[Any]], bool]]] = {
    **{name: _each(name) for name in _KINDS},
    "d": _dbs,
    "b": _blobs,
    "u": _u64s,
    "n": _ints,
    "r": _rows,
}
# Opcode, with END or without, -> the kinds of its fields
_SPECS: Final = {opcode | end: FIELDS[opcode] for opcode in FIELDS for end in (0, END)}
_NOT_NUMBERS: Final = frozenset("brkRBis")
