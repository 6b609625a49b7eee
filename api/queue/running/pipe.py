"""Pipe: messages between a run and a process that works for it. Each is its length in 4 bytes, little-endian, and a
pickle.

The run begins with the preparation (preparing.py) and, as bytes that are a pickle again, a Start; then it sends Tasks.
The process answers with tuples:

    ready                       it can work
    failed, name, text          it cannot: the name of an error, and its text
    log, fields                 of a log record
    end, job, request           end or keep the delivery of this job            -> whether it was held
    ask, queue, method, args    what a queue of the job's store is asked        -> the result
    done, result                the handler has returned: its result, encoded, or None
    no result, text             likewise, and the codec cannot encode its result
    over                        the handler has raised, and the delivery was ended

The arrows are answers of the run: (True, result) or (False, error).

A second pipe, the standard input of the process, is for cancels: the run sends the number and the deliveries of a job.
"""

from __future__ import annotations

import pickle
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.jobs.verbs.ending import ACKED, Ending
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.work.known import JobEntry

LENGTH: Final = struct.Struct("<I")
READ_BYTES: Final = 1 << 16
READY, FAILED, LOG, END, ASK = "ready", "failed", "log", "end", "ask"
DONE, NO_RESULT, OVER = "done", "no result", "over"
Arguments = dict[str, Any]  # of `Store.queue`


@dataclass(frozen=True, slots=True)
class Start:
    """The work of a process.

    handler    called with each job
    queues     arguments of `Store.queue`, for each queue of the run
    results    what the handler returns is wanted
    """

    handler: Callable[[Any], Any]
    queues: list[Arguments]
    results: bool


@dataclass(frozen=True, slots=True)
class Task:
    """A job to work on, as it was delivered. `queue` is the place of its queue in `Start.queues`."""

    entry: JobEntry
    worker: str
    queue: int


class Joined(Ending):
    """The job is done, and others are put: how its process says `done_and`. The run makes DoneAnd or AckAnd of it."""

    __slots__ = ("puts",)

    end = ACKED

    def __init__(self, puts: list[tuple[Arguments, PutJob]]) -> None:
        self.puts = puts


class Pipe:
    """One end. Two threads must not use it at the same time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._came = bytearray()

    def send(self, message: object) -> None:
        """Send a message. Raises OSError if the other end is closed, and what pickling it raises."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._sock.settimeout(None)
        self._sock.sendall(LENGTH.pack(len(body)) + body)

    def receive(self, until: float | None = None) -> Any:
        """Wait for the next message, until a time (monotonic seconds) or for ever.

        Raises TimeoutError, EOFError if the other end is closed, and ConnectionResetError if it was closed before it
        had read all that was sent.
        """
        came = self._came
        needed = LENGTH.size
        while True:
            if len(came) >= needed:
                if needed > LENGTH.size:
                    body = bytes(came[LENGTH.size : needed])
                    del came[:needed]
                    return pickle.loads(body)
                needed += LENGTH.unpack_from(came)[0]
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
            piece = self._sock.recv(max(READ_BYTES, needed - len(came)))
            if not piece:
                raise EOFError
            came += piece

    def close(self) -> None:
        """Close this end."""
        self._sock.close()
