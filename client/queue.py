"""SharedQueue: the durable queue of a store that another process serves, for threads. Many processes may share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.api.queue.faces import QueueFace
from tidelog.client.base import Base
from tidelog.client.consumer import SharedConsumer
from tidelog.client.job import SharedJob
from tidelog.client.remote import Remote
from tidelog.jobs.typed import T


class SharedQueue(QueueFace[SharedJob[T], SharedConsumer[T], T]):
    """A durable queue of a shared store. `SharedStore.queue` or `tidelog.queue(..., shared=True)` makes it.

    It has the methods of `Queue`. `len(queue)` is the number of jobs that are not done. An empty queue is still true.

    Any method may raise the errors that `Queue` lists, and Unreachable if no server of the store answers.
    """

    _consumer = SharedConsumer

    def __init__(self, store: Base, remote: Remote) -> None:
        super().__init__(store, remote)
        self._remote = remote
        remote.store = store

    def _run_processes(
        self, handler: Callable[[SharedJob[T]], object], count: int, run: dict[str, Any]
    ) -> int:
        # here: few programs start processes
        from tidelog.client.working import run_processes

        return run_processes(self, self._remote, handler, count, run)
