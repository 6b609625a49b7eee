"""Write the faces for threads from those for asyncio: each file of FILES from its source.

`async` and `await` are dropped, and names change by one rule and a table, in comments and docstrings too. Edits are
made at the positions of tokens, so comments and line breaks stay as they are. The source marks the lines
that only one kind has:

    # threads: return len(self._jobs)                a line of the face for threads
    await asyncio.sleep(0)  # asyncio: for others    a line that it does not have

Run after every change of a source:

    python tools/dev/make_sync.py

A test compares the generated modules with what this would write.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path
from typing import Final

from tidelog.tools.dev.writing import ROOT, write

# The source and what is made from it.
FILES: Final = {
    "api/aclosing.py": "api/closing.py",
    "api/aclearing.py": "api/clearing.py",
    "api/acompound.py": "api/compound.py",
    "api/queue/achosen.py": "api/queue/chosen.py",
    "api/queue/ahandle.py": "api/queue/handle.py",
    "api/queue/abackend.py": "api/queue/backend.py",
    "api/queue/aembedded.py": "api/queue/embedded.py",
    "api/queue/afaces.py": "api/queue/faces.py",
    "api/queue/aends.py": "api/queue/ends.py",
    "api/queue/ahooks.py": "api/queue/hooks.py",
    "api/queue/ajob.py": "api/queue/job.py",
    "api/queue/adead.py": "api/queue/dead.py",
    "api/queue/adeaths.py": "api/queue/deaths.py",
    "api/queue/averbs.py": "api/queue/verbs.py",
    "api/queue/aschedules.py": "api/queue/schedules.py",
    "api/queue/aio.py": "api/queue/face.py",
    "api/queue/running/ahanging.py": "api/queue/running/hanging.py",
    "api/queue/running/atelling.py": "api/queue/running/telling.py",
    "functions/aseveral.py": "functions/several.py",
}
NAMES: Final = {
    **{f"__a{name}__": f"__{name}__" for name in ("enter", "exit", "iter", "next")},
    **{
        f"a{name}": name
        for name in "backend close closing clearing compound next queue chosen ends handle job dead deaths embedded "
        "faces hanging hooks schedules several telling verbs".split()
    },
    "async_methods": "methods",
    "StopAsyncIteration": "StopIteration",
    "RunsTasks": "RunsThreads",
    "TaskCaller": "ThreadCaller",
    "by_tasks": "by_threads",
    "this_task": "get_ident",
}
# In comments and docstrings.
PHRASES: Final = (
    (r"\basync (with|for|def)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bfor asyncio\b", "for threads"),
    (r"\b([Aa]nother|a|many) task(s?)\b", r"\1 thread\2"),
)
_THREADS: Final = re.compile(r"^( *)# threads: ?", re.MULTILINE)
_ASYNCIO: Final = re.compile(r"^.*  # asyncio(?::.*)?\n", re.MULTILINE)
_BETWEEN: Final = (
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.COMMENT,
)
_KIND: Final = re.compile(r"\bAsync(?=[A-Z])")
_WORD: Final = re.compile(r"\w+")
Edit = tuple[tuple[int, int], tuple[int, int], str]


def renamed(text: str) -> str:
    """A name, or text with names in it."""
    return _WORD.sub(lambda word: NAMES.get(word[0], word[0]), _KIND.sub("", text))


def retold(text: str) -> str:
    """A comment or a docstring."""
    for pattern, other in PHRASES:
        text = re.sub(pattern, other, text)
    return renamed(text)


def edits(source: str) -> list[Edit]:
    """(begin, end, text) of each change, in order."""
    found: list[Edit] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    statement = True  # whether one begins here
    for token, after in zip(tokens, [*tokens[1:], tokens[-1]]):
        if token.type == tokenize.NAME:
            if token.string in ("async", "await"):
                found.append((token.start, after.start, ""))
            elif (name := renamed(token.string)) != token.string:
                found.append((token.start, token.end, name))
        elif token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and statement and after.type == tokenize.NEWLINE
        ):
            found.append((token.start, token.end, retold(token.string)))
        statement = token.type in _BETWEEN
    return found


def made(source: str, name: str) -> str:
    """The module for threads, before formatting. `name`: that of the source."""
    source = _THREADS.sub(r"\1", _ASYNCIO.sub("", source))
    lines = source.splitlines(keepends=True)
    for (row, column), (end_row, end_column), text in reversed(edits(source)):
        if row == end_row:
            lines[row - 1] = lines[row - 1][:column] + text + lines[row - 1][end_column:]
        else:
            first, last = lines[row - 1][:column], lines[end_row - 1][end_column:]
            lines[row - 1 : end_row] = [first + text + last]
    text = "".join(lines)
    # Behind the first docstring, that of the module.
    end = text.index('"""', 3)
    return f"{text[:end].rstrip()}\n\nGenerated from {name} by tools/dev/make_sync.py: change that file.\n{text[end:]}"


def faces() -> dict[Path, str]:
    """Every generated file and its text, before formatting."""
    return {
        ROOT / target: made((ROOT / source).read_text(), Path(source).name)
        for source, target in FILES.items()
    }


if __name__ == "__main__":
    write(faces())
