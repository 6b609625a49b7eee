"""Values: arguments and results as what JSON and msgpack have, and back, by the annotations of a function.

    annotation                              stored as
    None, bool, int, float, str             itself
    bytes                                   itself in msgpack, base64 in JSON
    datetime, date, time                    text of ISO 8601
    timedelta                               a whole number of microseconds
    Decimal, UUID                           text
    Enum                                    the name of the member; a Flag its number
    Literal                                 the value
    list, set, frozenset, tuple             a list; a NamedTuple, too
    dict                                    an object; a list of pairs unless its keys are stored as text
    dataclass, TypedDict                    an object, by the names of fields
    a pydantic model                        its JSON
    A | B                                   what its member is stored as; no two may be stored alike
    Any, none                               what JSON has

An annotation that is not of the table takes no value, and says so at the put.
"""

from __future__ import annotations

import base64
import collections.abc as abc
import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from tidelog.functions.errors import Unfit
from tidelog.functions.forms import (
    KINDS,
    LIST,
    OBJECT,
    TEXT,
    Form,
    all_of,
    any_form,
    base64_of,
    checked,
    float_form,
    guarded,
    part_of,
    refused,
    required,
    same_form,
    text_form,
    tuple_form,
)

_MICROSECOND: Final = timedelta(microseconds=1)
# The class of a restored collection, by its annotation.
_MADE: Final[dict[Any, type]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    **{frozenset: frozenset, tuple: tuple},
}


def form_of(annotation: Any, binary: bool) -> Form:
    """The form of an annotation without strings in it. `binary`: the codec has bytes."""
    return _Forms(binary).of(annotation)


class _Forms:
    """Makes forms."""

    def __init__(self, binary: bool) -> None:
        self._binary = binary
        if binary:
            self._bytes = same_form(bytes, "bytes")
        else:
            self._bytes = text_form(
                bytes, base64_of, lambda text: base64.b64decode(text, validate=True)
            )

    def of(self, annotation: Any) -> Form:
        """The form of an annotation."""
        if annotation in (Any, object, None) or isinstance(annotation, typing.TypeVar):
            return (
                any_form(self._binary) if annotation is not None else same_form(type(None), "null")
            )
        if annotation.__class__ is getattr(typing, "TypeAliasType", ()):  # since Python 3.12
            return self.of(annotation.__value__)
        if isinstance(annotation, typing.NewType):
            return self.of(annotation.__supertype__)
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in (typing.Annotated, typing.Required, typing.NotRequired):
            return self.of(args[0])
        if origin in (typing.Union, types.UnionType):
            return self._union(args)
        if origin is typing.Literal:
            return self._literal(args)
        kind = origin or annotation
        if not isinstance(kind, type):
            return refused(getattr(annotation, "__forward_arg__", str(annotation)))
        return (
            self._simple(kind) or self._collection(kind, args) or self._made(kind) or refused(kind)
        )

    # --- without parts

    def _simple(self, kind: type) -> Form | None:
        if kind is float:
            return float_form(self._binary)
        if kind in (bool, int, str, type(None)):
            return same_form(kind, KINDS[kind])
        if kind is bytes:
            return self._bytes
        if kind in (datetime, date, time):
            return text_form(kind, lambda value: str(value.isoformat()), kind.fromisoformat)
        if kind in (Decimal, UUID):
            return text_form(kind, str, kind)
        if kind is timedelta:
            pack = checked(timedelta, lambda value: value // _MICROSECOND)
            return Form("timedelta", frozenset(("int",)), pack, lambda us: us * _MICROSECOND)
        if issubclass(kind, enum.Flag):
            pack = checked(kind, lambda value: value.value)
            return Form(kind.__name__, frozenset(("int",)), pack, guarded(kind.__name__, kind))
        if issubclass(kind, enum.Enum):
            return text_form(kind, lambda value: str(value.name), lambda name: kind[name])
        return None

    def _literal(self, values: tuple[Any, ...]) -> Form:
        forms = {value.__class__: self.of(value.__class__) for value in values}
        name = f"one of {', '.join(map(repr, values))}"

        def pack(value: Any) -> Any:
            if value not in values or value.__class__ not in forms:
                raise Unfit(f"must be {name}, not {value!r}")
            return forms[value.__class__].pack(value)

        stored = {(pack(value).__class__, pack(value)): value for value in values}

        def unpack(raw: Any) -> Any:
            try:
                return stored[raw.__class__, raw]
            except (KeyError, TypeError):
                raise Unfit(f"must be {name}, not {raw!r}") from None

        return Form(name, frozenset().union(*(form.kinds for form in forms.values())), pack, unpack)

    def _union(self, members: tuple[Any, ...]) -> Form:
        forms = [self.of(member) for member in members]
        name = " | ".join(form.name for form in forms)
        by_kind: dict[str, Form] = {}
        for form in forms:
            for stored in form.kinds:
                if stored in by_kind and {"int", "float"} != {form.name, by_kind[stored].name}:
                    alike = f"{by_kind[stored].name} and {form.name} are both stored as {stored}"
                    return refused(f"{name}, where {alike}")
                by_kind.setdefault(stored, form)

        def pack(value: Any) -> Any:
            for form in forms:
                try:
                    return form.pack(value)
                except Unfit as error:
                    if error.inner:
                        raise
            for form in forms:
                if not form.kinds:
                    form.pack(value)  # says that nothing can be of this member
            raise required(name, value)

        def unpack(raw: Any) -> Any:
            found = by_kind.get(KINDS.get(raw.__class__, ""))
            if found is None:
                raise required(name, raw)
            return found.unpack(raw)

        return Form(name, frozenset(by_kind), pack, unpack)

    # --- with parts

    def _collection(self, kind: type, args: tuple[Any, ...]) -> Form | None:
        if kind in (dict, abc.Mapping, abc.MutableMapping):
            return self._mapping(*(args or (Any, Any)))
        if kind is tuple and args and args[-1] is not ...:
            return tuple_form("tuple", tuple, [self.of(arg) for arg in args])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            hints = typing.get_type_hints(kind)
            parts = [self.of(hints.get(field, Any)) for field in kind._fields]
            return tuple_form(kind.__name__, kind, parts, lambda items: kind(*items))
        makes: Any = _MADE.get(kind)
        if makes is None:
            return None
        item = self.of(args[0] if args else Any)
        fits: Any = kind
        name = f"{kind.__name__}[{item.name}]"

        def pack(value: Any) -> Any:
            if not isinstance(value, fits) or isinstance(value, (str, bytes)):
                raise required(name, value)
            return all_of("item ", enumerate(value), item.pack)

        def unpack(raw: Any) -> Any:
            if raw.__class__ is not list:
                raise required(name, raw)
            return makes(all_of("item ", enumerate(raw), item.unpack))

        return Form(name, LIST, pack, unpack)

    def _mapping(self, key_kind: Any, value_kind: Any) -> Form:
        key, item = self.of(key_kind), self.of(value_kind)
        name = f"dict[{key.name}, {item.name}]"
        pairs = key.kinds != TEXT and key.name != "Any"

        def pack(value: Any) -> Any:
            if not isinstance(value, Mapping):
                raise required(name, value)
            keys = all_of("key ", ((given, given) for given in value), key.pack)
            items = all_of("", value.items(), item.pack)
            if key.name == "Any" and any(each.__class__ is not str for each in keys):
                raise Unfit("has keys that are not str, and no annotation that restores them")
            found = list(zip(keys, items))
            return [list(pair) for pair in found] if pairs else dict(found)

        def unpack(raw: Any) -> Any:
            found = raw
            if raw.__class__ is not (list if pairs else dict):
                raise required(name, raw)
            found = found if pairs else found.items()
            return {key.unpack(one): item.unpack(other) for one, other in found}

        return Form(name, LIST if pairs else OBJECT, pack, guarded(name, unpack))

    def _made(self, kind: Any) -> Form | None:
        """The form of a class with fields."""
        name: str = kind.__name__
        if hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump"):
            pack = checked(kind, lambda value: value.model_dump(mode="json", by_alias=True))

            def unpack(raw: Any) -> Any:
                # In the mode of JSON: a strict model takes no text for a datetime otherwise.
                return kind.model_validate_json(json.dumps(raw))

            stored = frozenset(KINDS.values()) if "root" in kind.model_fields else OBJECT
            return Form(name, stored, pack, guarded(name, unpack))
        if dataclasses.is_dataclass(kind):
            fields = [field.name for field in dataclasses.fields(kind) if field.init]
            return self._object(kind, fields, _needed, lambda value: _fields_of(value, fields))
        if typing.is_typeddict(kind):
            return self._object(dict, kind.__annotations__, _needed_keys, dict, kind)
        return None

    def _object(
        self,
        kind: Any,
        fields: Iterable[str],
        needs: Callable[[Any, dict[str, Any]], set[str]],
        parts: Callable[[Any], dict[str, Any]],
        hinted: Any = None,
    ) -> Form:
        name = (hinted or kind).__name__
        made: dict[str, Form] = {}
        needed: set[str] = set()

        def forms() -> dict[str, Form]:  # made late: a class may refer to itself
            if not made:
                hints = typing.get_type_hints(hinted or kind, include_extras=True)
                needed.update(needs(hinted or kind, hints))
                made.update({field: self.of(hints[field]) for field in fields})
            return made

        def packed(given: Mapping[str, Any], how: str) -> dict[str, Any]:
            known = forms()
            if strange := [field for field in given if field not in known]:
                raise Unfit(f"is of {name}, which has no {strange[0]!r}")
            if lacking := needed - given.keys():
                raise Unfit(f"is of {name}, which needs {min(lacking)!r}")
            return {
                field: part_of(field, getattr(known[field], how), given[field]) for field in given
            }

        def pack(value: Any) -> Any:
            if value.__class__ is not kind:
                raise required(name, value)
            return packed(parts(value), "pack")

        def unpack(raw: Any) -> Any:
            if raw.__class__ is not dict:
                raise required(name, raw)
            return guarded(name, lambda given: kind(**given))(packed(raw, "unpack"))

        return Form(name, OBJECT, pack, unpack)


def _fields_of(value: Any, fields: Iterable[str]) -> dict[str, Any]:
    """The fields of a dataclass, which may have slots."""
    return {field: getattr(value, field) for field in fields}


def _needed(kind: Any, hints: dict[str, Any]) -> set[str]:
    """The fields of a dataclass without a default."""
    missing = dataclasses.MISSING
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.init and field.default is missing and field.default_factory is missing
    }


def _needed_keys(kind: Any, hints: dict[str, Any]) -> set[str]:
    """The keys that a TypedDict must have. The class itself does not know it of annotations that were text."""
    origins = {name: typing.get_origin(hint) for name, hint in hints.items()}
    return {
        name
        for name, origin in origins.items()
        if origin is typing.Required
        or origin is not typing.NotRequired
        and name in kind.__required_keys__
    }
