"""Forked: a process that does dangerous work for this one, and may die of it.

It is forked, so it has everything that this process has imported, and begins in some milliseconds. It answers one
question after another. If it dies or hangs, the asker gets the way in which it did, and the next question goes to a new
process. It ends when the asker is gone.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, Final, Generic, NamedTuple, TypeVar

ANSWER_S: Final = 60.0

Q = TypeVar("Q")
A = TypeVar("A")


class Died(NamedTuple):
    """The process did not answer."""

    words: str


class Forked(Generic[Q, A]):
    """`ask(question)` is `answer(question)`, called in a forked process.

    seconds   a question may take so long; then the process hangs and is killed
    """

    def __init__(self, answer: Callable[[Q], A], seconds: float = ANSWER_S) -> None:
        self._answer = answer
        self._seconds = seconds
        self._process: ForkProcess | None = None
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

    def _begin(self) -> tuple[ForkProcess, Connection]:
        if self._process is None or self._pipe is None:
            context = multiprocessing.get_context("fork")
            ours, theirs = context.Pipe()
            self._process = context.Process(
                target=self._serve, args=(ours, theirs), name="tidelog-crash-forked"
            )
            self._process.start()
            theirs.close()
            self._pipe = ours
        return self._process, self._pipe

    def _serve(self, ours: Connection, pipe: Connection) -> None:
        """In the forked process: answer until the asker is gone."""
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
                    pipe.send(self._answer(question))
                except Exception as error:
                    pipe.send(error)
        except (EOFError, ConnectionError):
            pass

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
