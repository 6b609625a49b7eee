"""Values of the types that tidelog does not hold, stepped over exactly and without being unpacked.

A value's layout is told by a small script: S a string, L a length, 8 eight bytes, D a number as text behind its length
in one byte (253 to 255: none follows), (...) the part in brackets as many times as the length before it says.

    0 string       S             10 list of ziplists    S          18 list of listpacks   L(LS)
    1 list         L(S)          11 set of integers     S          20 set, listpack       S
    2 set          L(S)          12 sorted set, ziplist S          22 hash with expiries  L(LSS)
    3 sorted set   L(SD)         13 hash, ziplist       S          23 the same, listpack  S
    4 hash         L(SS)         14 list of ziplists    L(S)       24 hash with expiries  8L(LSS)
    5 sorted set   L(S8)         16 hash, listpack      S          25 the same, listpack  8S
    9 hash, zipmap S             17 sorted set, listpack S

Modules (7) and arrays (28) have layouts of their own, below. Types 22 and 23 come from release candidates. Type 6, from
one too, does not say how long it is.
"""

from __future__ import annotations

from typing import Final

from tidelog.engine.rdb.errors import RdbUnknown
from tidelog.engine.rdb.source import Source

STRING: Final = 0
MODULE: Final = 7
ARRAY: Final = 28
_NO_NUMBER: Final = 253  # of a number as text: infinite, or none

# type -> (name as TYPE prints it, script)
_LAYOUTS: Final = {
    0: ("string", "S"),
    1: ("list", "L(S)"),
    2: ("set", "L(S)"),
    3: ("zset", "L(SD)"),
    4: ("hash", "L(SS)"),
    5: ("zset", "L(S8)"),
    9: ("hash", "S"),
    10: ("list", "S"),
    11: ("set", "S"),
    12: ("zset", "S"),
    13: ("hash", "S"),
    14: ("list", "L(S)"),
    16: ("hash", "S"),
    17: ("zset", "S"),
    18: ("list", "L(LS)"),
    20: ("set", "S"),
    22: ("hash", "L(LSS)"),
    23: ("hash", "S"),
    24: ("hash", "8L(LSS)"),
    25: ("hash", "8S"),
}
_OTHERS: Final = {MODULE: "module", ARRAY: "array"}


def type_name(kind: int) -> str:
    """The type as Redis's TYPE prints it."""
    layout = _LAYOUTS.get(kind)
    return layout[0] if layout is not None else _OTHERS.get(kind, f"type {kind}")


def is_type(kind: int) -> bool:
    """Whether this codec knows the type."""
    return kind in _LAYOUTS or kind in _OTHERS


def skip_value(source: Source, kind: int) -> None:
    """Step over a value. Raises RdbError; RdbUnknown for a type that this codec does not know."""
    if kind == MODULE:
        source.length()
        skip_module(source)
    elif kind == ARRAY:
        _skip_array(source)
    elif kind in _LAYOUTS:
        _run(source, _LAYOUTS[kind][1])
    else:
        raise RdbUnknown(
            source.offset,
            f"the value has the type {kind}, which this version of tidelog does not know",
        )


def _run(source: Source, script: str) -> None:
    head, bracket, rest = script.partition("(")
    last = 0
    for letter in head:
        last = _step(source, letter)
    if bracket:
        inner = rest[:-1]
        for _ in range(last):
            for letter in inner:
                _step(source, letter)


def _step(source: Source, letter: str) -> int:
    if letter == "S":
        return source.skip_string()
    if letter == "L":
        return source.length()
    if letter == "8":
        source.skip(8)
        return 0
    count = source.byte()
    if count < _NO_NUMBER:
        source.skip(count)
    return 0


_MODULE_END, _SIGNED, _UNSIGNED, _FLOAT, _DOUBLE, _STRING = range(6)


def skip_module(source: Source) -> None:
    """Step over the parts of a module's value, up to its end."""
    while True:
        at = source.offset
        part = source.length()
        if part == _MODULE_END:
            return
        if part in (_SIGNED, _UNSIGNED):
            source.length()
        elif part == _FLOAT:
            source.skip(4)
        elif part == _DOUBLE:
            source.skip(8)
        elif part == _STRING:
            source.skip_string()
        else:
            source.damaged(f"the value of a module has a part of kind {part}", at)


_IN_FULL, _INTEGER, _NUMBER, _SHORT = range(4)


def _skip_array(source: Source) -> None:
    """L elements | L whether an insert index follows | [L index] | per element: L distance, L tag, content."""
    count = source.length()
    if source.length():
        source.length()
    for _ in range(count):
        source.length()
        at = source.offset
        tag = source.length()
        if tag in (_IN_FULL, _SHORT):
            source.skip_string()
        elif tag in (_INTEGER, _NUMBER):
            source.skip(8)
        else:
            source.damaged(f"an element of an array has the tag {tag}", at)
