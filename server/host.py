"""Host: a server as its sessions and commands see it. `server.server.Server` is the implementation.

This module imports neither a session nor the server: `S` stands for the type of session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from tidelog.engine.api import Command
from tidelog.replication.feeds import Downstream, Feeds, Sink
from tidelog.replication.handover import State
from tidelog.replication.handshake import Follow
from tidelog.replication.status import Kept
from tidelog.server.acl.users import Acl
from tidelog.server.config.config import Config
from tidelog.server.jobs import Desk
from tidelog.server.monitoring.stats import Stats
from tidelog.server.pubsub import PubSub
from tidelog.server.saving import Saving
from tidelog.server.shaking import Shaking
from tidelog.server.table import Commands
from tidelog.server.wire.requests import Limits
from tidelog.store.commit.core import Core
from tidelog.store.errors import TidelogError
from tidelog.store.role import Role

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class SessionTurns(Protocol[S_contra]):
    """The turns of the loop (turns.py), as far as a session takes part in them.

    flush_sleep    seconds to wait before each flush (DEBUG AOF-FLUSH-SLEEP)
    """

    flush_sleep: float

    def confirm(self, wanted: int, seconds: float) -> None:
        """From now on replies wait for `wanted` followers (0: for none), for `seconds` at most (0: without limit)."""

    def run_all(self) -> None:
        """Run everything that arrived now, before the turn ends."""

    def woke(self, session: S_contra, thread: int) -> None:
        """A blocked session was served, or has to check its timers. From any thread, perhaps under the store's lock."""


class Ports(Protocol):
    """The addresses on which the server listens.

    ports    (kind, address), kind being tcp, tls, unix or http
    """

    ports: list[tuple[str, str]]

    def stop(self, *, keep_share: bool = False) -> None:
        """Stop listening. `keep_share`: another process listens on the socket of the store's directory."""

    def pass_on(self, connection: object) -> bool:
        """Send the socket of the store's directory to a client of it. False if it is a client of another one."""

    def port(self, kind: str = "tcp") -> int:
        """The port in use, which the system may have chosen; 0 = none."""


class Offers(Protocol):
    """The links over which followers fetch a snapshot (offering.py).

    begun   links so far
    """

    begun: int

    def __iter__(self) -> Iterator[asyncio.Protocol]: ...

    def __len__(self) -> int: ...

    def begin(self, asked: Follow, least: int, name: str, sink: Sink) -> asyncio.Protocol:
        """A link begins: the protocol for its connection."""


class Links(Protocol):
    """The links to followers (feeding.py).

    feeds       the links
    shaking     the handshakes that are under way
    offerings   those that ship a snapshot first
    active      whether there are any feeds: checked at the end of each turn
    asked       a call waits for followers, and the next `pump` asks them how far they are
    """

    feeds: Feeds
    shaking: Shaking

    @property
    def offerings(self) -> Offers: ...

    active: bool
    asked: bool

    @property
    def kept(self) -> Kept:
        """The log that is kept for followers, and the records that were set aside, as of about a second ago."""

    @property
    def ahead_bytes(self) -> int:
        """See `server.feeding.Pump`."""

    def begin(self, link: Downstream, lsn: int) -> None:
        """A link begins, with the frames behind this LSN."""

    def lost(self, link: Downstream, error: Exception | None) -> None:
        """The connection of a follower is gone."""

    def received(self, link: Downstream, data: bytes) -> None:
        """Bytes came from a follower."""

    def pump(self) -> None:
        """Send each follower what it may get now."""

    def pump_soon(self) -> None:
        """`pump` in the next round of the loop, once for all callers."""

    def turn_ended(self) -> None:
        """A turn has ended, and the log was flushed. Called if `active`."""


class Upstream(Protocol):
    """The connection to the leader (monitoring/upstream.py).

    created    the loop's time
    """

    id: int
    addr: str
    laddr: str
    created: float

    def line(self, now: float) -> bytes:
        """Return its line in CLIENT LIST, with the line end."""

    def kill(self) -> None:
        """End the connection. The link dials again."""


class Handing(Protocol):
    """FAILOVER (handing.py)."""

    @property
    def state(self) -> State:
        """The state of the handover, HANDED_OVER if there is none."""

    @property
    def under_way(self) -> bool:
        """Whether there is a handover that may still be aborted, or that this server waits for."""

    def begin(self, target: Downstream | None, force: bool, timeout_ms: int) -> None:
        """Hand over to this follower, or to the first that has every record. Raises TidelogError."""

    def abort(self) -> None:
        """End it, and take writes again. Raises TooLate."""


class Replication(Protocol):
    """The server's part in replication (replicating.py).

    following    the store is a follower, or hands over
    digesting    held while a digest of the whole state is computed
    lacking      a leader with fewer good followers than min-replicas-to-write: clients must not write
    """

    following: bool
    lacking: bool
    digesting: asyncio.Lock

    @property
    def good(self) -> int:
        """How many followers are connected and were heard within min-replicas-max-lag seconds."""

    @property
    def handing(self) -> Handing: ...

    @property
    def role(self) -> Role:
        """The role that the file REPLICA states."""

    @property
    def feeding(self) -> Links: ...

    @property
    def upstream(self) -> Upstream | None:
        """The connection to the leader, as CLIENT LIST shows it; None while there is none."""

    @property
    def loading(self) -> bool:
        """Whether the store follows and has not had yet what its leader had: it may still be empty."""

    def follow(self, host: str, port: int, replace: bool) -> None:
        """Follow the leader at this address. Waits for the disk. Raises TidelogError."""

    def promote(self) -> None:
        """Lead. Waits for the disk. Raises TidelogError."""

    def refusal(self, command: Command) -> bytes | None:
        """The error of a command that a follower does not run now; None if it runs. Called while `following`."""


class HandingOver(Protocol):
    """The end of an owner that another process follows (handover.py).

    knowing    the IDs of the sessions that know how a connection ends then
    """

    knowing: set[int]

    def begin(self) -> None:
        """The socket was passed on: end."""


class Insisting(Protocol):
    """The wait for followers before the server stops (leaving.py).

    insisted    somebody does not want to wait
    handover    what an owner does when `tidelog serve` takes over
    """

    insisted: bool

    @property
    def handover(self) -> HandingOver: ...


class Host(Protocol[S]):
    """One server.

    sessions       by ID, in order of connection
    monitors       sessions that asked for MONITOR, by ID
    paused         CLIENT PAUSE is delaying commands
    clock          the loop's time at the last tick, in seconds
    started        unix time of the start
    clients_max    clients served at a time
    """

    core: Core
    config: Config
    root: Path
    loop: asyncio.AbstractEventLoop
    commands: Commands[S]
    stats: Stats
    acl: Acl
    pubsub: PubSub
    desk: Desk
    saving: Saving
    limits: Limits
    sessions: dict[int, S]
    monitors: dict[int, S]
    paused: bool
    clock: float
    started: float
    run_id: str
    clients_max: int

    @property
    def turns(self) -> SessionTurns[S]: ...

    @property
    def replicating(self) -> Replication: ...

    @property
    def waiting(self) -> Insisting: ...

    @property
    def listeners(self) -> Ports: ...

    @property
    def blocked(self) -> int:
        """Number of sessions blocked in a command. From any thread."""

    def next_id(self) -> int:
        """Return the ID for a new client. IDs only increase."""

    def stop(self, abortable: bool = False) -> None:
        """Begin to shut down. `abortable`: SHUTDOWN ABORT can end the wait for followers."""

    def store_ended(self, error: TidelogError) -> None:
        """The store was closed by its owner: stop serving."""

    # --- about one session

    def check_behind(self, session: S) -> None:
        """Disconnect the client if its unread output exceeds the configured limits."""

    def warn_of_http(self, session: S) -> None:
        """Log that an HTTP client is disconnected."""

    def note_denied(self, session: S, command: Command, denied: tuple[str, bytes]) -> None:
        """Add a command that the session's user may not run to ACL LOG. `denied`: what `User.denies` returned."""

    # --- CLIENT PAUSE, MONITOR

    def pause(self, milliseconds: int, writes_only: bool) -> None:
        """Delay new commands, or only writes, for `milliseconds`."""

    def delay_writes(self, delayer: object, on: bool) -> None:
        """Delay writes until no delayer does any more, beside a CLIENT PAUSE: a FAILOVER, or a shutdown that waits."""

    def unpause(self) -> None:
        """End the pause and run the delayed commands."""

    def delays(self, session: S, command: Command) -> bool:
        """Whether the current pause delays this command."""

    def postpone(self, session: S, args: list[bytes]) -> None:
        """Run this command when the pause ends."""

    def set_monitor(self, session: S) -> None:
        """Start MONITOR for the session."""

    def unmonitor(self, session: S) -> None:
        """Stop MONITOR for the session."""

    def show(self, session: S, args: list[bytes], db: int) -> None:
        """Show a command that the session runs to all MONITOR sessions."""
