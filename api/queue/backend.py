"""Backend: what the faces of a queue ask of its store, for threads.

There are two kinds. One works on a store that this process has open, and decides what it is asked (embedded.py). The
other one says it in words to the process that serves the store (client/remote.py), renews leases from afar, and knows
which outcomes are unknown.

Generated from abackend.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from typing import Any, Protocol

from tidelog.api.shapes import Shape
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.options import Options
from tidelog.jobs.putting import NewJob
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.result import AskResult
from tidelog.jobs.verbs.verb import OfDatabase, Verb


class Asked(Protocol):
    """A database of a store, as its schedules use it."""

    def ask(self, verb: OfDatabase) -> Any:
        """The result of a verb, once its effect has reached the store's durability level."""


class Backend(Protocol):
    """A queue of a store.

    options        those of the queue
    kind           in the names of its workers
    passing        errors after which the workers of a run go on
    opened_here    the store was opened for this queue, which closes it
    unpicklable    why the queue cannot be pickled
    puts_directly  it is embedded, and a put without options may go the short way (`QueueFace.put`)
    """

    options: Options
    kind: str
    passing: tuple[type[Exception], ...]
    opened_here: bool
    unpicklable: str
    puts_directly: bool

    def ask(self, verb: Verb) -> Any:
        """The result of a verb, once its effect has reached the store's durability level."""

    def answer(self, request: AskResult, wait: float | None) -> Any:
        """The outcome of a job; `wait` is how many seconds to wait for it, None = for ever."""

    def time(self) -> float:
        """The store's time, unix seconds."""

    def call(self, shape: Shape[Any], words: list[Any]) -> Any:
        """The reply of a command."""

    def put(self, request: PutJob, wait: float | None) -> str:
        """Put a job; `wait` is how many seconds to wait for room, None = for ever. Returns its ID. Raises QueueFull."""

    def batches(self, options: JobOptions, wait: float | None) -> Any:
        """How `put_some` puts: with these options, and waiting so long for room, all calls together."""

    def put_some(self, how: Any, values: list[bytes], before: int) -> int:
        """Put as many of these jobs as there is room for, at least one. Returns how many.

        Raises QueueFull, which says that `before` jobs were put before.
        """

    def new(self, request: PutJob) -> NewJob:
        """A job for `done_and` to put."""
