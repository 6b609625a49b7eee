"""Write client/calls.py: the methods of shared stores for asyncio that only run in threads.

The class SharedStore gives a class with its public methods as coroutines, with the same parameters, types and
docstrings. Properties stay what they are. A method is left out if the class of client/aio.py that inherits the
generated one has it, or if LEFT_OUT names it. Run after every change of a signature or a docstring there:

    python tools/dev/make_threaded.py

A test compares the generated module with what this would write.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.tools.dev.writing import ROOT, write

CLIENT: Final = ROOT / "client"
# For each file, its classes: the one for threads, the module of that, and the attribute that has its object.
FACES: Final = {"calls.py": (("SharedStore", "store", "_store"),)}
LEFT_OUT: Final = ("fsync",)  # its assignment cannot be awaited
_NAMED: Final = re.compile(r"\b(Shared(?:Store|Queue|Job))\b")


class Made(NamedTuple):
    """A generated class, and the names that it uses."""

    text: str
    names: set[str]


def class_of(source: str, name: str) -> ast.ClassDef:
    """A class of a module."""
    body = ast.parse(source).body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)


def written(source: str, name: str) -> set[str]:
    """The names that a class gives to its methods, second names included."""
    found: set[str] = set()
    for node in class_of(source, name).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def passed(args: ast.arguments) -> str:
    """The arguments of a method as its caller gives them on."""
    found = [arg.arg for arg in (*args.posonlyargs, *args.args)][1:]  # without self
    found += [f"*{args.vararg.arg}"] if args.vararg else []
    found += [f"{arg.arg}={arg.arg}" for arg in args.kwonlyargs]
    found += [f"**{args.kwarg.arg}"] if args.kwarg else []
    return ", ".join(found)


def method(node: ast.FunctionDef, source: str, attribute: str) -> str:
    """One method or property."""
    document = _NAMED.sub(r"Async\1", ast.get_source_segment(source, node.body[0]) or "")
    assert node.returns is not None
    returns, target = ast.unparse(node.returns), f"self.{attribute}.{node.name}"
    given = passed(node.args)
    signature = f"def {node.name}({ast.unparse(node.args)}) -> {returns}:\n        {document}\n"
    if node.decorator_list:  # a property
        return f"    @property\n    {signature}        return {target}\n"
    call = f"threaded(partial({target}, {given}))" if given else f"threaded({target})"
    result = "" if returns == "None" else "return "
    return f"    async {signature}        {result}await {call}\n"


def made(source: str, name: str, attribute: str, left_out: set[str]) -> Made:
    """The class made from one of `source`."""
    face = class_of(source, name)
    # The last argument of the last base is the type variable of the class.
    given = [base.slice for base in face.bases if isinstance(base, ast.Subscript)][-1:]
    types = [ast.unparse(each.elts[-1] if isinstance(each, ast.Tuple) else each) for each in given]
    methods = [
        node
        for node in face.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.name not in left_out
    ]
    parts = [part for node in methods for part in (node.args, node.returns) if part is not None]
    names = {each.id for part in parts for each in ast.walk(part) if isinstance(each, ast.Name)}
    of_type = f"[{types[0]}]" if types else ""
    text = (
        f"class {name.removeprefix('Shared')}Calls{f'(Generic{of_type})' if types else ''}:\n"
        f'    """The calls of a `{name}` that wait in a thread."""\n\n'
        f"    {attribute}: {name}{of_type}\n\n"
    )
    return Made(
        text + "\n".join(method(node, source, attribute) for node in methods),
        {*names, *types, name},
    )


def places(source: str, module: str) -> Iterator[tuple[str, str, bool]]:
    """(name, module to import it from, whether at run time) of the names of a module."""
    for node in ast.parse(source).body:
        only_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(each, ast.ImportFrom):
                for alias in each.names:
                    yield alias.name, str(each.module), not only_types
            elif isinstance(each, ast.ClassDef):
                yield each.name, module, True
            elif isinstance(each, (ast.Assign, ast.AnnAssign)):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                yield from ((t.id, module, True) for t in targets if isinstance(t, ast.Name))


def module(rows: tuple[tuple[str, str, str], ...]) -> str:
    """One generated module, before formatting."""
    by_hand = (CLIENT / "aio.py").read_text()
    classes: list[str] = []
    loaded = {
        "from functools import partial",
        "from typing import TYPE_CHECKING, Generic",
        "from tidelog.client.threaded import threaded",
    }
    typed: set[str] = set()
    for name, stem, attribute in rows:
        source = (CLIENT / f"{stem}.py").read_text()
        left_out = {*LEFT_OUT, *written(by_hand, f"Async{name}")}
        text, names = made(source, name, attribute, left_out)
        classes.append(text)
        for found, place, at_run_time in places(source, f"tidelog.client.{stem}"):
            if found in names:
                (loaded if at_run_time else typed).add(f"from {place} import {found}")
    sources = ", ".join(f"{stem}.py" for _, stem, _ in rows)
    lines = [
        '"""Calls: the methods of shared stores for asyncio that only run the threads\' method in a thread.\n',
        f'Generated from {sources} by tools/dev/make_threaded.py: change those files.\n"""\n',
        "from __future__ import annotations\n",
        *sorted(loaded),
        *(["\nif TYPE_CHECKING:"] if typed - loaded else []),
        *(f"    {line}" for line in sorted(typed - loaded)),
    ]
    return "\n".join(lines) + "\n\n\n" + "\n\n".join(classes)


def faces() -> dict[Path, str]:
    """Every generated file and its text, before formatting."""
    return {CLIENT / name: module(rows) for name, rows in FACES.items()}


if __name__ == "__main__":
    write(faces())
