"""Forked: a process that does dangerous work for this one, and may die of it.

It is forked, so it has everything that this process has imported, and begins in some milliseconds. Only if a library is
to be preloaded, it is a new interpreter. It answers one question after another. If it dies or hangs, the asker gets the
way in which it did, and the next question goes to a new process. It ends when the asker is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tidelog.crash.preload.library import PRELOAD

ANSWER_S: Final = 60.0

Q = TypeVar("Q")
A = TypeVar("A")


class Died(NamedTuple):
    """The process did not answer."""

    words: str


class Forked(Generic[Q, A]):
    """`ask(question)` is `answer(question)`, called in a forked process.

    seconds   a question may take so long; then the process hangs and is killed
    library   to be preloaded into the process; `answer` must then be one that can be pickled
    """

    def __init__(
        self, answer: Callable[[Q], A], seconds: float = ANSWER_S, library: Path | None = None
    ) -> None:
        self._answer = answer
        self._seconds = seconds
        self._library = library
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, question: Q) -> A | Died:
        """The answer. Raises what `answer` raises."""
        process, pipe = self._begin()
        try:
            pipe.send(question)
            if not pipe.poll(self._seconds):
                self._end(kill=True)
                return Died(f"the process hung: there was no answer after {self._seconds:.0f} s")
            found = pipe.recv()
        except (EOFError, ConnectionError):
            process.join()
            code = process.exitcode or 0
            self._end(kill=True)
            return Died(
                f"the process was ended by {signal.Signals(-code).name}"
                if code < 0
                else f"the process ended with exit code {code}"
            )
        except BaseException:
            self._end(kill=True)
            raise
        if isinstance(found, Exception):
            raise found
        answer: A = found
        return answer

    def close(self) -> None:
        """End the process."""
        self._end(kill=False)

    def _begin(self) -> tuple[BaseProcess, Connection]:
        if self._process is None or self._pipe is None:
            context = multiprocessing.get_context("fork" if self._library is None else "spawn")
            ours, theirs = context.Pipe()
            # mypy does not know that each context has a Process.
            process: BaseProcess = getattr(context, "Process")(  # noqa: B009
                target=_serve, args=(self._answer, ours, theirs), name="tidelog-crash-forked"
            )
            with _preloading(self._library):
                process.start()
            theirs.close()
            self._process, self._pipe = process, ours
        return self._process, self._pipe

    def _end(self, *, kill: bool) -> None:
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            if not kill:
                try:
                    pipe.send(None)
                except OSError:
                    pass  # it has ended already
            pipe.close()
        if process is not None:
            if kill:
                process.kill()
            process.join()
            process.close()


@contextmanager
def _preloading(library: Path | None) -> Iterator[None]:
    """Meanwhile, a new interpreter has a library preloaded."""
    if library is None:
        yield
        return
    resource_tracker.ensure_running()  # a process that lives longer, and needs no library
    before = os.environ.get(PRELOAD)
    os.environ[PRELOAD] = str(library)
    try:
        yield
    finally:
        if before is None:
            del os.environ[PRELOAD]
        else:
            os.environ[PRELOAD] = before


def _serve(answer: Callable[[Any], Any], ours: Connection, pipe: Connection) -> None:
    """In the new process: answer until the asker is gone."""
    # With this end open here, this process would never read the end of the pipe.
    ours.close()
    # Ctrl-C ends the asker, and that ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            question: Any = pipe.recv()
            if question is None:
                return
            try:
                pipe.send(answer(question))
            except Exception as error:
                pipe.send(error)
    except (EOFError, ConnectionError):
        pass
