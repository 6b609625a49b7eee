"""Working: run the workers of a shared queue in several processes (`SharedQueue.run(processes=)`).

The parent sends each child (client/child.py) one message: its length in 8 bytes, big-endian, and two pickles behind
each other.

    dict     for `multiprocessing.spawn.prepare`: sys.path, the main file and so on; `answers`: a descriptor
    Work     the store, the queue, the handler by its name, and the arguments of `run`; or a function that does all

Children answer on a second pipe, that descriptor, with lines: the number of jobs that were given back, or `!`, the name
of an error and its text.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.api.queue.running.plan import is_coroutine, make_plan
from tidelog.api.queue.running.preparing import check_importable, preparation
from tidelog.client.address import Address
from tidelog.client.processes import Processes
from tidelog.client.remote import Remote
from tidelog.jobs.options import arguments_of
from tidelog.store import errors
from tidelog.store.durations import patience
from tidelog.store.errors import DataError, NotStored, TidelogError

HOOKS: Final = ("on_dead", "on_retry", "on_done")  # arguments of `run`
LENGTH: Final = struct.Struct(">Q")
CANNOT_WORK: Final = 2  # exit code of a child that fails before it takes jobs
MESSAGE_BYTES_MAX: Final = 1000  # one write to the pipe, which is then never mixed with another one
preparing = False  # in a child, while the main file of the program is imported


@dataclass(frozen=True)
class Work:
    """The work of a child.

    addresses, timeout, options,
    start, db                          how to connect, as in `Link`
    queue                              the arguments of `Store.queue`
    run                                the arguments of `run`
    """

    addresses: Sequence[Address]
    timeout: float
    options: Mapping[str, str]
    start: bool
    db: int
    queue: dict[str, Any]
    handler: Callable[[Any], Any]
    run: dict[str, Any]


def run_processes(queue: Any, remote: Remote, handler: Any, count: int, run: dict[str, Any]) -> int:
    """Let processes take jobs of a SharedQueue until a signal comes, the store is closed, or all are idle (`block`).

    Returns how many jobs were given back. Raises DataError, CannotOpen, NotStored.
    """
    _check_prepared()
    plan = (queue, handler, run["workers"], run["drain"])
    consume = {name: run[name] for name in ("worker", "batch", "block")}
    rest = {name: value for name, value in run.items() if name not in ("workers", "drain")}
    make_plan(*plan, asynchronous=is_coroutine(handler), **rest)  # checks them
    queue.consume(**consume).close()
    link = remote.link
    work = Work(
        *(link.addresses, link.timeout, link.options, link.start, remote.db),
        # the codec as given, which other processes can import; that of the options may be a closure
        arguments_of(remote.options) | {"codec": remote.codec},
        *(handler, run),
    )
    parts = [("handler", handler), ("codec", remote.codec)]
    parts += [(name, run[name]) for name in HOOKS]
    parts += [("middleware", each) for each in run["middleware"]]
    drain, once = patience("drain", run["drain"]), run["block"] is not None
    return run_children(work, parts, count, drain, once=once, over=lambda: link.closed)


def run_children(
    work: Work | Callable[[], int],
    parts: Sequence[tuple[str, Any]],
    count: int,
    drain: float | None,
    *,
    once: bool,
    over: Callable[[], bool],
) -> int:
    """Let processes work until a signal comes, `over` says so, or all have ended with success (`once`).

    `parts` are the names and values in the work that each process imports. Returns and raises as `run_processes`.
    """
    _check_prepared()
    ours, theirs = os.pipe()
    try:
        try:
            processes = Processes(
                ["-m", "tidelog.client.child"],
                count,
                drain,
                once,
                final=(CANNOT_WORK,),
                over=over,
                given=_message(work, parts, theirs),
                fds=(theirs,),
            )
            code = processes.run()
        except OSError as error:
            raise NotStored(f"the processes cannot be started: {error}") from error
        finally:
            os.close(theirs)
        return _result(_read_all(ours), code)
    finally:
        os.close(ours)


def _check_prepared() -> None:
    if preparing:
        raise DataError(
            "run(processes=) was called while one of its processes imported the program; call it under "
            'if __name__ == "__main__":'
        )


def _message(work: Work | Callable[[], int], parts: Sequence[tuple[str, Any]], fd: int) -> bytes:
    check_importable(*parts)
    try:
        body = pickle.dumps(work)
    except Exception as error:
        raise DataError(f"another process cannot get the arguments of run: {error}") from error
    both = pickle.dumps(preparation() | {"answers": fd}) + body
    return LENGTH.pack(len(both)) + both


def _read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _result(answers: bytes, code: int) -> int:
    """The number of jobs that the children gave back. Raises the error of a child that could not work."""
    left = 0
    for line in answers.decode("utf-8", "replace").splitlines():
        if line.startswith("!"):
            if code:  # else other children did all the work
                name, _, text = line[1:].partition(": ")
                kind = getattr(errors, name, DataError)
                is_ours = isinstance(kind, type) and issubclass(kind, TidelogError)
                raise (kind if is_ours else DataError)(text)
            continue
        left += int(line)
    if code:
        raise DataError(
            f"a process ended with exit code {code} before it took jobs; its own output says why"
        )
    return left
