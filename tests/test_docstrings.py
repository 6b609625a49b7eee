"""House rules for the docstrings of everything that a user reaches. The API reference is generated from them.

The style is Google's, rendered by mkdocstrings:

    '''What it does, in one line; for a command of Redis with its section of the reference (spec 5.5). Since Redis 8.2.

    Args:
        name: Facts that the signature does not give: shape, unit, the meaning of None. The type is not repeated.

    Returns:
        The shape of the reply, where the first line does not say it.

    Raises:
        DataError: The cause. Errors that any method may raise are named by the class.
    '''

A docstring with "As `Queue.put`." stands for that one: the face for asyncio does not repeat the face for threads.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

import tidelog
from tidelog import testing
from tidelog.api import encode
from tidelog.api.methods import Methods
from tidelog.api.queue.embedded import Embedded
from tidelog.client.remote import Remote
from tidelog.jobs.engine import QueueEngine
from tidelog.server.config.config import ConfigError
from tidelog.store import errors

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
SECTIONS = ["Args", "Returns", "Raises", "Attributes"]
# Besides DataError for an argument that is neither text nor number. The classes name these.
OF_ANY_METHOD = (
    *(tidelog.StoreClosed, tidelog.StorePoisoned, tidelog.StoreDamaged, tidelog.ReadOnlyError),
    *(tidelog.OutOfSpace, tidelog.UnitTooLarge, tidelog.OutcomeUnknown),
)


class Documented(NamedTuple):
    """A public class, function, method or property.

    owner    the class, if it is a part of one
    code     the function that runs, None for a class
    """

    name: str
    text: str | None
    owner: type | None = None
    code: Any = None

    def sections(self) -> dict[str, list[str]]:
        """Title -> names of its items."""
        parts = re.split(r"\n\n(?=[A-Z][a-z]+:\n    )", inspect.cleandoc(self.text or ""))
        split = [part.partition(":\n")[::2] for part in parts[1:]]
        return {title: re.findall(r"^    \*{,2}(\w+): ", text, re.M) for title, text in split}


def directives() -> Iterator[tuple[str, Any]]:
    """(full name, object) of every directive of the API reference."""
    for page in sorted((REFERENCE / "api").glob("*.md")):
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M):
            yield name, resolved(name)


def resolved(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(import_module(module), last)


def documented(name: str, thing: Any) -> Iterator[Documented]:
    """An object and its public parts."""
    if isinstance(thing, ModuleType):
        for part, value in vars(thing).items():
            if getattr(value, "__module__", None) == name and not part.startswith("_"):
                yield from documented(f"{name}.{part}", value)
    elif isinstance(thing, type):
        yield Documented(name, thing.__doc__)
        for part in dir(thing):
            found: Any = inspect.getattr_static(thing, part)
            found = getattr(found, "fget", found)
            if is_ours(found) and not part.startswith("_"):
                yield Documented(f"{name}.{part}", found.__doc__, thing, found)
    elif name.startswith("tidelog.testing.plugin."):  # pytest calls it
        yield Documented(name, thing.__doc__)
    elif callable(thing):
        code: Any = inspect.unwrap(thing)
        yield Documented(name, code.__doc__, None, code)


def is_ours(thing: object) -> bool:
    """Whether it is a function of tidelog, and not one that a decorator generated."""
    return (
        isinstance(thing, FunctionType)
        and thing.__module__.startswith("tidelog.")
        and not thing.__code__.co_filename.startswith("<")
    )


PUBLIC = [item for name, thing in directives() for item in documented(name, thing)]
CALLED = [item for item in PUBLIC if item.code]


def test_the_api_reference_shows_every_public_name() -> None:
    shown = {id(thing) for _, thing in directives()} | {
        id(error) for error in vars(errors).values()
    }
    assert [name for name in tidelog.__all__ if id(getattr(tidelog, name)) not in shown] == []
    assert [name for name in testing.__all__ if id(getattr(testing, name)) not in shown] == []


def test_the_api_reference_shows_what_public_methods_return() -> None:
    shown = {item.name.rpartition(".")[2] for item in PUBLIC}
    classes = {
        value.__name__
        for module in (
            "api.queue.face",
            "api.queue.aio",
            "api.queue.faces",
            "jobs.putting",
            "jobs.engine",
            "jobs.stats",
            "api.sync",
            "api.aio",
            "api.pipeline",
        )
        for value in vars(import_module(f"tidelog.{module}")).values()
        if isinstance(value, type)
        and value.__module__.startswith(("tidelog.api", "tidelog.jobs", "tidelog.store"))
    }
    for item in CALLED:
        returned = set(re.findall(r"\w+", str(item.code.__annotations__.get("return"))))
        assert returned & classes <= shown, item.name


def test_style() -> None:
    assert {item.name: fault for item in PUBLIC for fault in faults_of(item)} == {}


def faults_of(item: Documented) -> Iterator[str]:
    if not item.text:
        yield "no docstring"
        return
    summary, _, rest = item.text.partition("\n")
    if not re.match("[A-Z`].*[.:]$", summary):
        yield "the first line is not a sentence"
    if rest and not rest.startswith("\n"):
        yield "no blank line after the first line"
    sections = item.sections()
    if list(sections) != [title for title in SECTIONS if title in sections]:
        yield f"sections are {SECTIONS}, in this order"
    said = sections.get("Args", [])
    known = list(inspect.signature(item.code).parameters) if item.code else said
    if said != [name for name in known if name in said]:
        yield "Args are not those of the signature, or not in its order"
    for name in sections.get("Raises", ()):
        if not issubclass(error_named(name), Exception):
            yield f"{name} is no error"


def test_each_fault_of_style_is_seen() -> None:
    def code(first: int, second: int) -> None: ...

    for text in (
        None,
        "no sentence",
        "Two lines\nof a sentence.",
        "A.\nB.",
        "A.\n\nReturns:\n    B.\n\nArgs:\n    first: C.",
        "A.\n\nArgs:\n    third: B.",
        "A.\n\nArgs:\n    second: B.\n    first: C.",
        "A.\n\nRaises:\n    Store: B.",
    ):
        assert list(faults_of(Documented("x", text, None, code))), text
    good = "A.\n\nArgs:\n    first: B.\n    second: C.\n\nRaises:\n    DataError: D."
    assert not list(faults_of(Documented("x", good, None, code)))


def error_named(name: str) -> type[Exception]:
    others: dict[str, type[Exception]] = {"ConfigError": ConfigError, "OSError": OSError}
    others["TypeError"] = TypeError
    found: type[Exception] = others.get(name) or getattr(tidelog, name)
    return found


def test_the_errors_that_the_code_raises_are_named() -> None:
    missing = {}
    for item in CALLED:
        named = tuple(error_named(name) for name in meant(item).sections().get("Raises", ()))
        for error in raised(item.code, item.owner, set()):
            if not issubclass(error, (*named, *OF_ANY_METHOD)):
                missing[item.name] = error.__name__
    assert missing == {}


def meant(item: Documented) -> Documented:
    """The object whose docstring describes this one."""
    other = re.search(r"\bAs `([\w.]+)`", item.text or "")
    if not other:
        return item
    # `tidelog.queue` and `testing.queue` are functions, `Queue.put` is a method of a class in any module.
    name = re.sub("^testing", "tidelog.testing", other[1])
    return next(i for i in CALLED if i.name == name or i.name.endswith(f".{name}"))


@cache
def statements(code: Any) -> list[ast.AST]:
    """The calls and raises of a function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Raise)]


def taking_an_engine(module: ModuleType, name: str) -> Any:
    """The function of that name, if it is one of the modules that work for the engine of a queue."""
    function = getattr(module, name, None)
    return function if "engine" in getattr(function, "__annotations__", {}) else None


def returned(owner: type | None, name: str) -> Any:
    """The error that a method makes and returns."""
    made = inspect.getattr_static(owner, name, None)
    if isinstance(made, FunctionType):
        return made.__globals__.get(str(made.__annotations__.get("return")))
    return None


def raised(code: Any, owner: type | None, seen: set[Any]) -> set[type[tidelog.TidelogError]]:
    """Errors of tidelog that a function raises, itself or in functions that it calls: by name, on `self` or a class, on
    the backends of a queue, or with its engine.

    Refusals by the engine come through `from_command` and are left out; tests/store/test_refusals.py provokes them.
    """
    if code in seen or code.__module__ == encode.__name__:
        return set()
    seen.add(code)
    found: set[type[tidelog.TidelogError]] = set()
    for node in statements(code):
        called: Any = None
        error: Any = None
        within: type | None = None
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
                error = code.__globals__.get(name)
            case ast.Raise(exc=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))):
                error = returned(owner, name)
            case ast.Raise(
                exc=ast.Call(func=ast.Attribute(value=ast.Attribute(attr="engine"), attr=name))
            ):
                error = returned(QueueEngine, name)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="_backend"), attr=name)):
                for kind in (Embedded, Remote):
                    if is_ours(method := getattr(kind, name, None)):
                        found |= raised(method, kind, seen)
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Name(id="engine") | ast.Attribute(attr="engine"), attr=name
                )
            ):
                called, within = inspect.getattr_static(QueueEngine, name, None), QueueEngine
            case ast.Call(func=ast.Name(id=name)):
                called = code.__globals__.get(name)
                if isinstance(called, type) and not issubclass(called, Exception):
                    called, within = called.__init__, called
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if owner:
                called, within = inspect.getattr_static(owner, name, None), owner
                if isinstance(called, type):
                    called, within = inspect.getattr_static(called, "__init__"), called
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                if isinstance(code.__globals__.get(module), ModuleType):
                    called = taking_an_engine(code.__globals__[module], name)
                elif isinstance(within := code.__globals__.get(module), type):
                    called = getattr(inspect.getattr_static(within, name, None), "__func__", None)
            case _:
                pass
        if isinstance(error, type) and issubclass(error, tidelog.TidelogError):
            found.add(error)
        if is_ours(called):
            found |= raised(called, within, seen)
    return found


def test_the_rule_finds_errors_raised_in_helpers_constructors_and_methods() -> None:
    found = {i.name: {e.__name__ for e in raised(i.code, i.owner, set())} for i in CALLED if i.code}
    assert "DataError" in found["tidelog.Store.xtrim"]  # known_policy
    assert "DataError" in found["tidelog.Queue.consume"]  # Consumer.__init__
    assert "DataError" in found["tidelog.Store.snapshot"]  # self._checkpoints
    assert "QueueFull" in found["tidelog.Queue.put"]  # Embedded.put, self._sleep


@pytest.mark.parametrize("face", [tidelog.Store, tidelog.Queue])
def test_a_class_names_the_errors_of_any_method(face: type) -> None:
    for error in OF_ANY_METHOD:
        assert error.__name__ in str(face.__doc__)


# --- commands of Redis

STREAMS = (REFERENCE / "streams.md").read_text()
NUMBERED = re.split(r"^#+ (\d+(?:\.\d+)*)\.? ", STREAMS, flags=re.M)
TEXTS = dict(zip(NUMBERED[1::2], NUMBERED[2::2], strict=True))
STRINGS = (REFERENCE / "compatibility.md").read_text().split("\n## Strings\n")[1].split("\n## ")[0]
COMMANDS = [name for name in vars(Methods) if not name.startswith("_")]


def test_a_command_names_the_section_that_describes_it() -> None:
    """Commands on strings are in no section."""
    for name in COMMANDS:
        text = getattr(Methods, name).__doc__
        command = {"delete": "DEL"}.get(name, name.partition("_")[0].upper())
        cited = re.findall(r"\bspec (\d+(?:\.\d+)*)", text)
        if re.search(rf"^\| {command} \||\b{command} \(", STRINGS, re.M):
            assert not cited, name
        else:
            section = TEXTS[cited[0]] if cited else ""
            assert re.search(rf"\b{command}\b", section), name
            since = re.match(r".*\((8\.\d+)\)\n", section)
            assert not since or f"Since Redis {since[1]}." in text, name
