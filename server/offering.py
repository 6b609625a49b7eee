"""Offering: a follower's connection over which it fetches a snapshot, because the log cannot serve it.

The leader takes the newest kept snapshot that its log continues, or makes one, in a thread, and holds a lease of it as
long as the link is up. The files are read by threads, a piece at a time, only as fast as the follower takes them.

The log behind the snapshot is kept as long as the snapshot is. When the link ends, the follower counts as one that was
here with the snapshot's LSN: what it needs next is kept for it as for any follower that is away.

A snapshot that was made for this only is deleted when no follower has used it for SPARE_S. So a follower whose link
breaks still finds it. It does not count as one of the snapshots that the store keeps (`keep-snapshots`), unless a user
asks for a snapshot of the same LSN. The disk says whose it is (snapshot/passing.py): it goes when the server ends, or
else at the next open of the store; a server of an open store takes over what was left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import AofError
from tidelog.replication.errors import ProtocolError
from tidelog.replication.feeds import AHEAD_BYTES_MAX, End, Sink
from tidelog.replication.handshake import Follow
from tidelog.replication.offer import FILES, Need, Offer, choose
from tidelog.replication.protocol import MANIFEST_FILE, Bye, Snapshot
from tidelog.server.saving import in_thread
from tidelog.server.shaking import Shaking
from tidelog.snapshot.errors import SnapshotGone
from tidelog.snapshot.place import LocalPlace
from tidelog.store.commit.core import Core
from tidelog.store.errors import TidelogError
from tidelog.store.threads import seen

SPARE_S: Final = 60.0
TICK_S: Final = 0.5
ROOM_BYTES_MIN: Final = 64 << 10
ATTEMPTS: Final = 5  # to hold a snapshot that is pruned again and again

_logger = logging.getLogger("tidelog.replication")


class LeasedSnapshot(NamedTuple):
    """A snapshot with a lease of it.

    made    it did not exist before
    """

    snapshot: Snapshot
    path: Path
    made: bool
    place: LocalPlace
    lease: ExitStack

    def close(self) -> None:
        """Give up the lease."""
        self.place.close()
        self.lease.close()


def lease_snapshot(core: Core, least: int) -> LeasedSnapshot:
    """Choose a snapshot and hold it. Slow: call it in a thread. Raises TidelogError, AofError, OSError."""
    assert core.roles is not None
    for attempt in range(ATTEMPTS):
        found = choose(core, least)
        place = LocalPlace(core.roles.disk, found.path)
        lease = ExitStack()
        try:
            lease.enter_context(place.hold())
            manifest = found.manifest
            sizes = place.size(FILES[MANIFEST_FILE]), manifest.data_bytes
            offered = Snapshot(
                manifest.lsn, manifest.position.crc, *sizes, bytes.fromhex(manifest.blake2b)
            )
            return LeasedSnapshot(offered, found.path, not found.existed, place, lease)
        except SnapshotGone:
            place.close()
            if attempt == ATTEMPTS - 1:
                raise
        except BaseException:
            place.close()
            lease.close()
            raise
    raise AssertionError("the last attempt returns or raises")


class Offering(asyncio.Protocol):
    """One follower's connection over which it fetches a snapshot, as asyncio's protocol for it.

    id      of the follower's copy of the store
    held    the snapshot; None before it is at hand
    """

    def __init__(
        self,
        core: Core,
        asked: Follow,
        least: int,
        name: str,
        sink: Sink,
        end: Callable[[], End],
        ended: Callable[[Offering, Exception | None], object],
        shaking: Shaking,
    ) -> None:
        """`end` says what may be shipped now, `ended` is called once."""
        self.id, self.name = asked.id, name
        self.held: LeasedSnapshot | None = None
        self._core = core
        self._sink, self._end, self._ended = sink, end, ended
        self._loop = asyncio.get_running_loop()
        self._offer = Offer(self._loop.time(), compress=asked.compress)
        self._open = True
        self._reading: asyncio.Future[bytes] | None = None
        self._shaking = shaking
        self._holding = self._loop.create_task(self._hold(least))
        self._holding.add_done_callback(self._on_held)
        shaking.accepted(self, self.drop)

    def __str__(self) -> str:
        return self.name

    # --- the connection

    def data_received(self, data: bytes) -> None:
        if not self._open:
            return
        self._shaking.heard(self)
        try:
            self._offer.receive(data, self._loop.time())
        except ProtocolError as error:
            self.drop(str(error))
            return
        self.pump()

    def resume_writing(self) -> None:
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        self.close(error)

    def drop(self, reason: str) -> None:
        """Tell the follower why the link ends, and end it."""
        if self._open:
            _logger.warning("closing the link to the follower %s: %s", self, reason)
            self._sink.write(Bye(reason).pack())
            self._sink.close()
            self.close(None)

    def close(self, error: Exception | None) -> None:
        """The connection is gone. Idempotent."""
        if not self._open:
            return
        self._open = False
        self._shaking.heard(self)
        if self.held is not None and self._reading is None:
            self.held.close()
        self._ended(self, error)

    def check(self, timeout_s: float) -> None:
        """Called some times a second: give a sign of life, and end a link that is silent."""
        if self._offer.overdue(self._loop.time(), timeout_s):
            self.drop(f"it was silent for {timeout_s:g} s")
        else:
            self.pump()

    # --- what it sends

    def pump(self) -> None:
        """Send what the follower may get now."""
        if not self._open:
            return
        try:
            end = self._end()
        except TidelogError as error:
            self.drop(f"the store cannot be used: {error}")
            return
        # The system may take all of it at once. Then the connection does not call `resume_writing`, so look again. With
        # less room than this it does.
        while (room := AHEAD_BYTES_MAX - self._sink.unsent) >= ROOM_BYTES_MIN:
            data = self._offer.send(self._loop.time(), end.now_ms, end.last, end.good, room)
            if not data:
                break
            self._sink.write(data)
            if self._offer.compress:
                self._loop.call_soon(self.pump)  # the next part when others had their turn
                break
        need = self._offer.need()
        if need is not None and self._reading is None and self.held is not None:
            file = FILES[need.file]
            self._reading = in_thread(
                partial(self.held.place.read_at, file, need.offset, need.nbytes)
            )
            self._reading.add_done_callback(partial(self._on_read, need))

    def _on_read(self, need: Need, reading: asyncio.Future[bytes]) -> None:
        self._reading = None
        error = reading.exception()
        if not self._open:
            assert self.held is not None
            self.held.close()
        elif error is not None:
            self.drop(f"the snapshot cannot be read: {error}")
        elif len(reading.result()) < need.nbytes:
            assert self.held is not None
            self.drop(f"the snapshot cannot be read: {self.held.path} has become shorter")
        else:
            self._offer.put(need, reading.result())
            self.pump()

    async def _hold(self, least: int) -> LeasedSnapshot | None:
        """The snapshot; None if the follower has gone before its turn."""
        async with self._shaking.snapshot_turn():
            return (
                await in_thread(partial(lease_snapshot, self._core, least)) if self._open else None
            )

    def _on_held(self, holding: asyncio.Task[LeasedSnapshot | None]) -> None:
        if holding.cancelled():
            return  # the loop ends
        error = holding.exception()
        if error is not None:
            if not isinstance(error, TidelogError | AofError | OSError):
                _logger.error("no snapshot could be made for %s", self, exc_info=error)
            self.drop(f"there is no snapshot to send: {error}")
            return
        held = holding.result()
        if held is None:
            return
        if not self._open:
            held.close()
            return
        self.held = held
        self._offer.offered(held.snapshot)
        _logger.info("the follower %s gets the snapshot %s", self, held.path)
        self.pump()


class Offerings:
    """All such connections of one server. Only the loop's thread uses it.

    needs   called with (ID, name, LSN) of followers that will need the log behind that LSN
    """

    def __init__(
        self,
        core: Core,
        end: Callable[[], End],
        needs: Callable[[bytes, str, int], object],
        shaking: Shaking,
    ) -> None:
        self._core, self._end, self._needs = core, end, needs
        self._shaking = shaking
        self._loop = asyncio.get_running_loop()
        self._links: dict[Offering, None] = {}
        # snapshots made for followers, and when they were used last
        self._made = dict.fromkeys(self._left(), self._loop.time())
        self._deleting = False
        self._next_look = 0.0
        self.begun = 0  # links so far

    def __iter__(self) -> Iterator[Offering]:
        return iter(list(self._links))

    def __len__(self) -> int:
        return len(self._links)

    def begin(self, asked: Follow, least: int, name: str, sink: Sink) -> Offering:
        """A link begins: the protocol for its connection. An older one of the same follower ends."""
        for link in list(self._links):
            if link.id == asked.id:
                link.drop("the same follower has connected again")
        link = Offering(self._core, asked, least, name, sink, self._end, self._over, self._shaking)
        self._links[link] = None
        self.begun += 1
        self._loop.call_soon(link.pump)  # behind the reply to its request
        return link

    def _over(self, link: Offering, error: Exception | None) -> None:
        self._links.pop(link, None)
        self._use(link)
        _logger.info("the follower %s is gone%s", link, f": {error}" if error else "")

    def _use(self, link: Offering) -> None:
        held = link.held
        if held is not None:
            self._needs(link.id, link.name, held.snapshot.lsn)
            if held.made or held.path in self._made:
                self._made[held.path] = self._loop.time()

    def tick(self, timeout_s: float) -> None:
        """Called `hz` times a second."""
        now = self._loop.time()
        if now < self._next_look or not (self._links or self._made):
            return
        self._next_look = now + TICK_S
        for link in list(self._links):
            self._use(link)
            link.check(timeout_s)
        spare = {path: used for path, used in self._made.items() if now - used > SPARE_S}
        if spare and not self._deleting:
            self._deleting = True
            deleting = in_thread(partial(self._delete, spare))
            deleting.add_done_callback(partial(self._deleted, spare))

    def _left(self) -> list[Path]:
        checkpoints = self._core.checkpoints
        try:
            return [] if checkpoints is None else checkpoints.passing()
        except OSError:
            return []  # the next open of the store finds them

    def _delete(self, paths: Iterable[Path]) -> set[Path]:
        """Returns those that are deleted, or belong to the store by now."""
        checkpoints = self._core.checkpoints
        assert checkpoints is not None
        return {path for path in paths if checkpoints.delete_passing(path)}

    def _deleted(self, spare: dict[Path, float], deleting: asyncio.Future[set[Path]]) -> None:
        self._deleting = False
        error = deleting.exception()
        if error is not None:
            _logger.warning(
                "a snapshot that followers no longer need could not be deleted: %s", error
            )
        gone = set() if error is not None else deleting.result()
        for path, used in spare.items():
            if self._made[path] != used:
                continue  # a follower has used it meanwhile
            if path in gone:
                del self._made[path]
            else:
                self._made[path] = self._loop.time()  # tried again after SPARE_S

    def stop(self, reason: str) -> None:
        """End all links."""
        for link in list(self._links):
            link.drop(reason)

    def end(self) -> None:
        """The server ends, and its links have ended: what was made for them goes."""
        made, self._made = self._made, {}
        if made:
            # If that fails, the next open of the store tries again.
            in_thread(partial(self._delete, made)).add_done_callback(seen)
