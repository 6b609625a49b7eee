"""Host: a server as its sessions and commands see it. `server.server.Server` is the implementation.

This module imports neither a session nor the server: `S` stands for the type of session.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol, TypeVar

from tidelog.engine.api import Command
from tidelog.server.acl.users import Acl
from tidelog.server.config.config import Config
from tidelog.server.monitoring.stats import Stats
from tidelog.server.pubsub import PubSub
from tidelog.server.saving import Saving
from tidelog.server.table import Commands
from tidelog.server.wire.requests import Limits
from tidelog.store.commit.core import Core
from tidelog.store.errors import TidelogError

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class SessionTurns(Protocol[S_contra]):
    """The turns of the loop (turns.py), as far as a session takes part in them.

    flush_sleep    seconds to wait before each flush (DEBUG AOF-FLUSH-SLEEP)
    """

    flush_sleep: float

    def woke(self, session: S_contra, thread: int) -> None:
        """A blocked session was served, or has to check its timers. From any thread, under the store's lock."""


class Ports(Protocol):
    """The addresses on which the server listens.

    ports    (kind, address), kind being tcp, tls, unix or http
    """

    ports: list[tuple[str, str]]

    def port(self, kind: str = "tcp") -> int:
        """The port in use, which the system may have chosen; 0 = none."""


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
    def listeners(self) -> Ports: ...

    @property
    def blocked(self) -> int:
        """Number of sessions blocked in a command. From any thread."""

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

    def unpause(self) -> None:
        """End the pause and run the delayed commands."""

    def holds(self, session: S, command: Command) -> bool:
        """Whether the current pause delays this command."""

    def postpone(self, session: S, args: list[bytes]) -> None:
        """Run this command when the pause ends."""

    def set_monitor(self, session: S) -> None:
        """Start MONITOR for the session."""

    def unmonitor(self, session: S) -> None:
        """Stop MONITOR for the session."""

    def show(self, session: S, args: list[bytes], db: int) -> None:
        """Show a command that the session runs to all MONITOR sessions."""
