"""Count the lines of code of this clone, hand-written and generated apart, for each root folder and for the queue.

A line counts if a token begins on it that is no comment and no part of a docstring. So blank lines do not count, and a
text of many lines counts once. Only Python files that git tracks count. The docstring of a generated file says
"Generated from ... by tools/dev/...".

    python tools/dev/lines.py                    as the files stand
    python tools/dev/lines.py --against COMMIT   beside those of a commit, with the difference
    python tools/dev/lines.py --json             as JSON

docs/decisions/size.md keeps the figures.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LONG: Final = 500  # lines of a file as it stands
BENCH: Final = "bench"  # it stands beside what the wheel installs
# The product without these two folders is the figure to lower: they build and check it.
DEV: Final = "tools/dev"
TESTS: Final = "tests"
QUEUE: Final = {
    "jobs and faces": ("jobs/", "api/queue/"),
    "client": ("client/",),
    "functions": ("functions/",),
    "QUEUE commands": ("server/commands/queue/", "server/jobs.py", "server/once.py"),
    "command line": ("tools/queue/", "tools/worker/"),
}
_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_GENERATED: Final = re.compile(r"^Generated from .* by tools/dev/", re.MULTILINE)

Figures = dict[str, dict[str, int]]


def code_lines(source: str) -> int:
    """The lines of code of a module. Raises SyntaxError."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {token.start[0] for token in tokens if token.type not in _NO_CODE}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.discard(node.body[0].lineno)
    return len(lines)


def generated(source: str) -> bool:
    """Whether a program of tools/dev has written the module."""
    return _GENERATED.search(ast.get_docstring(ast.parse(source)) or "") is not None


def room(path: str) -> str:
    """The folder that a file counts for."""
    return DEV if path.startswith(f"{DEV}/") else path.partition("/")[0]


def measure(files: Iterator[tuple[str, str]]) -> Figures:
    """The figures of files, which are pairs of a path and a source."""
    by_hand, by_program, queue = (
        Counter[str](),
        Counter[str](),
        Counter[str](dict.fromkeys(QUEUE, 0)),
    )
    long = 0
    for path, source in files:
        lines, made = code_lines(source), generated(source)
        (by_program if made else by_hand)[room(path)] += lines
        long += room(path) != TESTS and source.count("\n") > LONG
        for part, places in QUEUE.items():
            queue[part] += lines * (not made and path.startswith(places))
    product = sum(lines for name, lines in by_hand.items() if name not in (DEV, TESTS))
    return {
        "hand-written": dict(sorted(by_hand.items())),
        "generated": dict(sorted(by_program.items())),
        "the queue": {**queue, "all of it": queue.total()},
        "together": {
            f"hand-written, without {TESTS} and {DEV}": product,
            "of these in the wheel": product - by_hand[BENCH],
            f"files of more than {LONG} lines, without {TESTS}": long,
        },
    }


def present() -> Iterator[tuple[str, str]]:
    """The tracked Python files, as they stand."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "*.py"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in filter(None, names.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            yield name, path.read_text()


def committed(commit: str) -> Iterator[tuple[str, str]]:
    """The Python files of a commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar:
            if member.isfile() and member.name.endswith(".py"):
                opened = tar.extractfile(member)
                assert opened is not None  # it is a file
                yield member.name, opened.read().decode()


def table(now: Figures, before: Figures | None) -> Iterator[str]:
    """The lines of the printed table."""
    for title, figures in now.items():
        yield f"{title}:"
        earlier = before[title] if before is not None else {}
        for name in sorted(earlier.keys() | figures, key=[*figures, *earlier].index):
            count = figures.get(name, 0)
            row = f"  {name:<48}"
            if before is not None:
                was = earlier.get(name, 0)
                row += f"{was:>9,}{count:>9,}{count - was:>+9,}"
            else:
                row += f"{count:>9,}"
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--against", metavar="COMMIT", help="show the figures of this commit, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    now = measure(present())
    before = measure(committed(options.against)) if options.against else None
    if options.json:
        print(
            json.dumps({"now": now} if before is None else {"before": before, "now": now}, indent=2)
        )
    else:
        print(*table(now, before), sep="\n")


if __name__ == "__main__":
    main()
