"""No module imports itself through others: each can be read, and tested, after the modules that it imports.

Imports under TYPE_CHECKING and inside functions count.
"""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Circles that still exist are among these modules. Remove a name when its circle is gone; do not add any.
EXEMPT = ("server.",)


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


def circle(exempt: tuple[str, ...]) -> list[str]:
    known = {name for name in modules() if not name.startswith(exempt)}
    try:
        TopologicalSorter({name: imports(name) & known for name in known}).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_module_imports_itself_through_others() -> None:
    found = circle(EXEMPT)
    assert not found, " is imported by ".join(found)


def test_each_exemption_is_still_needed() -> None:
    for name in EXEMPT:
        rest = tuple(other for other in EXEMPT if other != name)
        assert circle(rest), f"{name} has no circle any more: remove it from EXEMPT"
