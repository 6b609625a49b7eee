"""Calls: the arguments of a function as a value that a job can have, and back.

    {"task": "send", "args": {"to": "ann", "when": "2026-01-01T03:00:00+00:00"}}

Arguments stand by the names of their parameters, those of `*args` and `**kwargs` under that name, as a list or an
object. A parameter that was left to its default is not stored: the default of the process that works on the job counts.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from hashlib import blake2b
from inspect import Parameter
from types import GenericAlias
from typing import Any, Final

from tidelog.engine.fast_path import fast_path
from tidelog.functions.errors import Changed, Unfit
from tidelog.functions.forms import KINDS, Form
from tidelog.functions.values import form_of
from tidelog.store.errors import EncodeError

_PLAIN: Final = ("None", "bool", "int", "str")  # the forms of values that are stored as they are
_NAMED: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Calls:
    """The calls of one function.

    name      of the task
    result    how what it returns is stored
    """

    def __init__(self, name: str, function: Callable[..., Any], binary: bool) -> None:
        self.name = name
        self._signature = signature = inspect.signature(function)
        hints = _hints(function)
        empty: Any = Parameter.empty
        self._forms: dict[str, Form] = {}
        self._needed: set[str] = set()
        for parameter in signature.parameters.values():
            annotation = hints.get(parameter.name, Any)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                annotation = GenericAlias(tuple, (annotation, ...))
            elif parameter.kind is Parameter.VAR_KEYWORD:
                annotation = GenericAlias(dict, (str, annotation))
            elif parameter.default is empty:
                self._needed.add(parameter.name)
            self._forms[parameter.name] = form_of(annotation, binary)
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        self._by_name = all(kind in _NAMED for kind in kinds.values())
        self._places = tuple(name for name, kind in kinds.items() if kind is _NAMED[0])
        self._plain = {
            name: next(kind for kind, stored in KINDS.items() if stored in form.kinds)
            for name, form in self._forms.items()
            if form.name in _PLAIN
        }
        self.result = form_of(hints.get("return", Any), binary)

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, as they are stored.

        Raises TypeError as a call of the function would, and EncodeError for a value that does not fit its annotation.
        """
        if args and self._by_name:
            named = dict(zip(self._places, args))
            if len(named) == len(args) and named.keys().isdisjoint(kwargs):
                args, kwargs = (), {**named, **kwargs}
        if not args and self._fits(kwargs):
            return dict(kwargs)
        return self.pack_each(args, kwargs)

    def pack_each(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The same, of any arguments."""
        forms = self._forms
        given: Mapping[str, Any] = kwargs
        if args or not self._by_name or not (forms.keys() >= kwargs.keys() >= self._needed):
            try:
                given = self._signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{self.name}: {error}") from None
        stored = {}
        for name, value in given.items():
            try:
                stored[name] = forms[name].pack(value)
            except Unfit as error:
                said = f"task {self.name}: argument {name!r} {error}"
                raise EncodeError(said) from error.__cause__
        return stored

    def unpack(self, stored: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call. Raises Changed if the function takes others."""
        if stored.__class__ is not dict:
            raise Changed(f"the job has no arguments for task {self.name}")
        return ([], stored) if self._fits(stored) else self.unpack_each(stored)

    def unpack_each(self, stored: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The same, of any arguments."""
        forms = self._forms
        if strange := [name for name in stored if name not in forms]:
            raise Changed(f"task {self.name} takes no argument {strange[0]!r}, which the job has")
        if lacking := self._needed - stored.keys():
            raise Changed(f"task {self.name} needs {min(lacking)!r}, which the job does not have")
        found = {}
        for name, raw in stored.items():
            try:
                found[name] = forms[name].unpack(raw)
            except Unfit as error:
                raise Changed(
                    f"task {self.name}: argument {name!r} of the job {error}"
                ) from error.__cause__
        return ([], found) if self._by_name else self._placed(found)

    @fast_path(
        of="functions.calls:Calls.pack_each",
        held_by="tests/functions/test_calls.py::test_arguments_that_are_stored_as_they_are",
    )
    def _fits(self, given: Mapping[str, Any]) -> bool:
        """Whether all of the arguments are stored as they are, and none is missing or unknown."""
        plain = self._plain
        for name, value in given.items():
            if plain.get(name) is not value.__class__:
                return False
        return self._by_name and (len(given) == len(self._forms) or self._needed <= given.keys())

    def _placed(self, found: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, of a function that has some without names."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            if name not in found:
                continue
            if parameter.kind is Parameter.VAR_POSITIONAL:
                args += found[name]
            elif parameter.kind is Parameter.VAR_KEYWORD:
                kwargs |= found[name]
            elif parameter.kind is Parameter.KEYWORD_ONLY:
                kwargs[name] = found[name]
            elif kwargs:  # one before it was left out
                kwargs[name] = found[name]
            else:
                args.append(found[name])
        return args, kwargs


def dedup_id(name: str, stored: dict[str, Any]) -> str:
    """The ID of a call with these arguments: the same for the same ones."""
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"), default=bytes.hex)
    return f"{name}:{blake2b(text.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function. One that names nothing here stays text, which takes no value."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError):
        plain = inspect.unwrap(function)
        known = getattr(plain, "__globals__", {})
        found = {}
        for name, annotation in inspect.get_annotations(plain).items():
            try:
                found[name] = eval(annotation, known) if isinstance(annotation, str) else annotation
            except (NameError, AttributeError):
                found[name] = typing.ForwardRef(annotation)
        return found
