"""Which lines of some modules ran, counted with sys.settrace: a line of a frame is traced until it was seen once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple


class Covered(NamedTuple):
    """The lines of a module that can run, and those that did not."""

    path: Path
    lines: int
    missed: list[int]

    def text(self, root: Path) -> str:
        share = 100 * (self.lines - len(self.missed)) / max(self.lines, 1)
        return f"{share:5.1f}%  {self.path.relative_to(root)}  {ranges(self.missed)}".rstrip()


class Tracing:
    """The lines that ran, by the name of the file as the interpreter knows it."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._wanted = {path.resolve() for path in files}
        self._names: dict[str, set[int] | None] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._names:
            self._names[name] = set() if Path(name).resolve() in self._wanted else None
        seen = self._names[name]
        if seen is None:
            return None
        add = seen.add

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            add(frame.f_lineno)
            return line

        return line

    def covered(self) -> list[Covered]:
        """The modules, in order."""
        ran: dict[Path, set[int]] = {path: set() for path in self._wanted}
        for name, lines in self._names.items():
            if lines is not None:
                ran[Path(name).resolve()] |= lines
        found = []
        for path in sorted(ran):
            every = body_lines(path)
            found.append(Covered(path, len(every), sorted(every - ran[path])))
        return found


def body_lines(path: Path) -> set[int]:
    """The lines of all functions of a module. Lines of the module itself run at import, before anything is traced."""
    todo = [
        each
        for each in compile(path.read_text(), str(path), "exec").co_consts
        if isinstance(each, CodeType)
    ]
    found: set[int] = set()
    while todo:
        code = todo.pop()
        todo += [each for each in code.co_consts if isinstance(each, CodeType)]
        if (
            code.co_name != "<module>" and code.co_flags & 0x02
        ):  # a function, and no body of a class
            found |= {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
    return found


def ranges(lines: list[int]) -> str:
    """The numbers in short: 3-5 9."""
    out: list[list[int]] = []
    for line in lines:
        if out and out[-1][1] == line - 1:
            out[-1][1] = line
        else:
            out.append([line, line])
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in out)
