"""Judges: open what a crash left with the store itself, and say whether it kept its promises.

An image that was seen before is not opened again, but its outcome is judged again, because more may have been promised
since.
"""

from __future__ import annotations

import faulthandler
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from tidelog.crash.errors import BenchError
from tidelog.crash.forked import Died, Forked
from tidelog.crash.model import Contents
from tidelog.crash.oracle import Fault, Kind, Oracle, Served
from tidelog.crash.preload.limited import Hangs, run
from tidelog.crash.states import fingerprint
from tidelog.crash.subjects.subject import PROBE, CannotRun, Subject
from tidelog.crash.trace import Promised, Tree, Unit, lay
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk

IMAGE: Final = "image"  # in the scratch directory
TOLD: Final = "promised"
SAID: Final = "said"
DIR: Final = "{dir}"
CHECK_S: Final = 60.0


class Judge(Protocol):
    """Judges images."""

    def judge(self, image: Tree, promised: Promised) -> Fault | None:
        """The fault of a store whose files are these after a crash."""
        ...

    def close(self) -> None: ...


class ImageDir:
    """A directory for one image after another."""

    def __init__(self, scratch: Path) -> None:
        self._disk = RealDisk()
        self.root = scratch / IMAGE

    def lay(self, image: Tree) -> Path:
        self.clear()
        self._disk = RealDisk()  # a disk remembers the directories that it guards
        self._disk.mkdir(self.root)
        lay(self._disk, self.root, image)
        return self.root

    def clear(self) -> None:
        if self._disk.exists(self.root):
            recipe.remove_tree(self._disk, self.root)


class OfSubject:
    """Compares the contents with those after each number of units."""

    def __init__(self, subject: Subject, units: list[Unit], scratch: Path) -> None:
        self._subject = subject
        self._oracle = Oracle(units)
        self._place = ImageDir(scratch)
        self._outcomes: dict[bytes, Served | Fault] = {}
        self._forked: Forked[Path, Served | Fault] = Forked(self._examine_quietly, CHECK_S)

    def judge(self, image: Tree, promised: Promised) -> Fault | None:
        name = fingerprint(image)
        found = self._outcomes.get(name)
        if found is None:
            found = self._outcomes[name] = self._open(self._place.lay(image))
        if isinstance(found, Fault):
            return found
        return self._oracle.judge(found, promised, power=True)

    def _open(self, root: Path) -> Served | Fault:
        if not self._subject.forked:
            return self._examine(root)
        found = self._forked.ask(root)
        return Fault(Kind.DIED, found.words) if isinstance(found, Died) else found

    def _examine_quietly(self, root: Path) -> Served | Fault:
        """In the forked process: a library that ends it says so on the standard error, once for each image."""
        faulthandler.disable()
        nowhere = RealDisk().open(Path(os.devnull), write=True)
        try:
            os.dup2(nowhere.fileno(), 2)
        finally:
            nowhere.close()
        return self._examine(root)

    def _examine(self, root: Path) -> Served | Fault:
        """Read everything, write, and read again."""
        try:
            with self._subject.open(root) as opened:
                first: Contents = opened.contents()
                opened.do(PROBE)
                second = opened.contents()
        except CannotRun:
            raise
        except Exception as error:  # whatever it is, the store does not serve its data
            return Served(None, f"{type(error).__name__}: {error}")
        expected = first | {key: value for _, key, value in PROBE}
        if second != expected:
            return Fault(Kind.WRONG, "a write after the crash was lost, or took others with it")
        return Served(first)

    def close(self) -> None:
        self._forked.close()
        self._place.clear()


class OfProgram:
    """Runs the check of a user. {dir} in it is the directory, {told} a file with the lines that were promised."""

    def __init__(self, check: str, told: Sequence[bytes], scratch: Path) -> None:
        self._check = shlex.split(check)
        self._told = told
        self._file = scratch / TOLD
        self._said = scratch / SAID
        self._place = ImageDir(scratch)
        self._outcomes: dict[tuple[bytes, int], Fault | None] = {}

    def judge(self, image: Tree, promised: Promised) -> Fault | None:
        key = fingerprint(image), promised.fsynced
        if key not in self._outcomes:
            fault = self._run(self._place.lay(image), promised.fsynced)
            if fault is not None and fault.kind is Kind.WRONG:
                self._again(image, promised.fsynced, fault)
            self._outcomes[key] = fault
        return self._outcomes[key]

    def _again(self, image: Tree, count: int, fault: Fault) -> None:
        if self._run(self._place.lay(image), count) is None:
            raise BenchError(
                f"the check differs from run to run, so it proves nothing: {fault.words}; "
                "then it ran once more on the same files, and passed"
            )

    def _run(self, root: Path, count: int) -> Fault | None:
        lines = b"".join(line + b"\n" for line in self._told[:count])
        recipe.publish(RealDisk(), self._file, lines)
        words = filled(self._check, root, self._file)
        try:
            done = run(words, CHECK_S, self._said)
        except Hangs as error:
            where = f"; it stood at {error}" if str(error) else ""
            return Fault(Kind.DIED, f"the check did not end within {CHECK_S:g} s{where}")
        except OSError as error:
            raise BenchError(f"the check cannot be run: {error}") from error
        if done.code == 0:
            return None
        said = done.said.strip().splitlines() or ["nothing"]
        return Fault(Kind.WRONG, f"the check ended with {done.code} and said: {said[-1]}")

    def close(self) -> None:
        self._place.clear()
        disk = RealDisk()
        if disk.exists(self._file):
            disk.unlink(self._file)


def filled(words: Sequence[str], root: Path, told: Path | None = None) -> list[str]:
    """The words of a command with its places filled in."""
    fill: Callable[[str], str] = lambda word: word.replace(DIR, str(root))  # noqa: E731
    if told is not None:
        return [fill(word).replace("{told}", str(told)) for word in words]
    return [fill(word) for word in words]
