"""Processes: start processes of workers, start those again that end, and end all of them in order.

`tidelog worker --processes` and `SharedQueue.run(processes=)` do this. The parent takes no jobs. Its children are in
sessions of their own, so that Ctrl-C in a terminal reaches the parent only. They read from a pipe that the parent holds
open: if the parent is killed, they see its end, and end in order too.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Sequence
from queue import Empty
from typing import Final

from tidelog.aof.errors import NoThread
from tidelog.aof.threads import start
from tidelog.api.queue.running.signals import News, Signals
from tidelog.disk.process import environment

OK: Final = 0  # exit code of success
AGAIN: Final = 11  # of a child that has done enough, and is to be started again at once
FIRST_PAUSE_S: Final = 1.0  # before a child that ended is started again; doubled each time
LAST_PAUSE_S: Final = 30.0
HEALTHY_S: Final = 60.0  # a child that lived so long starts with the first pause again
BEYOND_DRAIN_S: Final = (
    10.0  # the children have this time more than their drain, and are then killed
)
LOOK_S: Final = 0.5  # between two looks at the source files, or at the store

log = logging.getLogger("tidelog.worker")


class Processes:
    """The children of one parent.

    words     their command line, after that of Python
    count     how many
    drain     as given to them, in seconds; None = for ever
    once      a child that ends with success is not started again
    final     exit codes of a child that cannot work; another one could not either
    changed   tells which source file has changed, or None; None = do not ask
    over      tells whether to end, besides signals; None = do not ask
    given     written to the pipe that each child reads
    fds       descriptors that the children inherit
    """

    def __init__(
        self,
        words: Sequence[str],
        count: int,
        drain: float | None,
        once: bool,
        *,
        final: Container[int] = (),
        changed: Callable[[], str | None] | None = None,
        over: Callable[[], bool] | None = None,
        given: bytes = b"",
        fds: Sequence[int] = (),
    ) -> None:
        self._words, self._count, self._drain = words, count, drain
        self._once, self._final = once, final
        self._changed, self._over = changed, over
        self._given, self._fds = given, fds
        self._news: News[str | _Child] = News()
        self._children: set[_Child] = set()
        self._due: list[float] = []  # monotonic seconds at which children are started
        self._pause = FIRST_PAUSE_S
        self._begun = False  # a child was started
        self._waits = False  # for a change of the source files

    def run(self) -> int:
        """Until a signal comes, every child has ended with success (`once`), or one of them cannot work. Returns the
        exit code. Raises OSError and NoThread if the system does not even let one child start.
        """
        with Signals(self._news.put):
            try:
                self._due = [time.monotonic()] * self._count
                code = self._watch()
                drain = self._drain
                self._stop(None if drain is None else time.monotonic() + drain + BEYOND_DRAIN_S)
                return code
            finally:
                for child in self._children:
                    child.process.kill()
                    child.process.wait()

    def _watch(self) -> int:
        while self._due or self._children or self._waits:
            now = time.monotonic()
            for at in [at for at in self._due if at <= now]:
                self._due.remove(at)
                self._start()
            looks = [] if self._changed is None and self._over is None else [now + LOOK_S]
            try:
                told = self._news.get(min((*self._due, *looks), default=None))
            except Empty:
                if self._over is not None and self._over():
                    return OK
                self._look()
                continue
            if isinstance(told, str):
                return OK
            code = self._ended(told)
            if code is not None:
                return code
        return OK

    def _start(self) -> None:
        try:
            child = _Child(self._words, self._news, self._fds)
        except (OSError, NoThread) as error:
            if not self._begun:
                raise
            log.warning(
                "another process cannot be started: %s; tries again in %g s", error, self._pause
            )
            self._again(self._pause)
            return
        self._begun = True
        self._children.add(child)
        child.give(self._given)

    def _again(self, pause: float) -> None:
        """Start a child after a pause; the next pause is twice as long."""
        self._due.append(time.monotonic() + pause)
        self._pause = min(2 * self._pause, LAST_PAUSE_S)

    def _ended(self, child: _Child) -> int | None:
        """A child has ended. Returns an exit code if that ends all."""
        self._children.discard(child)
        code, lived = child.process.returncode, time.monotonic() - child.began
        if code == AGAIN or code == OK and (self._once or child.replaced):
            if code == AGAIN or child.replaced:
                self._due.append(time.monotonic())
            return None
        if code in self._final:
            if self._changed is None:
                return code
            log.warning("process %d ended with exit code %d; waits for a change", child.pid, code)
            self._waits = True
            return None
        if lived >= HEALTHY_S:
            self._pause = FIRST_PAUSE_S
        pause = self._pause
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        log.warning("process %d ended with %s; starts another one in %g s", child.pid, how, pause)
        self._again(pause)
        return None

    def _look(self) -> None:
        """If a source file has changed, end the children in order; others take their places."""
        name = None if self._changed is None else self._changed()
        if name is None:
            return
        log.info("%s has changed; the processes start again", name)
        if self._waits:
            self._waits = False
            self._due += [time.monotonic()] * (self._count - len(self._children) - len(self._due))
        for child in self._children:
            child.replaced = True
            child.terminate()

    def _stop(self, until: float | None) -> None:
        """End the children in order, at last by force."""
        for child in self._children:
            child.terminate()
        while self._children:
            try:
                told = self._news.get(until)
            except Empty:
                log.warning("%d processes did not end in time and are killed", len(self._children))
                return
            if isinstance(told, _Child):
                self._children.discard(told)


class _Child:
    """A process, and the thread that waits for its end.

    replaced   it ends so that another one with the changed source takes its place
    """

    def __init__(self, words: Sequence[str], news: News[str | _Child], fds: Sequence[int]) -> None:
        """Raises OSError and NoThread."""
        self.began = time.monotonic()
        self.replaced = False
        self.process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            env=environment(),
            start_new_session=True,
            pass_fds=fds,
        )
        self.pid = self.process.pid
        self._news = news
        waiting = threading.Thread(target=self._wait, name="tidelog-child", daemon=True)
        try:
            start(waiting, "wait for the end of a process")
        except NoThread:
            with self.process:
                self.process.kill()
            raise

    def give(self, data: bytes) -> None:
        """Write to the pipe that it reads."""
        pipe = self.process.stdin
        assert pipe is not None
        try:
            pipe.write(data)
            pipe.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended already, and its end is about to be noticed or was: then the pipe is closed

    def terminate(self) -> None:
        """Ask it to end in order."""
        self.process.terminate()

    def _wait(self) -> None:
        self.process.wait()
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it had read everything
        self._news.put(self)


def end_with_parent() -> None:
    """In a child: end in order when the parent is gone."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="tidelog-parent", daemon=True).start()
