"""The stateful models of the queue, which the embedded queue for threads obeys, drive the other faces: embedded for
asyncio, shared for threads and for asyncio, and the commands.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests import inside
from tests.client.faces.awaited import Awaited, HereLoop
from tests.client.faces.commands import CommandStore
from tests.jobs import later_machine, machine
from tests.jobs.later_machine import LaterMachine
from tests.jobs.machine import RETRY_AFTER, Machine
from tests.rounds import slow_and_soak

import tidelog
from tidelog.api.aio import AsyncStore

# Without the longest one: a shared store renews its leases all the time.
MOVES = tuple(seconds for seconds in machine.MOVES if seconds <= 3600.0)


class Shared:
    """A machine whose queues are those of a store that is served."""

    db: Any
    clock: Any

    def connect(self) -> Any:
        self.serving = tidelog.serve(self.db, port=0)
        return tidelog.connect(f"redis://127.0.0.1:{self.serving.port}")

    store: Any

    def close(self) -> None:
        self.serving.close()
        self.store.close()
        self.db.close()

    def beat(self) -> None:
        """Say that the workers live, and which jobs they dropped."""
        self.keeper().beat(at_once=True)

    def learns(self, job: Any) -> None:
        """As `Machine.learns`, when the leases are renewed."""
        self.beat()
        assert job.cancelled and job.state == "cancelled"

    def keeper(self) -> Any:
        """The object that renews the leases."""
        return self.store._keeper

    def pass_time(self, seconds: float) -> None:
        """As `Machine.pass_time`: the leases are renewed meanwhile."""
        step = RETRY_AFTER / 3
        while self.keeper()._held and seconds > step:
            self.clock.advance(step)
            self.beat()
            seconds -= step
        self.clock.advance(seconds)
        self.beat()


class SharedMachine(Shared, Machine):
    """The queue of a shared store, for threads."""

    @rule(by=st.sampled_from(MOVES))
    def advance(self, by: float) -> None:
        super().advance(by)

    @precondition(lambda self: self.held)
    @rule(pick=machine.picks)
    def drop(self, pick: int) -> None:
        super().drop(pick)
        self.beat()


class SharedLaterMachine(Shared, LaterMachine):
    """The same for delayed jobs."""

    @rule(seconds=st.sampled_from(later_machine.MOVES))
    def advance(self, seconds: float) -> None:
        self.pass_time(seconds)


class ByTasks:
    """A machine whose queues are those of the open store, for asyncio."""

    db: Any

    def connect(self) -> Any:
        self.loop = HereLoop()
        return Awaited(self.loop, AsyncStore(inside.core(self.db), decode=False))

    def close(self) -> None:
        self.loop.close()
        self.db.close()


class AsyncMachine(ByTasks, Machine):
    """The queue of an open store, for asyncio."""


class AsyncLaterMachine(ByTasks, LaterMachine):
    """The same for delayed jobs."""


class SharedByTasks:
    """A machine whose queues are those of a store that is served, for asyncio."""

    db: Any
    store: Any

    def connect(self) -> Any:
        self.serving, self.loop = tidelog.serve(self.db, port=0), HereLoop()
        url = f"redis://127.0.0.1:{self.serving.port}"
        return Awaited(self.loop, self.loop.run(tidelog.aconnect(url)))

    def close(self) -> None:
        self.serving.close()
        self.store.aclose()
        self.loop.close()
        self.db.close()

    def keeper(self) -> Any:
        return self.store.it._store._keeper


class AsyncSharedMachine(SharedByTasks, SharedMachine):
    """The queue of a shared store, for asyncio."""


class AsyncSharedLaterMachine(SharedByTasks, SharedLaterMachine):
    """The same for delayed jobs."""


class Sent:
    """A machine whose queues are commands that redis-py sends."""

    db: Any
    store: Any

    def connect(self) -> Any:
        self.serving = tidelog.serve(self.db, port=0)
        return CommandStore(self.serving.port)

    def close(self) -> None:
        self.store.close()
        self.serving.close()
        self.db.close()


class CommandMachine(Sent, Machine):
    """The QUEUE commands. A job lives while the connection lives, so it cannot be dropped."""

    def learns(self, job: Any) -> None:
        """A client learns it when it settles the job: `a_late_answer`."""

    @precondition(lambda self: False)
    @rule()
    def drop(self) -> None:
        raise AssertionError


class CommandLaterMachine(Sent, LaterMachine):
    """The same for delayed jobs."""


KINDS = [AsyncMachine, SharedMachine, AsyncSharedMachine, CommandMachine]
LATER = [AsyncLaterMachine, SharedLaterMachine, AsyncSharedLaterMachine, CommandLaterMachine]


@pytest.mark.parametrize("kind", KINDS)
def test_a_face_beside_the_model_of_the_queue(kind: type[Machine]) -> None:
    machine.run(kind, 6, 40)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", slow_and_soak(20, 400))
def test_a_face_beside_the_model_of_the_queue_for_long(kind: type[Machine], count: int) -> None:
    machine.run(kind, count, 60, Phase.shrink)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", LATER)
@pytest.mark.parametrize("examples", [6, *slow_and_soak(20, 1000)])
def test_a_face_beside_the_model_of_delayed_jobs(kind: type[LaterMachine], examples: int) -> None:
    later_machine.run(kind, examples)
