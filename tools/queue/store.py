"""Open a store and find a queue in it. All commands of `tidelog queue` begin with this.

PATH may be the URL of a server. If a process serves the store in a directory, commands that change a queue go through
it; those that read look at the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import click

import tidelog
from tidelog.aof.errors import NotAStore
from tidelog.api.face import inside
from tidelog.api.queue.face import Queue
from tidelog.client.address import is_served
from tidelog.disk.real import RealDisk
from tidelog.figures.asked import queues_told
from tidelog.figures.model import QueueFigures
from tidelog.figures.queues import in_state
from tidelog.jobs.names import queue_names
from tidelog.store.clock import SYSTEM, Clock
from tidelog.tools import exits
from tidelog.tools.failed import Failed, NotThere
from tidelog.tools.heads import OBJECT
from tidelog.tools.logfiles import LogFiles, place_of
from tidelog.tools.names import groups, queues
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.value import one_line

AnyStore = tidelog.Store | tidelog.SharedStore
AnyQueue = Queue | tidelog.SharedQueue
USUAL_GROUP: Final = "workers"
NAMES_SHOWN: Final = 20
CLOCK: Clock = SYSTEM  # tests put another in its place


class Locked(Failed):
    """Another process has the store open for writing."""

    exit_code = exits.LOCKED


group_option: Final[Callable[[Callable[..., Any]], Callable[..., Any]]] = click.option(
    "--group",
    shell_complete=groups,
    help="The group of workers. Default: the group named workers, or the only group.",
)


def on_queue(
    *lines: str, codes: Sequence[int] = exits.READING, json: str | None = OBJECT
) -> Callable[[Callable[..., Any]], click.Command]:
    """As `at_place`, for a function that also takes the `name` of a queue and its `group`."""

    def made(function: Callable[..., Any]) -> click.Command:
        named = click.argument("name", shell_complete=queues)(group_option(function))
        return at_path_or_url(*lines, codes=codes, json=json)(named)

    return made


def reads_queue(
    *lines: str, json: str | None = OBJECT
) -> Callable[[Callable[..., Any]], click.Command]:
    """As `on_queue`, for a function that takes the queue, which is open to read, instead of its place and name."""

    def made(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def opening(path: PathOrUrl, name: str, group: str | None, **more: Any) -> Any:
            with reading(path, name, group) as queue:
                return function(queue, **more)

        return on_queue(*lines, json=json)(opening)

    return made


@contextmanager
def reading(path: PathOrUrl, name: str, group: str | None) -> Iterator[AnyQueue]:
    """A queue to read; the writer of the store may be running. Its values come as bytes; value.py shows them.

    Raises NotThere; the store's errors.
    """
    with opened(path) as store:
        yield found(store, path, name, group)


@contextmanager
def writing(
    path: PathOrUrl, name: str, group: str | None, call: str, *, create: bool | None = None
) -> Iterator[AnyQueue]:
    """A queue to change. `call` names the method that does the same in a process that has the store open.

    create    the option --create of the command, None if it has none: the queue and the store need not be there

    Raises Locked, NotThere; the store's errors.
    """
    with writable(path, call, create) as store:
        known = {known for known, _ in names_of(store)}
        if create and name not in known:
            yield store.queue(name, group or USUAL_GROUP, codec="bytes")
        elif create is not None and name not in known:
            raise no_queue(path, name, sorted(known))
        else:
            yield found(store, path, name, group)


@contextmanager
def refusals() -> Iterator[None]:
    """Raises UsageError for words that a queue refuses."""
    try:
        yield
    except tidelog.DataError as error:
        raise click.UsageError(str(error)) from None


def no_queue(path: PathOrUrl, name: str, known: list[str]) -> NotThere:
    """The error for a queue that is not there, of a command with --create."""
    return NotThere(
        f"there is no queue {one_line(name)} in {path}: {listed('it holds', known)}; to begin it, add --create"
    )


def no_store(error: Exception) -> NotThere:
    """The error for a path without a store, of a command with --create."""
    reason = str(error).partition(". ")[0]
    return NotThere(
        f"{reason}. To begin a new store and its queue, give a missing or empty directory and --create"
    )


def writable(path: PathOrUrl, call: str, create: bool | None = None) -> AnyStore:
    """A store to change. `call` and `create` are as in `writing`. Raises Locked, NotThere; the store's errors."""
    if isinstance(path, str):
        return tidelog.connect(path)
    # Check that the path is a store, because opening for writing would create a missing one.
    try:
        root = LogFiles(path).root
    except NotAStore as error:
        if create:
            return tidelog.open(path, clock=CLOCK)
        raise error if create is None else no_store(error) from error
    try:
        return tidelog.open(root, clock=CLOCK)
    except tidelog.StoreLocked as error:
        if is_served(root):
            return tidelog.connect(root)
        holder = f"process {error.pid}" if error.pid is not None else "another process"
        raise Locked(
            f"{root} is open for writing by {holder}. Stop that process and try again, call {call} in it, or let it "
            "serve the store"
        ) from error


def now_ns() -> int:
    """The time by the clock that stores are opened with, in nanoseconds since 1970."""
    return CLOCK.time_ns()


def opened(path: PathOrUrl) -> AnyStore:
    """A store to read."""
    if isinstance(path, str):
        return tidelog.connect(path)
    return tidelog.open(place_of(RealDisk(), path), read_only=True, clock=CLOCK)


def looked(store: AnyStore, only: tuple[str, str] | None = None) -> list[QueueFigures]:
    """The queues now."""
    wanted = None if only is None else tuple(name.encode() for name in only)
    if isinstance(store, tidelog.SharedStore):

        def ask(*commands: Sequence[bytes]) -> list[Any]:
            return [_reply(store, command) for command in commands]

        names = store.execute_command("QUEUE", "LIST") if wanted is None else [wanted]
        return queues_told(ask, 0, names, rates=True)
    now_ms = now_ns() // 1_000_000
    core, db, *_ = inside(store)
    rows: list[QueueFigures] = core.look(
        lambda state: in_state(state, (db,), now_ms, lambda key: wanted is None or key == wanted[0])
    )[0]
    return rows if wanted is None else [row for row in rows if row.group == wanted[1]]


def _reply(store: tidelog.SharedStore, command: Sequence[bytes]) -> Any:
    try:
        return store.execute_command(*command)
    except tidelog.ResponseError as error:
        return error


def names_of(store: AnyStore) -> list[tuple[str, str]]:
    """Names and groups of the queues of a store."""
    if isinstance(store, tidelog.SharedStore):
        listed = store.execute_command("QUEUE", "LIST")
        return [(name.decode(), group.decode()) for name, group in listed]
    core, db, *_ = inside(store)
    found: list[tuple[str, str]] = queue_names(core, db)[0]
    return found


def found(store: AnyStore, path: PathOrUrl, name: str, group: str | None) -> AnyQueue:
    """The queue of that name and group. Raises NotThere, whose text lists the existing ones."""
    groups: dict[str, list[str]] = {}
    for known, its_group in names_of(store):
        groups.setdefault(known, []).append(its_group)
    if name not in groups:
        raise NotThere(
            f"there is no queue {one_line(name)} in {path}: {listed('it holds', groups)}"
        )
    if group is None and USUAL_GROUP not in groups[name] and len(groups[name]) == 1:
        (group,) = groups[name]
    group = USUAL_GROUP if group is None else group
    if group not in groups[name]:
        raise NotThere(
            f"the queue {one_line(name)} has no group {one_line(group)}:"
            f" {listed('--group may be', groups[name])}"
        )
    return store.queue(name, group, codec="bytes")


def listed(what: str, names: dict[str, list[str]] | list[str]) -> str:
    """The names for an error, NAMES_SHOWN of them at most."""
    if not names:
        return "there are none"
    shown = [one_line(name) for name in sorted(names)[:NAMES_SHOWN]]
    more = len(names) - len(shown)
    return f"{what} {', '.join(shown)}" + (f" and {more:,} more" if more else "")
