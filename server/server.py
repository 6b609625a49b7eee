"""Server: serves an open store to Redis clients. Owns the sessions, options, periodic work and shutdown.

Everything runs in the event loop's thread. Sockets are in server/listeners.py. server/turns.py decides when commands
run and when replies leave. `server.serving` runs a server.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import secrets
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidelog.aof.layout import SHARED
from tidelog.engine.api import Command
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Status
from tidelog.server import errors
from tidelog.server.acl.sessions import note_denied, users_changed
from tidelog.server.acl.users import DEFAULT, Acl
from tidelog.server.addresses import Addresses
from tidelog.server.config.config import Config, ConfigError
from tidelog.server.connection import Connection
from tidelog.server.handlers import COMMANDS
from tidelog.server.jobs import Desk
from tidelog.server.leaving import Leaving
from tidelog.server.listeners import Listeners
from tidelog.server.monitoring.logs import VERBOSE
from tidelog.server.monitoring.monitor import monitor_addr, monitor_line
from tidelog.server.monitoring.stats import Stats
from tidelog.server.pubsub import PubSub
from tidelog.server.replicating import Replicating
from tidelog.server.reserve import Reserve
from tidelog.server.saving import Saving
from tidelog.server.session import Session, changes
from tidelog.server.turns import Turns
from tidelog.server.wire.requests import Limits
from tidelog.store.commit.core import Core
from tidelog.store.errors import StoreClosed, TidelogError
from tidelog.store.options import make_options

HTTP_WARNING_S: Final = 60.0  # least time between two log lines about HTTP clients, as in Redis
LOOK_S: Final = 1.0  # pause between two checks of all sessions; a check of thousands takes a while
FILES_RESERVED: Final = 32  # file descriptors not used for clients, except for those in the reserve

STORE_OPTIONS: Final = (
    "save",
    "auto-aof-rewrite-min-size",
    "auto-aof-rewrite-percentage",
    "maxmemory",
    "maxdisk",
    "keep-dead-seconds",
    "keep-dead-jobs",
)

_logger = logging.getLogger("tidelog.server")


class Server:
    """See the module docstring. Create, start and close it in the loop's thread.

    sessions    by ID, in order of connection
    clock       the loop's time at the last tick, in seconds; clients' idle times are measured with it (as in Redis)
    paused      CLIENT PAUSE is delaying commands
    monitors    sessions that asked for MONITOR
    """

    # This is a class attribute, because all servers share it. An instance with 30 attributes or more keeps them in a
    # dict, which makes every access slower.
    commands = COMMANDS

    def __init__(self, core: Core, config: Config, root: Path) -> None:
        if core.served:
            raise ConfigError(
                "this store is already being served: stop that server first, or connect to it"
            )
        self.core = core
        core.served = True
        self.config = config
        self.root = root
        self.loop = asyncio.get_running_loop()
        self.stats = Stats(config)
        self.acl = Acl(COMMANDS.table, COMMANDS.categories)
        self.acl.load(config["users"])
        if config["requirepass"] or self.acl.default.nopass:
            self.acl.set_default_password(config["requirepass"].encode())
        self.pubsub = PubSub(core)
        self.desk = Desk()
        self.waiting = Leaving(self)
        self.saving = Saving(core, self.shutdown, self.waiting.followers)
        self.sessions: dict[int, Session] = {}
        self.paused = False
        self.monitors: dict[int, Session] = {}
        self.started = time.time()
        self.run_id = secrets.token_hex(20)
        self.listeners = Listeners(self, Reserve(self))
        self.replicating = Replicating(self)
        self.turns = Turns(self)
        self.limits = Limits(
            bulk_bytes_max=config["proto-max-bulk-len"],
            query_bytes_max=config["client-query-buffer-limit"],
        )
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.clients_max = self._clients_wanted = config["maxclients"]
        self._pause = _Pause()
        self._last_id = 0
        self.clock = self.loop.time()
        self._cron: asyncio.TimerHandle | None = None
        self._stopping = False
        self._times = _Times()
        self._leaving: asyncio.Task[None] | None = None  # keeps the task alive
        self._watch_config()

    async def start(
        self, addresses: Addresses | None = None, passed: socket.socket | None = None
    ) -> None:
        """Listen. Raises OSError, which names the address, and ConfigError for unreadable certificates.

        addresses    already bound sockets; None: bind the configured addresses
        passed       the socket of the store's directory, from an owner that has handed over
        """
        self._limit_clients()
        try:
            await self.listeners.start(addresses)
        except BaseException:
            self.core.served = False
            raise
        try:
            await self._share(passed)
            self.replicating.start()
        except BaseException:
            self.listeners.stop()
            self.core.served = False
            raise
        self._times.busy_at = self.loop.time()
        self._cron = self.loop.call_later(1 / self.config["hz"], self._tick)

    async def _share(self, passed: socket.socket | None = None) -> None:
        """Listen where `tidelog.connect` looks. A server that listens nowhere else fails if it cannot."""
        if not self.config["shared-socket"] or self.core.checkpoints is None:
            return
        try:
            await self.listeners.share(self.root, passed)
        except OSError as error:
            if not self.listeners.ports:
                raise
            if isinstance(error, FileNotFoundError):
                return  # the store lies on a simulated disk
            _logger.warning(
                "tidelog.connect cannot find this server, because %s cannot be created: %s",
                *(self.root / SHARED, error.strerror or error),
            )

    def _limit_clients(self) -> None:
        """Lower `clients_max` to what the file descriptor limit allows, with a warning (as Redis)."""
        possible = _possible_clients()
        if self.clients_max > possible:
            _logger.warning(
                "maxclients is %d, but this process may open only %d files, so it serves at most %d clients. Raise "
                "the limit with `ulimit -n`",
                *(self.clients_max, possible + FILES_RESERVED, possible),
            )
            self.clients_max = possible

    def admit(self, connection: Connection) -> bytes | None:
        """Register a new connection. Return None, or the error line if it is refused."""
        self.stats.connections_received += 1
        session = connection.session
        handshakes = self.listeners.handshakes
        handshakes.end(connection)
        refusal = None
        full = self.full
        if full and not connection.operates:
            refusal = errors.MAX_CLIENTS
        elif (
            connection.kind != "unix"
            and self.config["protected-mode"]
            and self.acl.default.nopass
            and not _is_loopback(connection.addr)
        ):
            refusal = errors.PROTECTED
        if refusal is not None:
            self.stats.rejected_connections += 1
            why = refusal.decode().partition(". ")[0]
            _logger.log(VERBOSE, "refused %s: %s", connection.addr, why)
            return refusal
        self.sessions[session.id] = session
        if full:
            self.listeners.reserve.seat(session)
        else:
            _logger.log(VERBOSE, "client %d connected from %s", session.id, connection.addr)
        return None

    @property
    def full(self) -> bool:
        """Whether maxclients are connected, without those in the reserve."""
        clients = len(self.sessions) - len(self.listeners.reserve) + len(self.listeners.handshakes)
        return bool(clients >= self.clients_max)

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        self.listeners.reserve.leave(connection.session)
        self.waiting.handover.knowing.discard(connection.session.id)
        session = self.sessions.pop(connection.session.id, None)
        self._times.busy_at = self.loop.time()
        if session is not None:
            age = self.loop.time() - connection.created
            name = session.name.decode("utf-8", "backslashreplace")
            _logger.log(
                VERBOSE,
                "client %d (%s) %sdisconnected after %.3f s",
                *(session.id, connection.addr, f"named {name} " if name else "", age),
            )
        self.turns.forget(connection)

    def warn_of_http(self, session: Session) -> None:
        """Log that an HTTP client is disconnected, at most once a minute so that clients cannot flood the log."""
        now = self.loop.time()
        if now >= self._times.http_warning_at:
            self._times.http_warning_at = now + HTTP_WARNING_S
            _logger.warning(
                "closing client %d (%s), which sent HTTP: a web page may be trying to send commands. Further such "
                "clients are closed without a message for a minute",
                *(session.id, session.connection.addr),
            )

    def note_denied(self, session: Session, command: Command, denied: tuple[str, bytes]) -> None:
        """Add a command that the session's user may not run to ACL LOG. `denied`: what `User.denies` returned."""
        note_denied(session, command, denied)

    @property
    def blocked(self) -> int:
        """Number of sessions blocked in a command. From any thread."""
        return sum(session.waits for session in list(self.sessions.values()))

    def next_id(self) -> int:
        """Return the ID for a new session. IDs only increase."""
        self._last_id += 1
        return self._last_id

    # --- periodic work

    def _tick(self) -> None:
        """Run periodic work. Called `hz` times a second."""
        self._cron = self.loop.call_later(1 / self.config["hz"], self._tick)
        core = self.core
        if core.ended:
            try:
                core.check_open()
            except StoreClosed as reason:
                self.store_ended(reason)
            return
        if core.clocks().store >= core.state.next_expiry and core.refusal is None:
            try:
                core.decided(0, _expire)
            except TidelogError as error:
                _logger.warning("expired keys could not be deleted: %s", error)
            self.turns.look()
        self.replicating.feeding.tick()
        now = self.loop.time()
        self.stats.sample(now, core.log.parked and core.durability.relief is None)
        if now >= self._times.look_at:
            self._times.look_at = now + LOOK_S
            self._look()
            self._stop_if_idle(now)
            self._stop_if_broken()
            if self.listeners.lost_share and not self._stopping:
                _logger.warning("%s was removed; it is made again", self.root / SHARED)
                self.listeners.sharing = self.loop.create_task(self._share())
            core.try_again()  # so that health checks notice when a full disk has room again
        # set it after `_look`, so that time which the loop spent elsewhere does not count as a client's idle time
        self.clock = now

    def _look(self) -> None:
        """Disconnect clients that were idle for too long and clients that do not read their replies."""
        idle = self.config["timeout"]
        for session in list(self.sessions.values()):
            connection = session.connection
            if session.follower is not None:
                continue  # it has its own timeout, and its output is bounded
            if (
                idle
                and self.clock - session.last_active > idle
                and not (session.busy or session.subscribed or session.monitor)
            ):
                _logger.info("closing idle client %d (%s)", session.id, connection.addr)
                session.kill()
            else:
                self.check_behind(session)

    def _stop_if_idle(self, now: float) -> None:
        if self.sessions:
            self._times.busy_at = now
        elif 0 < self.config["idle-exit"] <= now - self._times.busy_at:
            _logger.info(
                "stopping, because no client was connected for %d s", now - self._times.busy_at
            )
            self.stop()

    def _stop_if_broken(self) -> None:
        """An owner whose log failed can write nothing more. It ends, and the next client starts another one."""
        failure = self.core.log.failure
        if self.config.owner and failure is not None and not self._stopping:
            _logger.error(
                "stopping, so that another process takes over, because the log failed: %s", failure
            )
            self.stop()

    def check_behind(self, session: Session) -> None:
        """Disconnect the client if its unread output exceeds the configured limits."""
        listens = session.subscribed or session.monitor
        limits = self.config.pubsub_limits if listens else self.config.normal_limits
        hard, soft, soft_seconds = limits
        if not (hard or soft):
            return
        connection, now = session.connection, self.loop.time()
        behind = connection.unread_bytes + connection.out_bytes
        if soft and behind > soft:
            connection.slow_since = connection.slow_since or now
        else:
            connection.slow_since = None
        late = connection.slow_since is not None and now - connection.slow_since > soft_seconds
        if (hard and behind > hard) or late:
            _logger.warning(
                "closing client %d (%s), which does not read its replies: %d bytes are unread",
                *(session.id, connection.addr, behind),
            )
            session.kill()

    # --- CLIENT PAUSE, MONITOR

    def pause(self, milliseconds: int, writes_only: bool) -> None:
        """Delay new commands, or only writes, for `milliseconds`. Commands already running go on.

        It never shortens or weakens a pause that is already in effect.
        """
        until = self.loop.time() + milliseconds / 1000
        if self._pause.timer is not None:
            until = max(until, self._pause.timer.when())
            self._pause.timer.cancel()
        pause = self._pause
        pause.writes_only = writes_only and (pause.writes_only or not pause.clients)
        self.paused = pause.clients = True
        self._settle_all()
        self._pause.timer = self.loop.call_at(until, self.unpause)

    def unpause(self) -> None:
        """End the pause and run the delayed commands."""
        if self._pause.timer is not None:
            self._pause.timer.cancel()
            self._pause.timer = None
        self._pause.clients = False
        self._go_on()

    def delay_writes(self, delayer: object, on: bool) -> None:
        """Delay writes until no delayer does any more, beside a CLIENT PAUSE: a FAILOVER, or a shutdown that waits."""
        if on:
            self._pause.delayers.add(delayer)
            self.paused = True
            self._settle_all()
        else:
            self._pause.delayers.discard(delayer)
            self._go_on()

    def _go_on(self) -> None:
        """A pause has ended: run the delayed commands. Those that another pause delays are delayed again."""
        self.paused = self._pause.clients or bool(self._pause.delayers)
        self._settle_all()
        postponed, self._pause.postponed = self._pause.postponed, []
        for session, args in postponed:
            if not session.closed:
                session.busy = False
                session.connection.take_back(args)
                session.connection.resume()

    def delays(self, session: Session, command: Command) -> bool:
        """Whether the current pause delays this command."""
        if command.name in (b"client|unpause", b"client|pause"):
            return False
        if changes(command) or (self._pause.clients and not self._pause.writes_only):
            return True
        return command.name == b"exec" and session.queued_change

    def postpone(self, session: Session, args: list[bytes]) -> None:
        """Run this command when the pause ends."""
        self._pause.postponed.append((session, args))

    def show(self, session: Session, args: list[bytes], db: int) -> None:
        """Show a command to all MONITOR sessions."""
        addr = monitor_addr(session.connection.kind, session.connection.addr)
        now_us = self.core.time_ns() // 1000
        line = monitor_line(self.commands.table, args, db, addr, now_us)
        if line is not None:
            for monitor in list(self.monitors.values()):
                monitor.tell(Status(line))

    def set_monitor(self, session: Session) -> None:
        """Start MONITOR for the session."""
        session.monitor = True
        self.monitors[session.id] = session
        self._settle_all()

    def unmonitor(self, session: Session) -> None:
        """Stop MONITOR for the session."""
        if self.monitors.pop(session.id, None) is not None:
            session.monitor = False
            self._settle_all()

    def _settle_all(self) -> None:
        for session in self.sessions.values():
            session.settle()

    # --- options changed at run time

    def _watch_config(self) -> None:
        config, core = self.config, self.core
        settings = core.settings
        for name in (
            "stream-node-max-entries",
            "stream-node-max-bytes",
            "stream-idmp-duration",
            "stream-idmp-maxsize",
        ):
            slot = name.replace("-", "_")

            def set_limit(value: int, slot: str = slot) -> None:
                with core.lock:
                    setattr(settings, slot, value)

            set_limit(config[name])
            config.on(name, set_limit)
        config.on("appendfsync", core.set_policy)
        config.on("requirepass", self._set_password)
        config.on("maxclients", self._set_clients_max)
        config.on("proto-max-bulk-len", partial(self.limits.change, "bulk_bytes_max"))
        config.on("client-query-buffer-limit", partial(self.limits.change, "query_bytes_max"))
        for name in ("slowlog-log-slower-than", "slowlog-max-len", "latency-monitor-threshold"):
            config.on(name, lambda value: self.stats.configure())
        self.stats.configure()
        self.acl.log.length_max = config["acllog-max-len"]
        config.on("acllog-max-len", lambda value: setattr(self.acl.log, "length_max", value))
        for name in STORE_OPTIONS:
            config.on(name, self._change_store)
        self.pubsub.set_notifications(config["notify-keyspace-events"])
        config.on("notify-keyspace-events", self.pubsub.set_notifications)

    def _set_password(self, password: str) -> None:
        self.acl.set_default_password(password.encode())
        users_changed(self, {DEFAULT})

    def _change_store(self, value: Any) -> None:
        """Apply changed checkpoint and memory options to the store."""
        checkpoints = self.core.checkpoints
        if checkpoints is not None:
            checkpoints.change(make_options(**self.config.store_options()))

    def _set_clients_max(self, value: int) -> None:
        possible = _possible_clients()
        if value > possible and value != self._clients_wanted:  # unless CONFIG SET rolls back to it
            raise ValueError(
                "The operating system is not able to handle the specified number of clients, try with "
                f"{possible}"
            )
        self._clients_wanted = value
        self.clients_max = min(value, possible)

    # --- the end

    def store_ended(self, error: TidelogError) -> None:
        """The store was closed by its owner: stop serving."""
        if not self._stopping:
            _logger.warning("stopping, because the store can no longer be used: %s", error)
            self.stop()

    def stop(self, abortable: bool = False) -> None:
        """Begin to shut down. The future `ended` is done when that is complete. A second call ends the wait for
        followers; one after that wait does nothing.

        abortable    SHUTDOWN ABORT can end that wait, and the server goes on
        """
        if self._stopping:  # the loop may end before it runs another task
            return
        if self._leaving is None or self._leaving.done():
            self._leaving = self.loop.create_task(self._leave(abortable))
        else:
            self.waiting.insisted = True

    async def _leave(self, abortable: bool) -> None:
        try:
            await self.saving.shutdown(save=False, force=True, abortable=abortable)
        except CommandError:
            self.waiting.insisted = False  # it was aborted

    async def shutdown(self, save: bool = False) -> None:
        """Stop accepting, finish replies, close the connections. The store stays open: its owner closes it.

        save    first fold the log into the checkpoint
        """
        if self._stopping:
            await asyncio.shield(self.ended)
            return
        self._stopping = True
        try:
            await self._shut(save)
        finally:
            self.pubsub.close()
            self.core.served = False
            if not self.ended.done():
                self.ended.set_result(None)

    async def _shut(self, save: bool) -> None:
        turns = self.turns
        self.listeners.stop()
        self.replicating.stop()
        if self._cron is not None:
            self._cron.cancel()
        checkpoints = self.core.checkpoints
        if save and checkpoints is not None and not self.core.ended:
            try:
                await asyncio.to_thread(checkpoints.fold)
            except TidelogError as error:
                _logger.error("the checkpoint failed: %s", error)
        if not self.core.ended:
            deadline = self.loop.time() + self.config["shutdown-timeout"]
            while (turns.withholding or turns.under_way) and self.loop.time() < deadline:
                turns.look()
                await asyncio.sleep(0.005)
        for session in list(self.sessions.values()):
            session.close_soon()
        await asyncio.sleep(0)
        deadline = self.loop.time() + 1.0
        while self.sessions and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for session in list(self.sessions.values()):
            session.kill()


class _Pause:
    """CLIENT PAUSE, and the pauses of a FAILOVER and of a shutdown that waits for followers.

    clients        CLIENT PAUSE delays commands: only those that write if `writes_only`
    timer          ends that; None = it does not
    delayers       each of them delays commands that write
    postponed      commands to run when it ends
    """

    __slots__ = ("clients", "writes_only", "timer", "delayers", "postponed")

    def __init__(self) -> None:
        self.clients = self.writes_only = False
        self.delayers: set[object] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.postponed: list[tuple[Session, list[bytes]]] = []


class _Times:
    """When to do something next, by the loop's clock.

    look_at            the next check of all sessions
    http_warning_at    no warning about HTTP clients before
    busy_at            when a client was connected last, or the server started
    """

    __slots__ = ("look_at", "http_warning_at", "busy_at")

    def __init__(self) -> None:
        self.look_at = self.http_warning_at = self.busy_at = 0.0


def _expire(ctx: Any) -> None:
    """An empty unit. The units before it delete expired keys (`Core.begin`)."""
    return None


def _possible_clients() -> int:
    """Number of clients that the file descriptor limit allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(soft - FILES_RESERVED, 1)


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
