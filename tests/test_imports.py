"""No module imports itself through others: each can be read, and tested, after the modules that it imports.

Imports under TYPE_CHECKING and inside functions count.
"""

import ast
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
