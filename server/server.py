"""Server: an open store made available to Redis clients.

Everything runs in one thread, that of an event loop, in turns. In a turn, all sockets that have something are read and
their commands run; what those log is gathered. XADDs of all clients run together when the turn ends (`_end_turn`). Then
the log is flushed once, as one frame, and the replies leave: at once, if what they rest on holds the promise of the
fsync policy by then; else when the log's own thread has synced it. So a sync never holds up the loop, and one serves
all who wait. `server.serving` runs it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import secrets
import ssl
import threading
import time
from collections import deque
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import tidelog.server.commands  # noqa: F401  # registers them
from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import Log
from tidelog.disk import unix_socket
from tidelog.engine.table import TABLE, Command
from tidelog.server import errors
from tidelog.server.acl import Acl
from tidelog.server.config import Config, ConfigError
from tidelog.server.connection import Connection
from tidelog.server.option_kinds import Limit
from tidelog.server.pubsub import PubSub
from tidelog.server.requests import Limits
from tidelog.server.saving import Saving
from tidelog.server.session import Session
from tidelog.server.stats import Stats
from tidelog.server.tls import context
from tidelog.server.users import users_changed
from tidelog.store.batch import run_pipeline
from tidelog.store.core import RELOAD, Core
from tidelog.store.errors import StoreClosed, TidelogError
from tidelog.store.options import make_options

if TYPE_CHECKING:
    from tidelog.server.metrics import Metrics

FEW: Final = 2  # XADDs that are faster one by one
RELIEF_S: Final = 0.01  # how often writers that wait for memory are looked at
FILES_RESERVED: Final = 32  # descriptors that are not for clients

STORE_OPTIONS: Final = (
    "save",
    "auto-aof-rewrite-min-size",
    "auto-aof-rewrite-percentage",
    "maxmemory",
)
XADD: Final = TABLE.commands[b"xadd"]

_logger = logging.getLogger("tidelog.server")


class Server:
    """See the module's text. Made, started and closed in the loop's thread.

    sessions    by ID, in the order they came
    blocked     how many wait in a blocking read
    paused      CLIENT PAUSE holds commands back
    monitors    sessions that asked for MONITOR
    ports       what is listened on: (kind, address)
    """

    def __init__(self, core: Core, config: Config, root: Path) -> None:
        if core.served:
            raise ConfigError("this store is served already")
        self.core = core
        core.served = True
        self.config = config
        self.root = root
        self.loop = asyncio.get_running_loop()
        self.stats = Stats(config)
        self.acl = Acl()
        self.acl.load(config["users"])
        if config["requirepass"] or self.acl.default.nopass:
            self.acl.set_default_password(config["requirepass"].encode())
        self.pubsub = PubSub(self)
        self.saving = Saving(self)
        self.flush_sleep = 0.0  # seconds; DEBUG AOF-FLUSH-SLEEP
        self.sessions: dict[int, Session] = {}
        self.blocked = 0
        self.paused = False
        self.monitors: dict[int, Session] = {}
        self.started = time.time()
        self.run_id = secrets.token_hex(20)
        self.ports: list[tuple[str, str]] = []
        self.limits = Limits(
            bulk_bytes_max=config["proto-max-bulk-len"],
            query_bytes_max=config["client-query-buffer-limit"],
        )
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.clients_max = config["maxclients"]
        self.metrics: Metrics | None = None
        self._pause_writes_only = False
        self._pause_timer: asyncio.TimerHandle | None = None
        self._postponed: list[tuple[Session, list[bytes]]] = []
        self._last_id = 0
        self._thread = threading.get_ident()
        self._touched: list[Connection] = []
        self._awake: deque[Session] = deque()
        self._parked: dict[Connection, None] = {}
        self._awaited: list[tuple[Log, int]] = []
        self._adds: list[tuple[Connection, list[list[bytes]]]] = []
        self.now = self.loop.time
        self._ending = False
        self._listeners: list[asyncio.Server] = []
        self._unix: str | None = None
        self._cron: asyncio.TimerHandle | None = None
        self._stopping = False
        self._relief: asyncio.TimerHandle | None = None
        self._watch_config()

    # --- listening

    async def start(self) -> None:
        """Listen. Raises OSError, which names the address, and ConfigError for certificates that cannot be read."""
        config = self.config
        self._limit_clients()
        try:
            for kind, port, tls in (
                ("tcp", config["port"], None),
                ("tls", config["tls-port"], context(config) if config["tls-port"] else None),
            ):
                if port or (kind == "tcp" and config.ephemeral):
                    await self._listen(kind, port, tls)
            if config["unixsocket"]:
                mode = int(config["unixsocketperm"], 8)
                listening = unix_socket.bind(config["unixsocket"], mode)
                self._unix = config["unixsocket"]
                self._listeners.append(
                    await self.loop.create_unix_server(
                        lambda: Connection(self, "unix"), sock=listening
                    )
                )
                self.ports.append(("unix", config["unixsocket"]))
            if config["metrics-port"]:
                try:
                    from tidelog.server.metrics import Metrics  # not with the rest: few ask for it
                except ImportError as error:
                    raise ConfigError(
                        f"metrics-port needs what `pip install 'tidelog[server]'` installs: {error}"
                    ) from error
                self.metrics = Metrics(self)
                self.metrics.start()
                self.ports.append(("http", f"{config['metrics-bind']}:{config['metrics-port']}"))
        except BaseException:
            await self._stop_listening()
            self.core.served = False
            raise
        for kind, address in self.ports:
            _logger.info("listening on %s (%s)", address, kind)
        self._cron = self.loop.call_later(1 / self.config["hz"], self._tick)

    async def _listen(self, kind: str, port: int, tls: ssl.SSLContext | None) -> None:
        """On every address of `bind`; one with a `-` before it may be missing on this machine (as in Redis)."""
        for word in self.config["bind"].split():
            host = word.removeprefix("-")
            try:
                server = await self.loop.create_server(
                    lambda: Connection(self, kind),
                    None if host == "*" else host,
                    port,
                    ssl=tls,
                    backlog=self.config["tcp-backlog"],
                    reuse_address=True,
                )
            except OSError as error:
                if word.startswith("-") and error.errno not in (98, 13):
                    continue
                raise OSError(
                    error.errno, f"cannot listen on {host} port {port}: {error.strerror or error}"
                ) from error
            self._listeners.append(server)
            for listening in server.sockets:
                name = listening.getsockname()
                port = port or name[1]  # the same on every address, where the system chose it
                self.ports.append(
                    (kind, f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}")
                )

    def port(self, kind: str = "tcp") -> int:
        """The port that is listened on, which the system may have chosen; 0 = none."""
        for found, address in self.ports:
            if found == kind:
                return int(address.rpartition(":")[2])
        return 0

    def _limit_clients(self) -> None:
        """No more clients than this process may have descriptors for (as Redis, which says so too)."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        possible = soft - FILES_RESERVED
        if self.clients_max > possible > 0:
            _logger.warning(
                "maxclients is %d, but this process may open %d files: %d clients are served; raise it with "
                "`ulimit -n`",
                *(self.clients_max, soft, possible),
            )
            self.clients_max = possible

    def admit(self, connection: Connection) -> bytes | None:
        """A new connection: None, or why it is refused."""
        self.stats.connections_received += 1
        session = connection.session
        refusal = None
        if len(self.sessions) >= self.clients_max:
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
            return refusal
        self.sessions[session.id] = session
        return None

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        self.sessions.pop(connection.session.id, None)
        self._parked.pop(connection, None)

    def next_id(self) -> int:
        """The ID of a new session: they only rise."""
        self._last_id += 1
        return self._last_id

    # --- turns

    def touch(self, connection: Connection) -> None:
        """A connection has something to send in this turn."""
        self._touched.append(connection)
        if not self._ending:
            self._ending = True
            self.loop.call_soon(self._end_turn)

    def woke(self, session: Session, thread: int) -> None:
        """A blocked session was served, or is to look at its timers. From any thread, under the store's lock."""
        if thread == self._thread:
            self._awake.append(session)
            if not self._ending:
                self._ending = True
                self.loop.call_soon(self._end_turn)
        else:
            try:
                self.loop.call_soon_threadsafe(self.woke, session, self._thread)
            except RuntimeError:
                pass  # the loop is closed: what was delivered is pending, as after a crash

    def add_later(self, connection: Connection, commands: list[list[bytes]]) -> None:
        """XADDs whose IDs are the server's to make: those of all connections run together when the turn ends."""
        self._adds.append((connection, commands))
        if not self._ending:
            self._ending = True
            self.loop.call_soon(self._end_turn)

    def run_adds(self) -> None:
        """Run what `add_later` was given."""
        adds, self._adds = self._adds, []
        by_db: dict[int, list[tuple[Connection, list[list[bytes]]]]] = {}
        for add in adds:
            connection, commands = add
            connection.adding = False
            if connection.closing:
                continue
            session = connection.session
            if len(adds) > FEW and session.plain:
                by_db.setdefault(session.db, []).append(add)
            else:  # few are faster one by one; and a pause may have come in between
                connection.run(commands)
        for found in by_db.values():
            self.add_many(found)

    def add_many(self, adds: list[tuple[Connection, list[list[bytes]]]]) -> None:
        """XADDs of connections that have selected the same database: each a unit of its own."""
        started = perf_counter_ns()
        session = adds[0][0].session
        rows = [(args[1], tuple(args[3:])) for _, commands in adds for args in commands]
        try:
            replies, claim = run_pipeline(self.core, session.db, rows, False)
        except Exception as error:
            replies, claim = [session.refused(XADD, error)] * len(rows), (self.core.log, 0, False)
        log, lsn, wrote = claim
        at = failures = 0
        for connection, commands in adds:
            stop = at + len(commands)
            pieces = []
            for reply in replies[at:stop]:
                if reply.__class__ is bytes:
                    pieces.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
                else:
                    failures += 1
                    line = errors.line(reply)
                    self.stats.error(line)
                    pieces.append(b"-%b\r\n" % line)
            connection.rests_on(log, lsn, wrote)
            connection.send(pieces[0] if len(pieces) == 1 else b"".join(pieces), len(pieces))
            if wrote:
                connection.session.wrote_lsn = lsn
            at = stop
        spent = perf_counter_ns() - started
        self.stats.calls(XADD.name, len(rows), spent, failures)
        if spent // len(rows) >= self.stats.slow_ns:
            self.stats.slow(adds[0][1][0], spent // len(rows), session)

    def _end_turn(self) -> None:
        self._ending = False
        try:
            if self._adds:
                self.run_adds()
            awake = self._awake
            while awake:
                awake.popleft().woken()
            self.pubsub.deliver()
        except Exception:  # a fault of ours; what is left over is for the next turn
            _logger.exception("a turn broke off")
            if self._awake and not self._ending:
                self._ending = True
                self.loop.call_soon(self._end_turn)
        core = self.core
        log = core.log
        if log.written_lsn < log.next_lsn - 1 and (core.relaxed or self.flush_sleep):
            if self.flush_sleep:
                time.sleep(self.flush_sleep)
            with core.lock:
                try:
                    log.flush()
                except Exception as error:
                    _logger.error("the log could not be written: %s", error)
                    if log.in_doubt:
                        core.trouble = core.trouble or RELOAD
        touched, self._touched = self._touched, []
        through = self._held_through(log)
        for connection in touched:
            connection.finish_turn(log, through)
        if self._awaited:
            self._subscribe()

    def _held_through(self, log: Log) -> int:
        """The last LSN that holds what the fsync policy promises; replies that rest on none go in any case."""
        core = self.core
        if core.relaxed:
            return 0 if log.parked else log.written_lsn
        return log.synced_lsn if core.relief is None else 0

    def await_(self, connection: Connection) -> None:
        """What a connection has to send has to wait for the log."""
        self._parked[connection] = None
        log, lsn = connection.held[-1][:2]
        if self._awaited and self._awaited[-1][0] is log:
            self._awaited[-1] = log, max(lsn, self._awaited[-1][1])
        else:
            self._awaited.append((log, lsn))

    def _subscribe(self) -> None:
        level = self.core.policy_level()
        awaited, self._awaited = self._awaited, []
        for log, lsn in awaited:
            log.subscribe(lsn, level, self._synced)

    def _synced(self, error: LogPoisoned | None) -> None:
        """From the log's own thread, or this one."""
        try:
            self.loop.call_soon_threadsafe(self._release, error)
        except RuntimeError:
            pass  # the loop is closed, and so are its sockets

    def _release(self, error: LogPoisoned | None) -> None:
        if self._relief is not None:
            self._relief.cancel()
            self._relief = None
        for connection in list(self._parked):
            if connection.release(error):
                self._parked.pop(connection, None)
        if self._parked and self.core.relief is not None and self._relief is None:
            self._relief = self.loop.call_later(RELIEF_S, self._release, None)

    # --- what is due now and then

    def _tick(self) -> None:
        """hz times a second."""
        self._cron = self.loop.call_later(1 / self.config["hz"], self._tick)
        core = self.core
        if core.ended:
            self.store_ended(StoreClosed("its owner has closed it"))
            return
        now_ms = core.time_ns() // 1_000_000
        if now_ms >= core.state.next_expiry:
            try:
                core.decided(0, _expire)
            except TidelogError as error:
                _logger.warning("what is to expire could not be deleted: %s", error)
            self._synced(None)
        now = self.now()
        self.stats.sample(now, core.log.parked and core.relief is None)
        idle = self.config["timeout"]
        normal, pubsub = self.config.normal_limits, self.config.pubsub_limits
        for session in list(self.sessions.values()):
            connection = session.connection
            if (
                idle
                and now - session.last_active > idle
                and not session.busy
                and not session.subscribed
            ):
                _logger.info("closing idle client %d (%s)", session.id, connection.addr)
                session.kill()
            else:
                listens = session.subscribed or session.monitor
                self._check_behind(session, now, pubsub if listens else normal)

    def _check_behind(self, session: Session, now: float, limits: Limit) -> None:
        """Close a client that does not read what it is sent."""
        hard, soft, soft_seconds = limits
        if not (hard or soft):
            return
        connection = session.connection
        behind = connection.unread_bytes
        if soft and behind > soft:
            connection.slow_since = connection.slow_since or now
        else:
            connection.slow_since = None
        late = connection.slow_since is not None and now - connection.slow_since > soft_seconds
        if (hard and behind > hard) or late:
            _logger.warning(
                "closing client %d (%s), which does not read: %d bytes are waiting for it",
                *(session.id, connection.addr, behind),
            )
            session.kill()

    # --- CLIENT PAUSE, MONITOR

    def pause(self, milliseconds: int, writes_only: bool) -> None:
        """Hold commands back for so long; `writes_only`: those that write. What came before goes on."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._pause_writes_only = (
            writes_only if not self.paused else writes_only and self._pause_writes_only
        )
        self.paused = True
        self._settle_all()
        self._pause_timer = self.loop.call_later(milliseconds / 1000, self.unpause)

    def unpause(self) -> None:
        """Go on with what was held back."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
        self.paused = False
        self._settle_all()
        postponed, self._postponed = self._postponed, []
        for session, args in postponed:
            if not session.closed:
                session.busy = False
                session.connection.take_back(args)
                session.connection.resume()

    def holds(self, command: Command) -> bool:
        """Whether a pause holds a command back."""
        if command.name in (b"client|unpause", b"client|pause"):
            return False
        return not self._pause_writes_only or "write" in command.flags or command.name == b"exec"

    def postpone(self, session: Session, args: list[bytes]) -> None:
        """Run this when the pause is over."""
        self._postponed.append((session, args))

    def show(self, session: Session, args: list[bytes]) -> None:
        """Show a command to those who MONITOR."""
        self.pubsub.show(session, args, list(self.monitors.values()))

    def set_monitor(self, session: Session) -> None:
        """MONITOR."""
        session.monitor = True
        self.monitors[session.id] = session
        self._settle_all()

    def unmonitor(self, session: Session) -> None:
        """No more MONITOR."""
        if self.monitors.pop(session.id, None) is not None:
            session.monitor = False
            self._settle_all()

    def _settle_all(self) -> None:
        for session in self.sessions.values():
            session.settle()

    # --- options that are changed while it runs

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
        config.on("proto-max-bulk-len", lambda value: setattr(self.limits, "bulk_bytes_max", value))
        config.on(
            "client-query-buffer-limit",
            lambda value: setattr(self.limits, "query_bytes_max", value),
        )
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
        users_changed(self)

    def _change_store(self, value: Any) -> None:
        """How the store is kept is another from now on."""
        checkpoints = self.core.checkpoints
        if checkpoints is not None:
            checkpoints.change(make_options(**self.config.store_options()))

    def _set_clients_max(self, value: int) -> None:
        self.clients_max = value
        self._limit_clients()

    # --- the end

    def store_ended(self, error: TidelogError) -> None:
        """The store was closed by its owner: there is nothing left to serve."""
        if not self._stopping:
            _logger.warning("the store is of no more use: %s", error)
            self.loop.create_task(self.shutdown())

    async def shutdown(self, save: bool = False) -> None:
        """Stop accepting, finish replies, close the connections. The store stays open: its owner closes it.

        save    fold the log into the checkpoint first
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
        await self._stop_listening()
        if self._cron is not None:
            self._cron.cancel()
        if save and not self.core.ended:
            try:
                await asyncio.to_thread(self.core.checkpoints.fold)
            except TidelogError as error:
                _logger.error("no checkpoint: %s", error)
        if not self.core.ended:
            deadline = self.loop.time() + self.config["shutdown-timeout"]
            while (self._parked or self._touched) and self.loop.time() < deadline:
                self.core.log.subscribe(
                    self.core.log.next_lsn - 1, self.core.policy_level(), self._synced
                )
                await asyncio.sleep(0.005)
        for session in list(self.sessions.values()):
            session.close_soon()
        await asyncio.sleep(0)
        deadline = self.loop.time() + 1.0
        while self.sessions and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for session in list(self.sessions.values()):
            session.kill()

    async def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        if self._unix is not None:
            unix_socket.remove(self._unix)
            self._unix = None
        if self.metrics is not None:
            self.metrics.stop()
            self.metrics = None


def _expire(ctx: Any) -> None:
    """A unit of nothing: those before it delete what is due (`Core.begin`)."""
    return None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
