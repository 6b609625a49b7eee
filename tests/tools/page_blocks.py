"""The Python blocks of a page, run as they stand: those of a page in one process, which has the packages that the page
tells its reader to install, and no others.

Fences marked `python` run. Those marked `py` do not: they are code of other libraries.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.tools.page_packages import lacking

# Jobs that fail in an example are logged, and Python prints to standard error what no handler takes.
QUIET = "import logging as _; _.getLogger('tidelog').addHandler(_.NullHandler());"


# Each example has names of its own and says where its output ends. One that other processes import is a file.
RUN = (
    QUIET
    + """
import json, os, runpy, sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in lacking:
            raise ModuleNotFoundError(f"the page does not say how to install {name!r}", name=name)
lacking = frozenset(json.loads(sys.argv[2]))
sys.meta_path.insert(0, Lacking())
for line, directory, source in json.loads(sys.argv[1]):
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)
    if "if __name__ ==" in source:
        with open("example.py", "w") as file:
            file.write(source)
        runpy.run_path("example.py", run_name="__main__")
    else:
        exec(compile(source, f"line {line}", "exec"), {"__name__": "__main__"})
    print("END OF AN EXAMPLE")
"""
)


def examples(text: str) -> list[tuple[int, str]]:
    """(line, source) of every Python block of a page."""
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return [(text.count("\n", 0, block.start()) + 1, block[1]) for block in blocks]


def outputs(text: str, todo: list[tuple[int, Path, str]]) -> dict[int, list[str]]:
    """The output of each example of a page in its directory, by its line."""
    words = json.dumps([(line, str(directory), source) for line, directory, source in todo])
    missing = json.dumps(lacking(text))
    lines = done_in(todo[0][1].parent, "-W", "error", "-c", RUN, words, missing)
    told: dict[int, list[str]] = {}
    for line, _, _ in todo:
        end = lines.index("END OF AN EXAMPLE")
        told[line], lines = lines[:end], lines[end + 1 :]
    return told


def done_in(directory: Path, *args: str) -> list[str]:
    """The lines that Python prints when it is called there."""
    done = subprocess.run(
        [sys.executable, *args],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout.splitlines()


def printed(source: str) -> Iterator[str]:
    """The output that the comments behind the prints of an example promise; `; ` stands between lines."""
    for comment in re.findall(r"\bprint\(.*\) +# (.*)$", source, re.M):
        yield from comment.split("; ")


def shows(block: str, told: str) -> bool:
    """Whether a block of a page shows this output. A line of three dots stands for lines that it leaves out."""
    parts = map(re.escape, re.split(r"^\.\.\.\n", block, flags=re.M))
    return re.fullmatch(r"(?:.*\n)+".join(parts), told) is not None
