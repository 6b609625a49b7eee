"""Offer: a leader's side of a link that ships a snapshot instead of the log. Bytes in, bytes out; no socket, no clock.

After RESYNC the follower waits until the leader has a snapshot at hand (`offered`), and is kept alive by BEATs. Then it
gets SNAPSHOT, asks for the two files with WANT, and gets DATA from the offset it named to the end of the file. A later
WANT replaces an earlier one. The shell reads the files: `need` says what comes next, `put` takes it.

`choose` finds or makes the snapshot. Each follower's offer holds a lease of it, so that it is not deleted, and with it
the log behind it is kept.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.aof import identity
from tidelog.aof.errors import BeyondEnd, Released
from tidelog.aof.seek import position_after
from tidelog.replication.errors import ProtocolError
from tidelog.replication.feed import BEAT_SECONDS, PACK_BYTES_MAX
from tidelog.replication.protocol import (
    DATA_FILE,
    FROM_FOLLOWER,
    MANIFEST_FILE,
    OVERHEAD,
    SLICE_BYTES_MAX,
    Beat,
    Data,
    Messages,
    Snapshot,
    Want,
)
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot import portable
from tidelog.store.commit.core import Core

PIECE_BYTES: Final = 1 << 20  # read at a time
FILES: Final = {MANIFEST_FILE: manifests.NAME, DATA_FILE: identity.DATA}
_DATA_OVERHEAD: Final = OVERHEAD + 9  # of a DATA message: its frame, file and offset


class Need(NamedTuple):
    """Bytes of a file that are to be read next."""

    file: int
    offset: int
    nbytes: int


class Offer:
    """One follower that fetches a snapshot, as its leader sees it.

    snapshot   what it was offered; None before
    heard_at   when bytes came last
    compress   whether to compress the files
    """

    def __init__(self, now: float, *, compress: bool = False) -> None:
        """`compress`: both sides want it."""
        self.compress = compress
        self.snapshot: Snapshot | None = None
        self.heard_at = now
        self._messages = Messages(FROM_FOLLOWER)
        self._beat_at = now  # when the next BEAT is due
        self._told = False  # SNAPSHOT was sent
        self._file = 0  # that the follower wants; 0 = none
        self._at = 0  # offset of the next byte to send
        self._ahead = memoryview(b"")  # bytes from there that were read

    def offered(self, snapshot: Snapshot) -> None:
        """The snapshot is at hand."""
        assert self.snapshot is None
        self.snapshot = snapshot

    def need(self) -> Need | None:
        """The bytes to read next; None if there are none now."""
        left = self._size() - self._at
        if self._ahead or left <= 0:
            return None
        return Need(self._file, self._at, min(PIECE_BYTES, left))

    def put(self, need: Need, data: bytes) -> None:
        """The bytes that were needed. They are dropped if the follower wants others by now."""
        if (need.file, need.offset) == (self._file, self._at) and not self._ahead:
            self._ahead = memoryview(data)

    def send(
        self, now: float, now_ms: int, last: tuple[int, int], good_lsn: int, room: int
    ) -> bytes:
        """The next messages, about `room` bytes; b"" if there are none. The arguments are those of `Feed.send`."""
        parts: list[bytes] = []
        if now >= self._beat_at:
            parts.append(Beat(now_ms, *last, good_lsn).pack())
            self._beat_at = now + BEAT_SECONDS
        if self.snapshot is not None and not self._told:
            parts.append(self.snapshot.pack())
            self._told = True
        if self.compress:
            room = min(room, PACK_BYTES_MAX)
        while self._ahead and room > _DATA_OVERHEAD:
            piece = self._ahead[: min(SLICE_BYTES_MAX, room - _DATA_OVERHEAD)]
            parts.append(Data(self._file, self._at, bytes(piece)).pack(compress=self.compress))
            self._at += len(piece)
            self._ahead = self._ahead[len(piece) :]
            room -= len(piece) + _DATA_OVERHEAD
        return b"".join(parts)

    def receive(self, data: bytes, now: float) -> None:
        """Take in bytes from the follower. Its ACKs are signs of life. Raises ProtocolError."""
        self.heard_at = now
        self._messages.put(data)
        for found in self._messages:
            if isinstance(found, Want):
                self._wanted(found)

    def overdue(self, now: float, timeout: float) -> bool:
        """Whether nothing came for `timeout` seconds."""
        return now - self.heard_at > timeout

    def _wanted(self, want: Want) -> None:
        if not self._told:
            raise ProtocolError("it wants a file before it was offered a snapshot")
        self._file, self._at, self._ahead = want.file, want.offset, memoryview(b"")
        if want.offset > self._size():
            raise ProtocolError(
                f"it wants byte {want.offset} of a file that has {self._size()} bytes"
            )

    def _size(self) -> int:
        if self.snapshot is None or not self._file:
            return 0
        if self._file == MANIFEST_FILE:
            return self.snapshot.manifest_bytes
        return self.snapshot.data_bytes


def choose(core: Core, least: int) -> portable.Snapshot:
    """The newest kept snapshot that this store's log continues, or a new one. Slow: call it in a thread.

    least   the last LSN that the follower must not fall behind
    Raises CheckpointFailed, AofError, OSError.
    """
    roles, checkpoints = core.roles, core.checkpoints
    assert roles is not None and checkpoints is not None
    directory = core.root / identity.SNAPSHOTS
    for found in reversed(portable.snapshots(roles.disk, directory)):
        if (
            isinstance(found, portable.Snapshot)
            and found.lsn >= least
            and _continued(core, found.manifest)
        ):
            return found._replace(existed=True)
    return checkpoints.snapshot(passing=True)


def _continued(core: Core, manifest: manifests.Manifest) -> bool:
    """Whether the log goes on behind the snapshot."""
    roles = core.roles
    assert roles is not None
    if manifest.uuid != roles.uuid:
        return False
    try:
        at = position_after(roles.disk, core.root / identity.AOF, roles.uuid, manifest.lsn)
    except (Released, BeyondEnd):
        return False
    return at is not None and at.crc == manifest.position.crc
