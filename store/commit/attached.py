"""Attached: protocols for the parts of an open store that higher layers make and attach to the core.

`Core.queues`, `Core.checkpoints`, `Core.roles` and `Core.following` are attributes of the core because they live and
end with it. The classes behind them know the core, so the core knows only these protocols. The links to followers are
made by a higher layer, too, and `Core.acks` knows them by the protocol `Acknowledging`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.disk.interface import Disk
from tidelog.store.commit.callers import Caller, Holder
from tidelog.store.keepers import Keeper, Pin
from tidelog.store.options import KeepDead, Options
from tidelog.store.role import Role

if TYPE_CHECKING:
    # a program that never follows does not load this module
    from concurrent.futures import Future

    from tidelog.aof.received import Batch
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.rows.meta import Meta
    from tidelog.snapshot.scrub import Finding
    from tidelog.snapshot.swap import Swap


class Draining(Protocol):
    """A wait for the jobs that other threads and tasks hold. See `jobs.work.drain.Drain`."""

    def begin(self) -> None:
        """Stop handing out jobs."""

    def look(self) -> float | None:
        """Seconds until the next look; None when the wait is over."""

    def end(self) -> int:
        """How many jobs other threads and tasks held at the last look."""


class Leasing(Protocol):
    """The queues of a store. See `jobs.work.leases.Leases`."""

    def drain(self, limit: float | None, caller: Caller, me: Holder) -> Draining | None:
        """A wait of at most `limit` seconds. None if the store has ended."""

    def close(self) -> None:
        """Write what is gathered, and stop the thread."""

    def nudge(self) -> None:
        """[lock] Make the putters that wait for room look again: the store has ended, or takes no more writes."""


class Folding(Protocol):
    """The checkpoints of a store that is open for writing. See `store.checkpoints.Checkpoints`."""

    options: Options
    followers: Callable[[], list[Keeper]]
    epochs: list[Epoch]
    keep_dead: KeepDead

    @property
    def meta(self) -> Meta | None:
        """The meta row of the newest checkpoint; None if there is none."""

    @property
    def damage(self) -> Exception | None:
        """The damage that a check of the file found."""

    def change(self, options: Options) -> None:
        """Use other options from now on."""

    def lived(self, epoch: Epoch) -> None:
        """[lock] The log has the EPOCH of another life."""

    def fold(self) -> int:
        """Write a checkpoint. Returns the last LSN that it covers. Raises CheckpointFailed."""

    def snapshot(self, *, passing: bool = False) -> Snapshot:
        """Publish a snapshot; `passing`: for a follower. Raises CheckpointFailed."""

    def passing(self) -> list[Path]:
        """The snapshots that were made for followers and belong to nobody else."""

    def delete_passing(self, path: Path) -> bool:
        """Delete a snapshot that was made for followers, unless it belongs to the store by now. False: it is held."""

    def pins(self) -> list[Pin]:
        """The keepers without which a part of the log could go. Reads the disk. Raises AofError, OSError."""

    def verify(self) -> list[Finding]:
        """Check everything that is stored. Raises CheckpointFailed."""

    def steady(self) -> AbstractContextManager[None]:
        """No checkpoint is committed meanwhile."""

    def paused(self) -> AbstractContextManager[int]:
        """No checkpoint or snapshot is made meanwhile. Gives the last LSN that one of them covers."""

    def info(self) -> dict[str, Any]:
        """The persistence and memory figures of INFO."""

    def is_this_thread(self) -> bool:
        """Whether the caller is the thread that writes checkpoints."""

    def finish(self) -> None:
        """Before a clean close: fold a long tail and end the thread."""


class Heard(Protocol):
    """The part of a link that a follower tells of. See `replication.follower.Follower`."""

    leader_lsn: int
    caught_up: bool
    heard_at: float
    even_at: float
    stalled: str


class Copying(Protocol):
    """A copy of the leader's data on its way. See `replication.resync.Resyncing`."""

    phase: str
    size: int
    done: int


class Peers(Protocol):
    """A connection to the leader. See `replication.link.Connected`."""

    @property
    def peer(self) -> object: ...

    @property
    def own(self) -> object: ...

    @property
    def fd(self) -> int: ...

    @property
    def opened_at(self) -> float: ...


class Linking(Protocol):
    """The link of a follower to its leader. See `replication.link.Link`."""

    state: str
    failure: str
    down_since: float | None

    @property
    def follower(self) -> Heard: ...

    def verify(self) -> Future[int]:
        """Compare the data with the leader's. The result is the LSN at which they agree."""

    @property
    def resyncing(self) -> Copying | None:
        """The copy of the leader's data that the store is getting."""

    @property
    def up(self) -> bool:
        """Whether frames arrive."""

    @property
    def connected(self) -> Peers | None:
        """The connection over which the leader sends."""

    def kill(self) -> None:
        """End the connection; the next one begins soon. From any thread."""


class Receiving(Protocol):
    """The follower's part of a core. See `store.commit.following.Following`."""

    def receive(self, batch: Batch) -> None:
        """Append a batch of the leader's log, and apply it."""

    def heard(self, leader_ms: int) -> None:
        """The leader's clock shows `leader_ms` now."""

    def time_ns(self) -> int:
        """The leader's time, as this store knows it."""

    @property
    def last(self) -> tuple[int, int]:
        """(LSN, header checksum) of the last frame."""

    def lives(self) -> list[Epoch]:
        """The lives in the log, newest first."""


class Acknowledging(Protocol):
    """A link to a follower, as far as calls wait for it. See `replication.feed.Feed`.

    acked_lsn      the follower has written and applied all records through this LSN
    fsynced_lsn    the follower has fsynced all records through this LSN
    history        `Changing.rewinds` when the link began: both are LSNs of that history
    """

    acked_lsn: int
    fsynced_lsn: int
    history: int


class Changing(Protocol):
    """The role of a store, and its changes. See `store.roles.Roles`."""

    disk: Disk
    role: Role
    changed: list[Callable[[], object]]
    consent: bool
    declined: int
    copying: threading.Lock
    agreed: int
    differs: Exception | None
    rewinds: int

    @property
    def uuid(self) -> bytes:
        """The uuid of the store."""

    def tell(self) -> None:
        """[lock] Call `changed`."""

    def follow(self, host: str, port: int, reason: str = "", *, consent: bool = False) -> None:
        """Follow the leader at this address from now on."""

    def promote(self, reason: str = "", generation: int = 0, declined: int | None = None) -> None:
        """Lead from now on."""

    def suspend(self) -> int:
        """Take no writes from now on. Returns the LSN of the last record."""

    def release(self) -> None:
        """Take writes again."""

    def hand_over(self, heir: bytes, host: str, port: int, reason: str) -> int:
        """State that a follower is to lead. Returns the generation that it is to begin."""

    def decline(self) -> None:
        """[lock] This follower will not be promoted by a leader that had told it to lead."""

    def handed_over(self, asked: Role, reason: str) -> None:
        """The store that was told to lead does: follow it."""

    def take_back(self, asked: Role, reason: str) -> None:
        """The store that was told to lead will not: lead again."""

    def adopt(self, uuid: bytes) -> None:
        """Make an empty follower a copy of the store with this uuid."""

    def rewind(self, at: Position, aside: Path, report: bytes, role: Role, last: int) -> str:
        """End a follower's log at `at`; the rest goes to `aside`, behind a report. Returns why not, or ""."""

    def swap(self, new: Swap, role: Role, last: int) -> None:
        """Let the store in resync/store take the place of this one."""

    def info(self) -> dict[str, Any]:
        """The section `replication` of `Store.info`."""
