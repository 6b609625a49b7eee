"""`tidelog.queue`: open a store for one queue. `tidelog.aqueue` is in api.queue.aopening."""

from __future__ import annotations

from typing import Any, Unpack

from tidelog.api.opening import open_store
from tidelog.api.queue.face import Queue
from tidelog.jobs.options import make_options
from tidelog.jobs.typed import QueueOptions
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.opening import AnyPath


def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    codec: Any = "json",
    fsync: str = "always",
    clock: Clock = SYSTEM,
    **options: Unpack[QueueOptions],
) -> Queue:
    """Open the store in a directory for one queue. Creates it if the directory is empty or missing.

        with tidelog.queue("mail-data", "mails") as mails:
            mails.put({"to": "ann@example.org"})

    To use several queues, open the store and call `Store.queue` for each.

    Args:
        path: The directory.
        name: Name of the queue. For it and all that is not named here see `Store.queue`.
        fsync: As in `tidelog.open`.
        clock: As in `tidelog.open`.

    Returns:
        The queue. Closing it closes the store.

    Raises:
        DataError: An option or the path is invalid.
        CannotOpen: As `tidelog.open`, with the same subclasses.
    """
    made = make_options(name, group, codec=codec, **options)
    return Queue(open_store(path, fsync=fsync, clock=clock), made, opened_here=True)
