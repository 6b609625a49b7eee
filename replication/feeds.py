"""Feeds: the followers that are connected to a store. How far they have come is told to `Core.acks`.

Bytes in, bytes out, as the feeds themselves: the server gives each follower a `Sink`, calls `pump` when there may be
something to send, and `received` when something arrived. Only the event loop's thread uses this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tidelog.aof import identity
from tidelog.aof.epochs import generation
from tidelog.aof.errors import AofError, Released, Vanished
from tidelog.aof.log import FSYNCED, WRITTEN
from tidelog.aof.seek import Good, Source, position_after
from tidelog.aof.segment import Position
from tidelog.replication.errors import ReplicationError
from tidelog.replication.feed import Feed, SourceLike
from tidelog.replication.handshake import Continue, Follow
from tidelog.replication.history import NoFrame, Upstream, judge
from tidelog.replication.protocol import Bye
from tidelog.store.commit.attached import Changing
from tidelog.store.commit.core import Core

AHEAD_BYTES_MAX: Final = 1 << 20  # given to a connection and not taken by the system yet
AHEAD_BYTES_MIN: Final = 16 << 10
# Of all connections. With more than 2048 of them, each has the least all the same.
AHEAD_BYTES_ALL: Final = 32 << 20
# A follower gives a sign of life every second. A second connection with the same ID replaces one that was silent for
# so long; before that it is refused.
SEEN_MAX: Final = 1000  # followers that are remembered while they are away, besides those connected
SILENT_S: Final = 2.5

_logger = logging.getLogger("tidelog.replication")


class Sink(Protocol):
    """The connection to one follower."""

    @property
    def unsent(self) -> int:
        """Bytes that were written to it and that the system has not taken yet."""

    def write(self, data: bytes) -> None:
        """Send bytes behind those already written."""

    def close(self) -> None:
        """Close when everything written is sent."""

    def kill(self) -> None:
        """Close at once."""


class End(NamedTuple):
    """The part of the log that may be shipped at one moment, as arguments of `Feed.send`, in their order.

    now_ms    the leader's clock, unix ms
    place     `Log.good` of the level that the fsync policy promises
    last      LSN of the last record that was written, and the header checksum of its frame
    good      the last LSN that holds that level
    """

    now_ms: int
    place: Good
    last: tuple[int, int]
    good: int


class Downstream:
    """One connected follower.

    id            of its copy of the store
    host, port    where it serves clients, as INFO shows it
    closed        called when the link has ended
    """

    def __init__(
        self,
        id: bytes,
        host: str,
        port: int,
        feed: Feed,
        sink: Sink,
        closed: Callable[[], object],
    ) -> None:
        self.id, self.host, self.port = id, host, port
        self.feed, self.sink, self.closed = feed, sink, closed

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Newer(NamedTuple):
    """A copy of this store that was promoted after it, and wanted to follow it."""

    name: str
    generation: int

    def __str__(self) -> str:
        return f"{self.name}, generation {self.generation}"


class _Seen:
    """A follower that is or was connected.

    lsn     the last one that it has fsynced
    at      when it was heard last
    acked   the last LSN that it has written
    """

    def __init__(self, name: str, lsn: int, at: float) -> None:
        self.name, self.lsn, self.at = name, lsn, at
        self.acked = lsn


def _itself(source: Source) -> SourceLike:
    return source


class _UntilRewound:
    """The bytes of a source, until this store's own log is rewound. Then the source is at a place of another history,
    and the follower has to shake hands again."""

    def __init__(self, source: SourceLike, roles: Changing, rewinds: int, directory: Path) -> None:
        self._source, self._roles = source, roles
        self._rewinds, self._directory = rewinds, directory

    def read(self, nbytes_max: int, good: Good) -> bytes:
        """As `SourceLike.read`. Raises Vanished if the log was rewound."""
        if self._roles.rewinds != self._rewinds:
            raise Vanished(self._directory)
        return self._source.read(nbytes_max, good)

    def at_end(self, good: Good) -> bool:
        """As `SourceLike.at_end`."""
        return self._source.at_end(good)


class Feeds:
    """See the module docstring. Iterating gives the followers, in the order of their connection.

    begun    links so far
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.begun = 0
        self._newer = Newer("", 0)
        self._links: dict[bytes, Downstream] = {}
        self._seen: dict[bytes, _Seen] = {}
        self._places: dict[bytes, tuple[int, int]] = {}  # see `_remember`

    def __iter__(self) -> Iterator[Downstream]:
        return iter(list(self._links.values()))

    def __len__(self) -> int:
        return len(self._links)

    # --- the handshake

    def answer(
        self, follow: Follow, now: float, through: Callable[[Source], SourceLike] = _itself
    ) -> tuple[bytes, Feed | None]:
        """The line that answers a request, and the feed if that is CONTINUE. Reads the log, from any thread.

        through    makes what the feed reads from of the part of the log that it gets
        Raises AofError, OSError, TidelogError.
        """
        core, roles = self._core, self._core.roles
        assert roles is not None  # a store that is open read-only ships nothing
        directory = core.root / identity.AOF
        with core.lock:
            rewinds = roles.rewinds
            if core.trouble is not None:
                core.mend()
            log, following = core.log, core.following
            if following is not None and follow.heir == bytes.fromhex(roles.role.id):
                roles.decline()  # before the answer, and under the lock that a promotion takes
            if following is None:
                log.begin_life()  # before its first frame is shipped
            log.flush()
            last = log.written_lsn
            lives = [] if core.checkpoints is None else core.checkpoints.epochs[::-1]
        if core.durability.level() == FSYNCED:
            # Perhaps no other write follows for a long time, and the follower has caught up only with `last`.
            log.sync_through(last)
        elif following is None:
            # Under every policy a follower knows no life that a power cut takes from its leader. Else the surplus that
            # it then has would begin a life, as that of a second leader does, and only a person could give it up.
            log.sync_through(lives[0].lsn)
        found: dict[int, Position] = {}

        def frame_at(lsn: int) -> int | NoFrame:
            try:
                position = position_after(roles.disk, directory, roles.uuid, lsn)
            except Released:
                return NoFrame.RELEASED
            if position is None:
                return NoFrame.INSIDE
            found[lsn] = position
            return position.crc

        def known_at(lsn: int) -> int | None:
            at, crc = self._places.get(follow.id, (0, 0))
            return crc if at == lsn else None

        reply = judge(
            Upstream(
                roles.uuid,
                bytes.fromhex(roles.role.id),
                lives,
                last,
                frame_at,
                following is not None,
                known_at,
            ),
            follow,
        )
        if not isinstance(reply, Continue):
            return reply.line(), None
        behind = Source(roles.disk, directory, roles.uuid, found[follow.lsn])
        begin = self._log_bytes() - behind.lag_bytes(log.good(WRITTEN))
        shipped = _UntilRewound(through(behind), roles, rewinds, directory)
        return reply.line(), Feed(
            *(shipped, last, now, rewinds),
            compress=follow.compress,
            log_bytes=self._log_bytes,
            begin=(follow.lsn, begin),
        )

    def _log_bytes(self) -> int:
        with self._core.lock:
            return self._core.log.frames_bytes

    def supersede(self, name: str, found: int) -> None:
        """A copy of this store with a higher generation, `found`, was refused: its history is the one to follow."""
        newer = Newer(name, found)
        if newer != self._newer:
            self._newer = newer
            _logger.error(
                "%s is superseded: its copy at %s, which wanted to follow it, was promoted after it and has generation "
                "%d. Stop the writers of this store, and let it follow that copy",
                *(self._core.root, name, found),
            )

    @property
    def superseded(self) -> Newer | None:
        """The copy that was refused because of its higher generation, until this store has that generation."""
        checkpoints = self._core.checkpoints
        lives = [] if checkpoints is None else checkpoints.epochs
        if lives and generation(lives[-1].number) >= self._newer.generation:
            return None
        return self._newer if self._newer.generation else None

    # --- connections

    def rival(self, id: bytes, now: float) -> str | None:
        """Why a follower with this ID must not connect; None if it may. An old connection of it is then closed.

        Two live connections with one ID come from a copied directory: one of both is not what it claims to be.
        """
        old = self._links.get(id)
        if old is None:
            return None
        if now - old.feed.heard_at < SILENT_S:
            return (
                f"a follower with the same ID is connected from {old}. If one directory is a copy of the other, "
                "remove the file REPLICA in the copy, so that it gets an ID of its own"
            )
        self.drop(old, "the same follower has connected again")
        return None

    def add(self, link: Downstream, lsn: int, now: float) -> None:
        """A follower begins to get the frames behind `lsn`."""
        assert link.id not in self._links
        self._links[link.id] = link
        self.begun += 1
        self._core.acks.add(link.feed)
        # If it was here before, it may not have fsynced all through `lsn`, and may come back with less: after a power
        # cut, or after it has given up records.
        seen = self._seen.setdefault(link.id, _Seen(str(link), lsn, now))
        seen.lsn, seen.at, seen.acked = min(seen.lsn, lsn), now, lsn
        self._places.pop(link.id, None)
        away = [id_ for id_ in self._seen if id_ not in self._links]
        if len(away) > SEEN_MAX:
            del self._seen[min(away, key=lambda id_: self._seen[id_].at)]

    def expect(self, id: bytes, name: str, lsn: int, now: float) -> None:
        """A follower that is not connected here gets a snapshot, and then needs the log behind this LSN."""
        if id not in self._links:
            self._seen[id] = _Seen(name, lsn, now)

    def lost(self, link: Downstream) -> None:
        """The connection of a follower is gone."""
        if self._links.get(link.id) is link:
            del self._links[link.id]
        self._core.acks.remove(link.feed)
        link.closed()

    def drop(self, link: Downstream, reason: str, level: int = logging.WARNING) -> None:
        """Tell a follower why its link ends, and close it."""
        _logger.log(level, "closing the link to the follower %s: %s", link, reason)
        self.lost(link)
        link.sink.write(Bye(reason).pack())
        link.sink.close()

    def drop_all(self, reason: str) -> None:
        """End all links."""
        for link in self:
            self.drop(link, reason, logging.INFO)

    # --- bytes

    @property
    def ahead_bytes(self) -> int:
        """How much one connection may hold. Many share what few have, or strangers that read nothing cost gigabytes."""
        share = AHEAD_BYTES_ALL // max(len(self._links), 1)
        return max(AHEAD_BYTES_MIN, min(share, AHEAD_BYTES_MAX))

    def end(self) -> End:
        """[lock] What may be shipped now."""
        core = self._core
        log, landing, level = core.log, core.landing, self.level()
        return End(
            landing.tick(landing.time_ns() // 1_000_000),
            log.good(level),
            (log.written_lsn, log.chain),
            log.written_lsn if level == WRITTEN else log.synced_lsn,
        )

    def level(self) -> int:
        """The level that a frame must have before it is shipped: that of the fsync policy, or FSYNCED while a power cut
        can take the EPOCH of the log's life.

        A link begins behind an EPOCH that was synced (`answer`). But when a write breaks off, the log is recovered and
        another life begins beneath the links. A follower that has a life which its leader has lost cannot rejoin it.
        """
        core, checkpoints = self._core, self._core.checkpoints
        if core.following is None and checkpoints is not None and checkpoints.epochs:
            if checkpoints.epochs[-1].lsn > core.log.synced_lsn:
                return FSYNCED
        return core.durability.level()

    def pump(self, end: End, now: float) -> bool:
        """Send each follower what it may get, as far as its connection takes it. Returns whether there may be more."""
        more, ahead = False, self.ahead_bytes
        for link in self:
            more |= self._pump(link, end, now, ahead)
        return more

    def _pump(self, link: Downstream, end: End, now: float, ahead: int) -> bool:
        sink = link.sink
        room = ahead - sink.unsent
        if room <= 0:
            return False  # the connection calls when it has sent something
        try:
            data = link.feed.send(now, *end, room)
        except (AofError, OSError) as error:
            self.drop(link, f"the log cannot be read: {error}")
            return False
        except Exception as error:  # a fault of tidelog: the others, and the clients, go on
            _logger.exception("the log cannot be sent to the follower %s", link)
            self.drop(link, f"a fault of tidelog: {error!r}")
            return False
        if not data:
            return False
        sink.write(data)
        return not link.feed.at_end(end.place)

    def received(self, link: Downstream, data: bytes, now: float) -> None:
        """Bytes came from a follower."""
        before = link.feed.acked_lsn, link.feed.fsynced_lsn
        try:
            link.feed.receive(data, now)
        except ReplicationError as error:
            self.drop(link, str(error))
            return
        seen = self._seen[link.id]
        seen.at, seen.lsn = now, max(seen.lsn, link.feed.fsynced_lsn)
        seen.acked = link.feed.acked_lsn or seen.acked
        if (link.feed.acked_lsn, link.feed.fsynced_lsn) != before:
            self._core.acks.tell()

    def check(self, now: float, timeout_s: float) -> None:
        """Close the links of followers that have been silent for so long."""
        for link in self:
            if link.feed.overdue(now, timeout_s):
                self.drop(link, f"it was silent for {timeout_s:g} s")

    def kept(self, now: float, ttl_s: float) -> list[tuple[str, int]]:
        """As `needed`, for a look that changes nothing."""
        return [
            (seen.name, seen.lsn)
            for id_, seen in list(self._seen.items())
            if id_ in self._links or now - seen.at <= ttl_s
        ]

    def needed(self, now: float, ttl_s: float) -> list[tuple[str, int]]:
        """(name, LSN) of all followers that were here less than `ttl_s` ago: each needs the log behind its LSN.

        Called before a part of the log is released, from any thread.
        """
        for id_, seen in list(self._seen.items()):
            if id_ not in self._links:
                self._remember(id_, seen.acked)
                if now - seen.at > ttl_s:
                    self._seen.pop(id_, None)
        return [(seen.name, seen.lsn) for seen in list(self._seen.values())]

    def _remember(self, id: bytes, lsn: int) -> None:
        """Remember the checksum at the last LSN that a follower has acknowledged, before the log there is released.

        If the follower comes back with just that, and only a copy of the leader's data helps it, both sides know that
        its own data may be removed.
        """
        roles = self._core.roles
        assert roles is not None
        if self._places.get(id, (0, 0))[0] == lsn:
            return
        try:
            found = position_after(roles.disk, self._core.root / identity.AOF, roles.uuid, lsn)
        except (AofError, OSError):
            return  # it is gone, so the follower keeps its data
        if found is not None:
            self._places[id] = found.lsn, found.crc
            if len(self._places) > SEEN_MAX:
                self._places.pop(next(iter(self._places)), None)

    # --- confirmations (store/acks.py)

    def count(self, lsn: int, fsynced: bool) -> int:
        """How many followers have written and applied, or fsynced, all records through `lsn`."""
        return self._core.acks.count(self._core.log, lsn, fsynced)

    def ask(self) -> None:
        """Let the next `pump` ask all followers how far they are."""
        for link in self._links.values():
            link.feed.ask()
