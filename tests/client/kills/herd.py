"""Herd: a crowd of putters and runs of workers (runner.py), in which the processes of the runs are killed, too.

It ends in order: the workers that are left do all that is there, and are then asked to end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.client.kills.acts import ISOLATED, OPTIONS, TASKS
from tests.client.kills.crowd import END_S, HANG_S, Crowd
from tests.client.kills.evidence import Reader
from tests.client.kills.lives import Lives, lives_of
from tests.client.kills.peer import DRAIN_S
from tests.client.kills.queues import EFFECTS, TIMEOUT_S
from tests.client.owners import is_running
from tests.tools.benches import below

import tidelog
from tidelog.aof.lock import OWNER
from tidelog.disk.process import words_of

SOME: Final = ("put", "run", "run", "arun")
MANY: Final = ("put", "put", "run", "run", "several", "arun", "arun")
SHARES: Final = {
    **{"kill": 0.25, "kill a child": 0.3, "kill an owner": 0.15, "end": 0.15},
    **{"end an owner": 0.04, "freeze": 0.04, "freeze an owner": 0.02, "blink": 0.05},
}
ALL_DONE_S: Final = 60.0  # after the last put, unless jobs are stuck


class Herd(Crowd):
    """See the module docstring."""

    program = "tests.client.kills.runner"

    def __init__(self, root: Path, policy: str, seed: int, roles: Sequence[str]) -> None:
        self.handlers: dict[str, Reader] = {}  # evidence of handlers and hooks
        super().__init__(root, policy, seed, roles)

    def _look_for_handlers(self) -> None:
        for path in self.root.parent.glob("*-*.facts"):
            self.handlers.setdefault(path.stem, Reader(path)).read()

    def _calls(self) -> int:
        self._look_for_handlers()
        handled = sum(len(reader.calls) for reader in self.handlers.values())
        return super()._calls() + handled

    def _has_begun(self, one: tuple[str, subprocess.Popen[bytes]]) -> bool:
        """A run that is to end before it has taken a job does so."""
        process, child = one
        if process.startswith("put"):
            return super()._has_begun(one)
        assert child.poll() is None, self.errors()
        reader = self.readers[process]
        reader.read()
        return any(call.what == "runs" for call in reader.calls.values())

    # --- one kill

    def shares(self) -> dict[str, float]:
        """See `Crowd`."""
        return SHARES

    def do(self, act: str, place: int) -> None:
        """See `Crowd`."""
        if act == "kill a child":
            self._kill_child()
        else:
            super().do(act, place)

    def _kill_child(self) -> None:
        """Kill one of the processes that handlers run in, or that run the workers of a process."""
        found = [
            pid
            for process, child in self.living
            for pid in started_by(child.pid)
            if (self.root.parent / f"{process}-{pid}.facts").exists()  # it has begun to work
        ]
        if found:
            pid = self.pick.choice(found)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
                self.story.children_killed.append(time.monotonic_ns())

    def _kill_peer(self, place: int) -> None:
        """The processes that it has started end with it."""
        started = started_by(self.living[place][1].pid)
        super()._kill_peer(place)
        self._are_gone(started)

    def _end_peer(self, place: int) -> None:
        started = started_by(self.living[place][1].pid)
        super()._end_peer(place)
        self._are_gone(started)

    def _are_gone(self, pids: list[int]) -> None:
        def there() -> list[str]:
            return [f"{pid} {words_of(pid)}" for pid in pids if is_running(pid)]

        # The processes of workers end in order when their parent was killed.
        self._within(DRAIN_S + HANG_S, lambda: not there(), lambda: f"these run on: {there()}")

    # --- the end

    def settle(self) -> None:
        """Let the putters end, then the workers do all that is there, and end."""
        self._ask_to_end("put")
        with tidelog.connect(self.root, fsync=self.policy, timeout=TIMEOUT_S) as db:
            queues = [db.queue(name, **OPTIONS) for name in (ISOLATED, TASKS)]

            def left() -> list[Any]:
                return [
                    found for queue in queues if (found := queue.stats()).depth or found.scheduled
                ]

            for queue in queues:
                queue.resume()  # a putter was killed in a pause
            self._within(ALL_DONE_S, lambda: not left(), lambda: f"these are left: {left()}")
        self._ask_to_end("")

    def _ask_to_end(self, role: str) -> None:
        asked = [one for one in self.living if one[0].startswith(role)]
        started = [pid for _, child in asked for pid in started_by(child.pid)]
        for one in asked:
            self._within(4 * HANG_S, partial(self._has_begun, one), self.errors)
            one[1].send_signal(signal.SIGTERM)
        for process, child in asked:
            self._within(
                END_S,
                partial(_has_ended, child),
                partial(self._hanging_end, process, child),
            )
            assert child.returncode == 0, f"{process}: {child.returncode}: {self.errors()}"
            self.story.killed[process] = time.monotonic_ns()
            self.story.ended.add(process)
        self.living = [one for one in self.living if one not in asked]
        self._are_gone(started)

    def lives(self) -> Lives:
        """The end of each job, and all evidence of it."""
        self._look_for_handlers()
        self.tell()
        for reader in self.handlers.values():
            self.story.calls += reader.calls.values()
        with tidelog.connect(self.root, fsync=self.policy, timeout=TIMEOUT_S) as db:
            self.story.left.effects = [job.value for job in db.queue(EFFECTS).peek(10_000)]
            queues = {name: db.queue(name, **OPTIONS) for name in (ISOLATED, TASKS)}
            return lives_of(self.story, lambda name, id: queues[name].job(id))

    def _drain(self, db: Any, left: Any) -> None:
        """Nothing is left."""


def started_by(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started, but for owners of stores."""
    return [each for each in below(pid) if not any(OWNER in word for word in words_of(each))]


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is not None
