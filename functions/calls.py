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
from json.encoder import encode_basestring
from types import GenericAlias
from typing import Any, Final

from tidelog.engine.fast_path import fast_path
from tidelog.functions.errors import Changed, Unfit
from tidelog.functions.forms import KINDS, Form
from tidelog.functions.values import form_of
from tidelog.jobs.codecs import NAMED
from tidelog.store.errors import EncodeError

_PLAIN: Final = ("None", "bool", "int", "str")  # the forms of values that are stored as they are
# Begins those names of a compiled function that are not its parameters.
_OWN: Final = "__tidelog_"
_JSON: Final[dict[str, Callable[[Any], str]]] = {
    "None": lambda value: "null",
    "bool": {True: "true", False: "false"}.__getitem__,
    "int": int.__repr__,
    "str": encode_basestring,
}
_MSGPACK: Final = NAMED["msgpack"]
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
        self._same = self._compiled(False) if self._by_name else _never
        self._json = self._compiled(True) if self._by_name and not binary else _never
        begun = {"task": name, "args": None}  # the last byte is that of None
        self._start = _MSGPACK.encode(begun)[:-1] if binary else b""
        self.result = form_of(hints.get("return", Any), binary)

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, as they are stored.

        Raises TypeError as a call of the function would, and EncodeError for a value that does not fit its annotation.
        """
        try:
            found = self._same(*args, **kwargs)
        except TypeError:
            found = None  # the general path says it of the task
        return self.pack_each(args, kwargs) if found is None else found

    def encoded(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
        """A job as the codec encodes it, if its arguments are stored as they are; else None."""
        try:
            if not self._start:
                found: bytes | None = self._json(*args, **kwargs)
                return found
            plain = self._same(*args, **kwargs)
            return None if plain is None else self._start + _MSGPACK.encode(plain)
        except (TypeError, ValueError, OverflowError):
            return None  # the general path says what is wrong

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
        try:
            fits = self._same(**stored) is not None
        except TypeError:
            fits = False
        return ([], stored) if fits else self.unpack_each(stored)

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
    def _compiled(self, as_json: bool) -> Callable[..., Any]:
        """A function with the parameters of the task: so Python binds the arguments. If all of them are stored as they
        are, it returns them by name, or the JSON of the job; else None. It raises TypeError if the task does not take
        them.

            def same(to, copies=left, *, how=left):
                if to.__class__ is not str: return None
                found = {"to": to}                              # found = ',"to":' + json_of_str(to)
                if copies is not left:
                    if copies.__class__ is not int: return None
                    found["copies"] = copies                    # found += ',"copies":' + json_of_int(copies)
                if how is not left: return None                 # it has another form
                return found                                    # return (start + found[1:] + "}}").encode()
        """
        left, found = f"{_OWN}left", f"{_OWN}found"
        names: dict[str, Any] = {left: object()}
        head: list[str] = []
        wrong: list[str] = []
        begun: list[str] = []
        rest: list[str] = []
        for place, (name, parameter) in enumerate(self._signature.parameters.items()):
            form, kind, text = self._forms[name], f"{_OWN}{place}", f"{_OWN}json{place}"
            names[kind] = next((one for one, stored in KINDS.items() if stored in form.kinds), None)
            names[text] = _JSON.get(form.name)
            wants = f"{name}.__class__ is not {kind}" if form.name in _PLAIN else "True"
            part = f"""',"{name}":' + {text}({name})"""
            if parameter.kind is Parameter.KEYWORD_ONLY and "*" not in head:
                head.append("*")
            if name in self._needed:
                head.append(name)
                wrong.append(wants)
                begun.append(part if as_json else f"'{name}': {name}")
            else:
                head.append(f"{name}={left}")
                rest += [f" if {name} is not {left}:", f"  if {wants}: return None"]
                rest.append(f"  {found} += {part}" if as_json else f"  {found}['{name}'] = {name}")
        start = " + ".join(begun) or "''" if as_json else f"{{{', '.join(begun)}}}"
        opened = repr(f'{{"task":{encode_basestring(self.name)},"args":{{')
        end = f"({opened} + {found}[1:] + '}}}}').encode()" if as_json else found
        body = [f" if {' or '.join(wrong) or False}: return None", f" {found} = {start}", *rest]
        exec("\n".join([f"def same({', '.join(head)}):", *body, f" return {end}"]), names)
        made: Callable[..., Any] = names["same"]
        return made

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


def _never(*args: Any, **kwargs: Any) -> None:
    """In the place of what is compiled, if nothing is stored as it is."""


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
