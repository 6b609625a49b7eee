"""Is a decoded record an effect as engine/effects/effect.py describes it? Opcode, number of fields, and kind of each.

Checksums say that a record is what was written; this says that what was written makes sense to apply, which trusts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.keys.state import DATABASES
from tidelog.tools.aof.fields import KINDS

U64_MAX: Final = (1 << 64) - 1


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_u64(value: Any) -> bool:
    return type(value) is int and 0 <= value <= U64_MAX


def _is_db(value: Any) -> bool:
    return type(value) is int and 0 <= value < DATABASES


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _all(check: Callable[[Any], bool], value: Any) -> bool:
    return type(value) is tuple and all(map(check, value))


def _is_row(value: Any) -> bool:
    return _all(_is_bytes, value) and not len(value) % 2


def _is_pairs(value: Any) -> bool:
    return _all(_is_u64, value) and not len(value) % 2


def _is_block(value: Any) -> bool:
    if type(value) is not tuple or len(value) != 2:
        return False
    count, sealed = value
    return _is_u64(count) and _is_bytes(sealed)


# by the kinds of fields.py
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "d": _is_db,
    "b": _is_bytes,
    "u": _is_u64,
    "n": _is_int,
    "r": _is_row,
    "R": lambda value: _all(_is_row, value),
    "B": lambda value: _all(_is_block, value),
    "i": lambda value: not len(value) % 8 if type(value) is bytes else _is_pairs(value),
    "s": _is_pairs,
    "c": lambda value: _is_int(value) or _all(_is_int, value),
    "k": lambda value: _all(_is_bytes, value) and bool(value),
}


def fault(effect: Effect) -> str:
    """A description of the first fault of a record; empty if it has none."""
    opcode, fields = effect[0] & OPCODE, effect[1:]
    if opcode not in KINDS or effect[0] >> 7 or type(effect[0]) is not int:
        return f"unknown opcode {effect[0]}"
    for kinds in KINDS[opcode]:
        if len(kinds) == len(fields) and all(_CHECKS[k](v) for k, v in zip(kinds, fields)):
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
    check = _CHECKS[name]
    return lambda column: all(map(check, column))


_COLUMNS: Final[dict[str, Callable[[Sequence[Any]], bool]]] = {
    **{name: _each(name) for name in _CHECKS},
    "d": _dbs,
    "b": _blobs,
    "u": _u64s,
    "n": _ints,
    "r": _rows,
}
# Opcode, with END or without, -> the kinds of its fields
_SPECS: Final = {opcode | end: KINDS[opcode] for opcode in KINDS for end in (0, END)}
_NOT_NUMBERS: Final = frozenset("brkRBis")
