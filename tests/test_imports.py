"""No module imports itself through others: each can be read, and tested, after the modules that it imports.

Imports under TYPE_CHECKING and inside functions count.
"""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@cache
def modules() -> dict[str, Path]:
    package = ROOT / "src/tidelog"
    files = [file for link in package.iterdir() for file in (ROOT / link.name).rglob("*.py")]
    found = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    return found | {"tidelog": package / "__init__.py"}


@cache
def imports(module: str) -> set[str]:
    """The modules of ours that a module imports. `from a import b` names a.b if that is a module, and a in any case."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    names = {name.removeprefix("tidelog.") for name in found}
    return {name for name in names | {f"{name}.__init__" for name in names} if name in modules()}


def test_no_module_imports_itself_through_others() -> None:
    try:
        TopologicalSorter({name: imports(name) - {name} for name in modules()}).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


INDENTED = re.compile(r"^[ \t]+(?:from|import)\b|[:;][ \t]*(?:from|import)\b", re.M)


def unexplained(source: str) -> list[int]:
    """The lines at which a function imports modules of ours without a comment there or above."""
    if not INDENTED.search(source):  # to parse it is dear
        return []
    lines = source.split("\n")
    inside = {
        node.lineno: node.end_lineno or node.lineno
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    found = []
    explained = (
        0  # the line behind imports that have a reason: it holds for those that follow at once
    )
    for first, last in sorted(inside.items()):
        if lines[first - 2].lstrip().startswith("#") or "  # " in lines[last - 1]:
            explained = first
        if "tidelog" in lines[first - 1] and explained != first:
            found.append(first)
        elif explained == first:
            explained = last + 1
    return found


def test_an_import_in_a_function_says_why_it_is_there() -> None:
    """It hides what a module needs. Usual reasons: a library may be missing; most programs never use the module."""
    found = {
        name: lines for name, file in modules().items() if (lines := unexplained(file.read_text()))
    }
    assert not found


def test_the_rule_about_imports_in_functions() -> None:
    body = "def f():\n{}    from tidelog.a import b{}\n{}    b()\n"
    assert unexplained(body.format("", "", "")) == [2]
    assert not unexplained(body.format("    # here: rarely used\n", "", ""))
    assert not unexplained(body.format("", "  # here: rarely used", ""))
    again = "    from tidelog.a import c\n"
    assert not unexplained(body.format("", "  # here: rarely used", again))
    assert unexplained(body.format("    # here: rarely used\n", "", "\n    b()\n" + again)) == [6]
