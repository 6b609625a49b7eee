"""Write api/async_methods.py and api/pipeline_methods.py from api/methods.py.

The faces differ only in how a call ends: an asyncio method awaits `_call`, a pipeline method queues and
returns the pipeline (or the reply, between WATCH and MULTI), so its type is Any and its docstring says which method of
`Store` describes the reply. Run after every change of methods.py:

    python tools/dev/make_faces.py

A test compares the generated modules with what this would write.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.tools.dev.writing import ROOT, write

FACES = ROOT / "api"
HEADER = '''"""{what}.

Generated from methods.py by tools/dev/make_faces.py: change that file.
"""

'''
ASYNC = "The methods of an asyncio store"
PIPELINE = "The methods of a pipeline, sync and asyncio"
CLASS = "class Methods(Generic[TextT]):"
_CALL = re.compile(r"return self\._(call|add)\(")
_RESULT = re.compile(r"\) -> [^\n]*:\n(?=        )")
_DOCUMENTED = re.compile(r'    def (\w+)\((?:(?!    def ).)*?"""(.*?)"""', re.DOTALL)
_DATA_ERROR = re.compile(r" {12}DataError: .*(?:\n {16}.*)*")


def split(source: str) -> tuple[str, str]:
    """(imports, class) of methods.py; the helpers between them stay there and are imported."""
    imports = source[source.index("from __future__") : source.index("T = TypeVar")]
    return imports, source[source.index(CLASS) :]


def helpers(source: str) -> list[str]:
    """Names that the methods use from methods.py itself."""
    between = source[source.index("T = TypeVar") : source.index(CLASS)]
    body = split(source)[1]
    defined = re.findall(r"^(?:def )?(\w+)(?:\(| = )", between, re.MULTILINE)
    return [name for name in defined if re.search(rf"\b{name}\b", body)]


def queued(method: re.Match[str]) -> str:
    """A method of `Store`, with a docstring that says what queuing its command returns and raises.

    Errors of the engine are left out: they are raised by `execute`.
    """
    name, text = method.groups()
    sections = []
    for section in text.rstrip().split("\n\n"):
        match section.strip().partition("\n")[0]:
            case "Returns:":
                returned = f"The pipeline. `execute` returns what `Store.{name}` returns."
                sections.append(f"        Returns:\n            {returned}")
            case "Raises:":
                if wrong := _DATA_ERROR.search(section):
                    sections.append(f"        Raises:\n{wrong[0]}")
            case _:
                sections.append(section)
    made = "\n\n".join(sections) + ("\n        " if len(sections) > 1 else "")
    return method[0].replace(f'"""{text}"""', f'"""{made}"""')


def face(source: str, what: str, name: str) -> str:
    """One generated module, before formatting."""
    imports, body = split(source)
    parameter = "(Generic[TextT])" if name == "AsyncMethods" else ""  # a pipeline returns itself
    body = body.replace(CLASS, f"class {name}{parameter}:", 1)
    if name == "AsyncMethods":
        body = body.replace("    def ", "    async def ")
        body = _CALL.sub(r"return await self._\1(", body)
    else:
        body = _DOCUMENTED.sub(queued, _RESULT.sub(") -> Any:\n", body))
    taken = ", ".join(helpers(source))
    return (
        HEADER.format(what=what) + f"{imports}from tidelog.api.methods import {taken}\n\n\n{body}"
    )


def faces() -> dict[Path, str]:
    """Every generated file and its text, before formatting."""
    source = (FACES / "methods.py").read_text()
    return {
        FACES / "async_methods.py": face(source, ASYNC, "AsyncMethods"),
        FACES / "pipeline_methods.py": face(source, PIPELINE, "PipelineMethods"),
    }


if __name__ == "__main__":
    write(faces())
