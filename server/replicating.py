"""Replicating: a server's links to its followers, its link to a leader, and changes of its role.

The store knows its role (`Core.roles`), also when no server runs: the file REPLICA states it. A server adds the link.
If the owner's program made the link (`tidelog.follow`), the server leaves it alone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog.engine.api import Command
from tidelog.replication.dial import Address
from tidelog.replication.errors import LinkError
from tidelog.replication.feed import TIMEOUT_S_MIN
from tidelog.replication.follower import take_up
from tidelog.replication.link import Link
from tidelog.server import errors, tls
from tidelog.server.config.config import ConfigError
from tidelog.server.feeding import Feeding
from tidelog.server.handing import Handing
from tidelog.server.host import Host
from tidelog.server.monitoring.upstream import Upstream, Upstreams
from tidelog.server.session import Session
from tidelog.server.table import may_write
from tidelog.store.acks import nothing_waits
from tidelog.store.commit.landing import READONLY
from tidelog.store.role import ALONE, Role

# A follower that never gets its leader's data can still be promoted, or told to follow another one.
CHANGE_ROLE: Final = frozenset((b"replicaof", b"slaveof"))

_logger = logging.getLogger("tidelog.replication")


class Replicating:
    """See the module docstring. Create it in the loop's thread.

    feeding      the links to followers
    handing      FAILOVER
    link         the link to the leader that this server made, or None
    following    the store is a follower, or hands over
    lacking      a leader with fewer good followers than min-replicas-to-write: clients must not write
    """

    def __init__(self, server: Host[Session]) -> None:
        self.feeding = Feeding(server)
        self.handing = Handing(server, self.feeding, self._dial)
        self.link: Link | None = None
        self.digesting = asyncio.Lock()  # at most one digest of the whole state at a time
        self.following = server.core.following is not None
        self._server = server
        self._core = server.core
        self._roles = server.core.roles  # None if the store is open read-only
        self.lacking = False
        self._told_leader = ""  # by the option `replicaof`, when the server started
        self._said = ALONE  # the role that the log of the server told of
        self.feeding.counted = self._weigh
        for name in ("min-replicas-to-write", "min-replicas-max-lag"):
            server.config.on(name, self._weigh)
        self._upstreams = Upstreams(server)
        for name in ("replicate-before-reply", "replicate-timeout"):
            server.config.on(name, self._confirm)

    @property
    def role(self) -> Role:
        """The role that the file REPLICA states."""
        return ALONE if self._roles is None else self._roles.role

    @property
    def upstream(self) -> Upstream | None:
        """The connection to the leader, as CLIENT LIST shows it; None while there is none."""
        return self._upstreams.now()

    # --- the role

    def start(self) -> None:
        """Follow, if the store is a follower, or if the option `replicaof` says so and the store has no role yet.

        Raises TidelogError.
        """
        if self._roles is None:
            return
        self._roles.changed.append(self._changed)
        wanted = self._told_leader = self._server.config["replicaof"]
        if wanted:
            host, _, port = wanted.rpartition(" ")
            take_up(self._core, host, int(port), "followed by the option replicaof")
        self._core.served_at = self.announced
        if (
            self._core.link is not None
        ):  # the owner's, which has said so far that nobody serves this store
            with self._core.lock:
                self._roles.tell()
        self._take_role()

    def follow(self, host: str, port: int, replace: bool) -> None:
        """Follow the leader at this address; `replace`: a person has agreed to give up records that it lacks.

        Raises TidelogError.
        """
        assert self._roles is not None
        reason = "followed by REPLICAOF" + " with REPLACE" * replace
        self._roles.follow(host, port, reason, consent=replace)

    def promote(self) -> None:
        """Lead. Raises TidelogError."""
        assert self._roles is not None
        self._roles.promote("promoted by REPLICAOF NO ONE")

    def _changed(self) -> None:
        """[lock] The role changed. From any thread."""
        try:
            self._server.loop.call_soon_threadsafe(self._take_role)
        except RuntimeError:
            pass  # the loop is closed

    def _take_role(self) -> None:
        """Do what the store's role asks for: dial, or hang up."""
        core, server = self._core, self._server
        role = self.role
        self._say(role)
        turned = core.following is not None and not self.following
        if self._told_leader and self.following and role.kind == "leader":
            # The file is the operator's, so nobody but a command changes it.
            _logger.warning(
                "%s was told at its start to follow %s, and leads now: take the option `replicaof` out. A copy that is "
                "restored in its place has no role, and would follow",
                *(core.root, self._told_leader.replace(" ", ":")),
            )
            self._told_leader = ""
        self.following = core.following is not None
        server.config.lead(f"{role.host} {role.port}" if self.following else "")
        if self.link is not None:
            self.link.stop()
            self.link = core.link = None
        self.handing.role_changed()
        if turned:
            # The heir's history goes on from this one, so other followers stay.
            if not role.hands_over:
                self.feeding.stop("this leader has become a follower")
            for session in list(server.sessions.values()):
                session.seen.begin_anew(session.connection.log, session.wrote_lsn)
                session.wrote_lsn = 0  # what WAIT counts is in another history now
                session.expel()
        self._dial()
        self._weigh()
        self._confirm()
        self._settle_all()

    def _say(self, role: Role) -> None:
        if role == self._said:
            return
        self._said = role
        does = {
            "leader": f"leads, in generation {role.generation} or a later one",
            "follower": f"follows {role.host}:{role.port}",
            "handing over": f"hands over to {role.host}:{role.port}, and takes no writes until that has ended",
        }[role.kind]
        _logger.info("%s %s (%s)", self._core.root, does, role.reason)

    def _dial(self) -> None:
        """Dial the leader, or the store that was told to lead. While its answer comes over its own link, do not ask."""
        core = self._core
        if self.following and core.link is None and not self.handing.under_way:
            self.link = core.link = Link(core, self, self.feeding.moved)

    def stop(self) -> None:
        """The server shuts down."""
        self.handing.stop()
        self._core.served_at = None
        if self._roles is not None and self._changed in self._roles.changed:
            self._roles.changed.remove(self._changed)
        if self.link is not None:
            self.link.stop()
            self.link = self._core.link = None
        self.feeding.stop("the leader shuts down")
        self.feeding.offerings.end()
        self._core.acks.ask = self._core.acks.moved = nothing_waits

    # --- what a link asks

    def address(self) -> Address:
        """See `replication.link.Settings`."""
        role, config = self.role, self._server.config
        try:
            context = tls.to_leader(config)
        except ConfigError as error:
            raise LinkError(f"TLS to the leader: {error}") from error
        return Address(role.host, role.port, config["masteruser"], config["masterauth"], context)

    def announced(self) -> tuple[str, int]:
        """See `replication.link.Settings`."""
        config, port = self._server.config, self._server.listeners.port
        # As in Redis. A server with one kind of port is found there in any case.
        kinds = ("tls", "tcp") if config["tls-replication"] else ("tcp", "tls")
        known = config["replica-announce-port"] or port(kinds[0]) or port(kinds[1])
        return config["replica-announce-ip"], known

    def timeout_s(self) -> float:
        """See `replication.link.Settings`."""
        return max(float(self._server.config["repl-timeout"]), TIMEOUT_S_MIN)

    def compress(self) -> bool:
        """See `replication.link.Settings`."""
        return bool(self._server.config["repl-compression"])

    def verify_every_s(self) -> float:
        """See `replication.link.Settings`."""
        return float(self._server.config["replica-verify-every"])

    def surplus_s(self) -> float:
        """See `replication.link.Settings`."""
        return float(self._server.config["replica-surplus-seconds"])

    # --- good followers

    @property
    def good(self) -> int:
        """How many followers are connected and were heard within min-replicas-max-lag seconds."""
        seconds, now = self._server.config["min-replicas-max-lag"], self._server.loop.time()
        # whole seconds, as INFO shows them and as Redis compares them
        return sum(int(now - link.feed.heard_at) <= seconds for link in self.feeding.feeds)

    def _weigh(self, value: int = 0) -> None:
        """Count the good followers again, and tell the sessions if writes are refused from now on, or taken again.

        So no command asks how many followers there are.
        """
        config = self._server.config
        wanted = config["min-replicas-to-write"] if config["min-replicas-max-lag"] else 0
        lacking = bool(wanted) and not self.following and self.good < wanted
        if lacking != self.lacking:
            self.lacking = lacking
            _logger.warning(
                "%s followers are connected and not silent, and min-replicas-to-write is %d: writes of clients are %s",
                *(self.good, wanted, "refused" if lacking else "taken again"),
            )
            self._settle_all()

    def _confirm(self, value: int = 0) -> None:
        """Let replies wait for followers, as the options say. Those of a follower do not: its leader's do."""
        config = self._server.config
        wanted = 0 if self.following else config["replicate-before-reply"]
        self._server.turns.confirm(wanted, config["replicate-timeout"] / 1000)

    def _settle_all(self) -> None:
        for session in list(self._server.sessions.values()):
            session.settle()

    # --- commands on a follower

    @property
    def loading(self) -> bool:
        """Whether the store follows and has not had yet what its leader had: it may still be empty."""
        link = self._core.link
        return self.following and link is not None and not link.follower.caught_up

    def refusal(self, command: Command) -> bytes | None:
        """The error of a command that a follower does not run now; None if it runs. Called while `following`."""
        flags = command.flags
        if may_write(command):
            return None if self.handing.delaying else READONLY
        if self.loading and "loading" not in flags and command.name not in CHANGE_ROLE:
            return errors.LOADING
        link = self._core.link
        if (
            "stale" not in flags
            and not self._server.config["replica-serve-stale-data"]
            and (link is None or not link.up)
        ):
            return errors.MASTERDOWN
        return None
