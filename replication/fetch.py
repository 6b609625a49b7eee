"""Fetch: a follower's side of a link over which it fetches a snapshot. Bytes in, bytes out; no socket, no clock.

`want` begins a file at an offset; DATA then comes in order, and `take` gives it. DATA under way for an earlier
WANT is passed over. A shell that reads its socket only while the fetch is not `full` holds about FULL_BYTES.
"""

from __future__ import annotations

from typing import Final

from tidelog.replication.errors import ProtocolError
from tidelog.replication.intake import ACK_SECONDS_MAX
from tidelog.replication.protocol import (
    FROM_LEADER,
    FROM_LEADER_PACKED,
    MANIFEST_FILE,
    Ack,
    Beat,
    Bye,
    Data,
    Frames,
    Messages,
    Snapshot,
    Want,
)
from tidelog.snapshot.manifest import BYTES_MAX

FULL_BYTES: Final = 8 << 20  # two pieces of a copy


class Fetch:
    """The snapshot that a leader offers, as its follower sees it.

    snapshot   what is offered; None before the leader has it at hand
    last_lsn   the leader's last LSN, by its newest BEAT
    bye        why the leader ended the link; None while it has not
    heard_at   when bytes came last
    received   bytes of files that came in order
    """

    def __init__(self, now: float, *, compress: bool = False) -> None:
        """`compress`: the leader was told that it may."""
        self.snapshot: Snapshot | None = None
        self.last_lsn = 0
        self.bye: str | None = None
        self.heard_at = now
        self.received = 0
        self._messages = Messages(FROM_LEADER_PACKED if compress else FROM_LEADER)
        self._file = 0  # that was wanted; 0 = none
        self._at = 0  # offset behind what came of it
        self._data = bytearray()  # that came and was not taken: the bytes before `_at`
        self._stray = 0  # bytes that came for an earlier WANT since the last one
        self._stray_max = 0
        self._in_order = True
        self._acked_at: float | None = None

    @property
    def buffered(self) -> int:
        """Bytes that came and were not taken."""
        return len(self._data)

    @property
    def full(self) -> bool:
        """Whether to stop reading the socket until `take` was called."""
        return len(self._data) > FULL_BYTES

    def receive(self, data: bytes, now: float) -> None:
        """Take in bytes from the leader. Raises ProtocolError."""
        self.heard_at = now
        self._messages.put(data)
        for message in self._messages:
            if self.bye is not None:
                raise ProtocolError("it sent a message behind its BYE")
            match message:
                case Beat():
                    self.last_lsn = max(self.last_lsn, message.last)
                case Bye(reason=reason):
                    self.bye = reason
                case Snapshot():
                    self._offered(message)
                case Data():
                    self._came(message)
                case Frames():
                    raise ProtocolError("it sends its log although it has offered a snapshot")

    def want(self, file: int, offset: int) -> bytes:
        """The message that asks for a file from `offset` on. Bytes that were not taken are dropped."""
        assert self.snapshot is not None and 0 <= offset <= self._size(file)
        if self._file:
            self._stray_max = self._size(self._file)
            self._in_order, self._stray = False, 0
        self._file, self._at = file, offset
        self._data.clear()
        return Want(file, offset).pack()

    def take(self, file: int, offset: int, nbytes: int) -> bytes | None:
        """These bytes, if all of them are there; None if they have yet to come.

        The caller has wanted the file from `offset` on, or has taken all before it since.
        """
        assert self.wanted(file, offset)
        if len(self._data) < nbytes:
            return None
        found = bytes(self._data[:nbytes])
        del self._data[:nbytes]
        return found

    def wanted(self, file: int, offset: int) -> bool:
        """Whether the next bytes to take are those at `offset`."""
        return file == self._file and offset == self._at - len(self._data)

    def ack(self, written: int, fsynced: int, now: float) -> bytes:
        """A sign of life, once a second: how far the follower's own log goes."""
        if self._acked_at is not None and now - self._acked_at < ACK_SECONDS_MAX:
            return b""
        self._acked_at = now
        return Ack(written, min(fsynced, written)).pack()

    def _offered(self, snapshot: Snapshot) -> None:
        if self.snapshot is not None:
            raise ProtocolError("it offered two snapshots")
        if not 0 < snapshot.manifest_bytes <= BYTES_MAX or not snapshot.lsn:
            raise ProtocolError("it offered a snapshot without content")
        self.snapshot = snapshot

    def _came(self, data: Data) -> None:
        if not self._file:
            raise ProtocolError("it sent a part of a file that was not wanted")
        if (data.file, data.offset) != (self._file, self._at):
            self._stray += len(data.data)
            if self._in_order or self._stray > self._stray_max:
                raise ProtocolError(
                    f"it sent byte {data.offset} of file {data.file} instead of byte {self._at} of file {self._file}"
                )
            return
        self._in_order = True
        self._at += len(data.data)
        if self._at > self._size(self._file):
            raise ProtocolError(
                f"it sent more than the {self._size(self._file)} bytes of a file that it has offered"
            )
        self.received += len(data.data)
        self._data += data.data

    def _size(self, file: int) -> int:
        assert self.snapshot is not None
        snapshot = self.snapshot
        return snapshot.manifest_bytes if file == MANIFEST_FILE else snapshot.data_bytes
