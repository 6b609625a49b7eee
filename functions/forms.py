"""Forms: how values without parts are stored, and what the forms of all others are made of."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import InvalidOperation
from typing import Any, Final

from tidelog.functions.errors import Unfit

# The kind of a stored value, by its type.
KINDS: Final = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    bytes: "bytes",
    list: "list",
    dict: "object",
}
TEXT: Final = frozenset(("text",))
LIST: Final = frozenset(("list",))
OBJECT: Final = frozenset(("object",))


@dataclass(frozen=True, slots=True)
class Form:
    """The stored form of the values of one annotation.

    name      for errors
    kinds     what a stored value can be: values of `KINDS`
    pack      value -> what is stored; raises Unfit
    unpack    the reverse; raises Unfit
    """

    name: str
    kinds: frozenset[str]
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def required(name: str, value: Any) -> Unfit:
    """A value is none of an annotation."""
    return Unfit(f"must be {name}, not {type(value).__name__}")


def same_form(kind: type, stored: str) -> Form:
    """The form of a class that JSON has."""
    own: Any = {int: int, str: str.__str__}.get(kind)  # of a value whose class inherits

    def same(value: Any) -> Any:
        if value.__class__ is kind:
            return value
        if own is None or not isinstance(value, kind) or isinstance(value, bool):
            raise required(name, value)
        return own(value)

    name = "None" if kind is type(None) else kind.__name__
    return Form(name, frozenset((stored,)), same, same)


def float_form(binary: bool) -> Form:
    """The form of float. `binary`: the codec has infinity and NaN."""
    finite = not binary

    def same(value: Any) -> Any:
        if value.__class__ is float:
            if finite and value - value:  # of infinity and NaN it is NaN
                raise Unfit(f"is {value}, which JSON does not have")
            return value
        if value.__class__ is int or isinstance(value, float):
            return float(value)
        raise required("float", value)

    # a float that is whole may come back from another program as an int
    return Form("float", frozenset(("float", "int")), same, same)


def any_form(binary: bool) -> Form:
    """The form of what has no annotation. `binary`: the codec has bytes."""
    stored = frozenset(KINDS.values())
    plain = KINDS.keys() if binary else KINDS.keys() - {bytes}

    def same(value: Any) -> Any:
        kind = value.__class__
        if kind not in plain:
            raise Unfit(f"is of type {kind.__name__}, and has no annotation that restores it")
        if kind is list:
            all_of("item ", enumerate(value), same)
        elif kind is dict:
            for key in value:
                if key.__class__ is not str:
                    raise Unfit(f"has a key of type {type(key).__name__}, and no annotation")
            all_of("", value.items(), same)
        return value

    return Form("Any", stored, same, lambda value: value)


def base64_of(value: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(value).decode()


def checked(kind: type, pack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`pack`, for values of a class alone."""

    def packed(value: Any) -> Any:
        # a datetime is a date, but would lose its time
        if not isinstance(value, kind) or kind is date and isinstance(value, datetime):
            raise required(kind.__name__, value)
        return pack(value)

    return packed


def guarded(name: str, unpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`unpack`, whose errors are of the value and not of the program."""

    def unpacked(raw: Any) -> Any:
        try:
            return unpack(raw)
        except Unfit:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, InvalidOperation) as error:
            raise Unfit(f"is no {name}: {type(error).__name__}: {error}") from error

    return unpacked


def text_form(kind: type, pack: Callable[[Any], str], unpack: Callable[[str], Any]) -> Form:
    """The form of a class that is stored as text."""
    read = guarded(kind.__name__, unpack)

    def of_text(raw: Any) -> Any:
        if raw.__class__ is not str:
            raise required(kind.__name__, raw)
        return read(raw)

    return Form(kind.__name__, TEXT, checked(kind, pack), of_text)


def tuple_form(
    name: str, kind: Any, parts: list[Form], made: Callable[[list[Any]], Any] = tuple
) -> Form:
    """The form of a tuple of a fixed length, or of a class `made` of it."""

    def pack(value: Any) -> Any:
        if not isinstance(value, kind):
            raise required(name, value)
        return through(list(value), "pack")

    def through(items: Any, how: str) -> list[Any]:
        if items.__class__ is not list or len(items) != len(parts):
            raise Unfit(f"must be {name} of {len(parts)} items")
        pairs = enumerate(zip(parts, items))
        return [part_of(f"item {at}", getattr(part, how), item) for at, (part, item) in pairs]

    return Form(name, LIST, pack, lambda raw: made(through(raw, "unpack")))


def all_of(what: str, items: Iterable[tuple[Any, Any]], work: Callable[[Any], Any]) -> list[Any]:
    """`work` for the value of each of the items. `what` they are, before their places in an error."""
    found = []
    at: Any = None
    try:
        for at, value in items:
            found.append(work(value))
    except Unfit as error:
        raise Unfit(f"has {what}{at!r} that {error}", True) from error.__cause__
    return found


def part_of(name: str, work: Callable[[Any], Any], value: Any) -> Any:
    """`work` for a part of a value, by its name in an error."""
    try:
        return work(value)
    except Unfit as error:
        raise Unfit(f"has {name} that {error}", True) from error.__cause__


def refused(annotation: Any) -> Form:
    """The form of an annotation that takes no value."""
    name = annotation.__name__ if isinstance(annotation, type) else annotation

    def refuse(value: Any) -> Any:
        raise Unfit(f"is of type {type(value).__name__}: a job cannot hold {name}")

    return Form(name, frozenset(), refuse, refuse)
