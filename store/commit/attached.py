"""Attached: protocols for the parts of an open store that higher layers make and attach to the core.

`Core.queues` and `Core.checkpoints` are attributes of the core because they live and end with it. The
classes behind them know the core, so the core knows only these protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidelog.store.commit.callers import Caller, Holder
from tidelog.store.options import Options

if TYPE_CHECKING:
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.rows.meta import Meta
    from tidelog.snapshot.scrub import Finding


class Draining(Protocol):
    """A wait for the jobs that other threads and tasks hold. See `store.queue.work.drain.Drain`."""

    def begin(self) -> None:
        """Stop handing out jobs."""

    def look(self) -> float | None:
        """Seconds until the next look; None when the wait is over."""

    def end(self) -> int:
        """How many jobs other threads and tasks held at the last look."""


class Leasing(Protocol):
    """The queues of a store. See `store.queue.work.leases.Leases`."""

    def drain(self, limit: float | None, caller: Caller, me: Holder) -> Draining | None:
        """A wait of at most `limit` seconds. None if the store has ended."""

    def close(self) -> None:
        """Write what is gathered, and stop the thread."""

    def ended(self) -> None:
        """[lock] Wake the putters that wait for room: the store has ended."""


class Folding(Protocol):
    """The checkpoints of a store that is open for writing. See `store.checkpoints.Checkpoints`."""

    options: Options

    @property
    def meta(self) -> Meta | None:
        """The meta row of the newest checkpoint; None if there is none."""

    @property
    def damage(self) -> Exception | None:
        """The damage that a check of the file found."""

    def change(self, options: Options) -> None:
        """Use other options from now on."""

    def fold(self) -> int:
        """Write a checkpoint. Returns the last LSN that it covers. Raises CheckpointFailed."""

    def snapshot(self) -> Snapshot:
        """Publish a snapshot. Raises CheckpointFailed."""

    def verify(self) -> list[Finding]:
        """Check everything that is stored. Raises CheckpointFailed."""

    def info(self) -> dict[str, Any]:
        """The persistence and memory figures of INFO."""

    def is_this_thread(self) -> bool:
        """Whether the caller is the thread that writes checkpoints."""

    def finish(self) -> None:
        """Before a clean close: fold a long tail and end the thread."""
