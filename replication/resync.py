"""Resync: a follower gets a copy of its leader's data, and puts it in the place of its own.

    1. Fetch the leader's snapshot to resync/snapshots/<LSN>.<hash>/, or go on with what an earlier attempt fetched.
    2. Restore it into resync/store/: its hash is compared, and a child process walks it.
    3. Let resync/store/ take the place of the store (snapshot/swap.py), which is kept in quarantine/ unless the leader
       is known to have every record of it.

Until step 3 the follower serves what it has. Afterwards it connects again, and gets the log behind the snapshot.

The work runs in a thread of its own (`run`). The link's loop passes the bytes (`receive`, `send`).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from tidelog.aof import identity
from tidelog.aof.errors import NoSpace
from tidelog.disk import recipe
from tidelog.disk.real import OUT_OF_SPACE
from tidelog.engine.errors import CorruptBlock
from tidelog.replication.errors import LinkError, NoRoom, ProtocolError
from tidelog.replication.fetch import Fetch
from tidelog.replication.handshake import Resync
from tidelog.replication.offer import FILES
from tidelog.replication.protocol import DATA_FILE, MANIFEST_FILE, Snapshot
from tidelog.snapshot import swap
from tidelog.snapshot.copying import copy_snapshot
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotError
from tidelog.snapshot.manifest import Manifest
from tidelog.snapshot.place import LocalPlace
from tidelog.snapshot.portable import Advance, directory_name
from tidelog.snapshot.restore import restore
from tidelog.snapshot.sealed import read_manifest
from tidelog.store.commit.core import Core
from tidelog.store.errors import OutOfSpace
from tidelog.store.role import Role

LEAST_BYTES: Final = 64 << 10
POLL_S: Final = 0.05
COPIES: Final = 2  # of the leader's data, besides the present store: what is fetched, and what is restored from it
NUMBERS: Final = {name: number for number, name in FILES.items()}

# The phases.
WAITING: Final = "waiting for the leader's snapshot"
FETCHING: Final = "fetching the leader's data"
CHECKING: Final = "checking the leader's data"
SWAPPING: Final = "putting the leader's data in place"

_logger = logging.getLogger("tidelog.replication")


class LinkPlace:
    """The leader's snapshot as a `snapshot.place.Place`. `read_at` waits for the link; any thread may call `fail`.

    wake   called when there is something to send; from any thread
    """

    least = LEAST_BYTES

    def __init__(self, name: str, fetch: Fetch, wake: Callable[[], object]) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._fetch, self._wake = fetch, wake
        self._changed = threading.Condition()
        self._unsent: list[bytes] = []

    # --- for the link

    def receive(self, data: bytes, now: float) -> None:
        """Bytes came. Raises ProtocolError."""
        with self._changed:
            self._fetch.receive(data, now)
            self._changed.notify_all()

    def send(self) -> bytes:
        """The bytes to send now."""
        with self._changed:
            data = b"".join(self._unsent)
            self._unsent.clear()
        return data

    def fail(self, error: BaseException) -> None:
        """Nothing more will come. The first error is the reason."""
        with self._changed:
            self.failure = self.failure or error
            self._changed.notify_all()

    # --- for the thread

    def offer(self) -> Snapshot:
        """The snapshot that the leader offers. Waits for it. Raises LinkError."""
        with self._changed:
            while (found := self._fetch.snapshot) is None:
                self._wait()
            return found

    def size(self, file: str) -> int:
        snapshot = self.offer()
        sizes = {MANIFEST_FILE: snapshot.manifest_bytes, DATA_FILE: snapshot.data_bytes}
        return sizes[NUMBERS[file]]

    def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
        number, fetch = NUMBERS[file], self._fetch
        nbytes = max(min(nbytes, self.size(file) - offset), 0)
        with self._changed:
            if nbytes and not fetch.wanted(number, offset):
                self._unsent.append(fetch.want(number, offset))
                self._wake()
            while nbytes:
                full = fetch.full
                found = fetch.take(number, offset, nbytes)
                if found is not None:
                    if full:
                        self._wake()  # the link may read again
                    return found
                self._wait()
        return b""

    def names(self) -> list[str]:
        return sorted(NUMBERS)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()  # the leader holds a lease as long as the link is up

    def close(self) -> None: ...

    def _wait(self) -> None:
        if self.failure is not None:
            raise LinkError(str(self.failure)) from self.failure
        self._changed.wait()


class Resyncing:
    """One resync, over one connection.

    phase    WAITING, FETCHING, CHECKING or SWAPPING
    size     bytes of the snapshot's data; 0 before it is known
    done     bytes of it that are there: fetched now or before
    """

    def __init__(
        self, core: Core, asked: Resync, now: float, leader: str, *, compress: bool = False
    ) -> None:
        """`leader` names it in messages. `compress`: it was told that it may."""
        assert core.roles is not None
        self.phase = WAITING
        self.size = self.done = 0
        # called from any thread: `send` has something
        self.wake: Callable[[], object] = lambda: None
        self._core, self._roles, self._asked = core, core.roles, asked
        self._fetch = Fetch(now, compress=compress)
        self._place = LinkPlace(f"the snapshot of {leader}", self._fetch, lambda: self.wake())
        self._cancelled: BaseException | None = None
        with core.lock:
            if core.trouble is not None:
                core.mend()
            core.log.flush()
            self._role: Role = core.roles.role
            self._last = core.log.written_lsn

    # --- for the link

    def receive(self, data: bytes, now: float) -> None:
        """Bytes came from the leader. Raises ProtocolError, and LinkError if it has ended the link."""
        self._place.receive(data, now)
        if self._fetch.bye is not None:
            raise LinkError(f"the leader ended the link: {self._fetch.bye}")

    def send(self, now: float) -> bytes:
        """The bytes to send now."""
        log = self._core.log
        return self._place.send() + self._fetch.ack(log.written_lsn, log.synced_lsn, now)

    @property
    def full(self) -> bool:
        """Whether so much waits to be written that no more is to be read."""
        return self._fetch.full

    @property
    def leader_lsn(self) -> int:
        """The leader's last LSN, by its newest BEAT."""
        return self._fetch.last_lsn

    def fail(self, error: BaseException) -> None:
        """The link is down. A snapshot that was fetched whole is still used."""
        self._place.fail(error)

    def cancel(self, error: BaseException) -> None:
        """End it: the store leads, follows another leader, or is closed."""
        self._cancelled = self._cancelled or error
        self._place.fail(error)

    # --- the thread

    def run(self) -> None:
        """Do the work. Afterwards the store is the copy, or an error is raised and it is as before.

        Raises ReplicationError, TidelogError, AofError, OSError.
        """
        while not self._roles.copying.acquire(timeout=POLL_S):
            self._check()  # an earlier one has still to notice that it was cancelled
        try:
            self._run()
        except CorruptBlock as error:
            raise SnapshotDamaged(self._place.name, str(error)) from error
        except (OSError, NoSpace, OutOfSpace) as error:
            if isinstance(error, OSError) and error.errno not in OUT_OF_SPACE:
                raise
            raise NoRoom(
                f"{self._core.root}: the disk has no room for a copy of the leader's data, which needs up to "
                f"{COPIES} times {self.size} bytes ({self.phase}: {error}). The store is as before, and goes on when "
                "there is room"
            ) from error
        finally:
            self._roles.copying.release()

    def _run(self) -> None:
        core, roles, place = self._core, self._roles, self._place
        disk, root = roles.disk, core.root
        offer = place.offer()
        resync = root / identity.RESYNC
        copies = resync / identity.SNAPSHOTS
        # Two snapshots of one LSN may differ, and a copy of one cannot be continued with the other.
        target = copies / f"{directory_name(offer.lsn)}.{offer.blake2b[:8].hex()}"
        for directory in (resync, copies):
            recipe.make_directory(disk, directory)
        for name in disk.listdir(copies):
            if name != target.name:
                recipe.remove_tree(disk, copies / name)
        # STORE goes first: what is left of a store is none.
        recipe.remove_tree(disk, root / swap.NEW, [identity.NAME])
        self.size = offer.data_bytes
        copied = LocalPlace(disk, target)
        try:
            manifest = self._manifest(offer)
            copy_snapshot(place, copied, self._progress)
            self.phase, self.done = CHECKING, self.size
            restored = restore(disk, target, root / swap.NEW, progress=self._progress)
        except SnapshotError:
            # Whatever is wrong, on either side: fetch all of it anew.
            recipe.remove_tree(disk, target)
            raise
        finally:
            copied.close()
        self._check()
        self.phase = SWAPPING
        # Lives alone do not prove that the leader has these records: a cloned machine goes on in the same life.
        asked = self._asked
        proven = roles.uuid == manifest.uuid and asked.same and asked.shared >= self._last
        proven = proven and roles.differs is None
        more = self._last and not proven
        aside = swap.kept(self._last, secrets.randbits(64)) if more else swap.OLD
        roles.swap(swap.Swap(manifest.uuid, restored.lsn + 1, aside), self._role, self._last)
        roles.agreed, roles.differs = restored.lsn, None
        _logger.warning(
            "%s holds a copy of the data of its leader %s:%d by now, through LSN %d (%s)%s",
            *(root, self._role.host, self._role.port, restored.lsn, self._asked.reason),
            f"; what it held before is kept in {root / aside}" if more else "",
        )

    def _manifest(self, offer: Snapshot) -> Manifest:
        """The manifest of the snapshot that is offered. Raises ProtocolError if it describes another one."""
        found = read_manifest(self._place)
        if found.uuid != self._asked.uuid or offer != (
            *(found.lsn, found.position.crc, offer.manifest_bytes, found.data_bytes),
            bytes.fromhex(found.blake2b),
        ):
            raise ProtocolError("its snapshot is not the one that it offered")
        return found

    def _check(self) -> None:
        if self._cancelled is not None:
            raise LinkError(str(self._cancelled)) from self._cancelled
        self._core.check_open()

    @contextmanager
    def _progress(self, what: str, nbytes: int) -> Iterator[Advance]:
        self._check()
        fetching = what == "copying" and self.phase == WAITING
        if fetching:
            self.phase = FETCHING

        def advance(count: int) -> None:
            self._check()
            if fetching:
                self.done += count

        yield advance
