"""An intake: a follower's side of one link. Bytes in, bytes out; no socket, no clock.

The shell calls `receive` with the bytes that came, `take` until it returns None, and `ack` behind that and at least
once a second. All times are seconds of one monotonic clock.

An intake holds what was received and not taken. A shell that reads its socket only while the intake is not `full` holds
at most 1 MiB and one frame, which can have 128 MiB, besides what it read last.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidelog.aof.received import BATCH_BYTES, Batch, Frames
from tidelog.replication import protocol
from tidelog.replication.errors import Parted, ProtocolError
from tidelog.replication.protocol import (
    FROM_LEADER,
    FROM_LEADER_PACKED,
    Ack,
    Beat,
    Bye,
    Data,
    Messages,
    Promote,
    Snapshot,
)

# received and not taken; a longer frame is awaited all the same
BUFFERED_BYTES_MAX: Final = 1 << 20
# Least time between two ACKs while the leader waits for what they say, and while it does not: each one wakes it.
ACK_SECONDS_ASKED: Final = 0.001
ACK_SECONDS_MIN: Final = 0.01
ACK_SECONDS_MAX: Final = 1.0
NOW_MS_MAX: Final = (1 << 63) - 1
PLACES_MAX: Final = (
    1000  # that BEATs have named and no frame has reached; later ones are not compared
)


class Intake:
    """The leader, as its follower sees it.

    beat        the newest BEAT; None before the first
    bye         why the leader ended the link; None while it has not
    promote     the leader's PROMOTE; None while it has sent none
    heard_at    when bytes came last
    lsn, crc    the last frame that was taken, or with which the link began
    """

    def __init__(
        self, uuid: bytes, lsn: int, crc: int, now: float, *, compress: bool = False
    ) -> None:
        """`compress`: the leader was told that it may."""
        self.beat: Beat | None = None
        self.bye: str | None = None
        self.promote: Promote | None = None
        self.heard_at = now
        self.lsn, self.crc = lsn, crc
        self._messages = Messages(FROM_LEADER_PACKED if compress else FROM_LEADER)
        self._frames = Frames(uuid, lsn, crc)
        self._part = 0  # bytes in which the newest `take` found no whole frame
        self._beat_at = now  # when `beat` came
        self._floor_ms = 0  # the leader's clock was at least here
        self._acked = Ack(0, 0)
        self._acked_at: float | None = None
        self._asked = False  # a BEAT came since the last ACK
        # (LSN, checksum) that BEATs named, and not compared yet
        self._places: deque[tuple[int, int]] = deque()

    @property
    def last_lsn(self) -> int:
        """The leader's last LSN, by its newest BEAT."""
        return 0 if self.beat is None else self.beat.last

    @property
    def good_lsn(self) -> int:
        """The last LSN that the leader has stored as well as its policy asks for, by its newest BEAT."""
        return 0 if self.beat is None else self.beat.good

    @property
    def buffered(self) -> int:
        """Bytes of frames that were received and not taken."""
        return self._frames.buffered

    @property
    def full(self) -> bool:
        """Whether to stop reading the socket until `take` was called. Bytes of a frame that is not whole yet do not
        count, since only reading on makes it whole."""
        return self._frames.buffered - self._part > BUFFERED_BYTES_MAX

    def receive(self, data: bytes, now: float) -> list[Snapshot | Data]:
        """Take in bytes from the leader. Returns the messages of a snapshot. Raises ProtocolError, Parted."""
        self.heard_at = now
        self._messages.put(data)
        found: list[Snapshot | Data] = []
        for message in self._messages:
            if self.bye is not None:
                raise ProtocolError("it sent a message behind its BYE")
            if self.promote is not None and not isinstance(message, Beat | Bye):
                raise ProtocolError("it goes on behind its PROMOTE")
            match message:
                case protocol.Frames(data=piece):
                    self._frames.put(piece)
                case Beat():
                    self._heard(message, now)
                case Bye(reason=reason):
                    self.bye = reason
                case Promote():
                    self.promote = message
                case Snapshot() | Data():
                    found.append(message)
        return found

    def take(self, nbytes_max: int = BATCH_BYTES) -> Batch | None:
        """The next whole frames, checked; None if there is none. Raises BadFrame, NewerFrame, Parted."""
        batch = self._frames.take(nbytes_max)
        self._part = self._frames.buffered if batch is None else 0
        if batch is not None:
            self.lsn, self.crc = batch.last, batch.crc
            self._floor_ms = max(self._floor_ms, batch.now)
            self._compare(batch)
        return batch

    def _compare(self, batch: Batch) -> None:
        """Compare the places that BEATs have named with the frames there. Raises Parted."""
        places = self._places
        while places and places[0][0] <= batch.last:
            lsn, crc = places.popleft()
            if lsn >= batch.first:
                _agree(lsn, crc, batch.crc_at(lsn))

    def leader_now(self, now: float) -> int:
        """The leader's clock, unix milliseconds: by its newest BEAT, run on, and never less than in a frame. It never
        goes back. 0 before the first BEAT or frame."""
        if self.beat is not None:
            elapsed_ms = int((now - self._beat_at) * 1000)
            self._floor_ms = max(self._floor_ms, self.beat.now + elapsed_ms)
        return self._floor_ms

    def ack(self, written: int, fsynced: int, now: float) -> bytes:
        """An ACK if it is due (`ack_in`), or b"".

        `written` is the last LSN that is in the log and applied, `fsynced` the last that is known to be on the disk.
        """
        ack = self._told(written, fsynced)
        if self._acked_at is not None and now - self._acked_at < self._pause(ack):
            return b""
        self._acked, self._acked_at, self._asked = ack, now, False
        return ack.pack()

    def ack_in(self, written: int, fsynced: int, now: float) -> float:
        """Seconds until an ACK of these is due.

        At once if a BEAT came since the last one. After a millisecond if it says what the newest BEAT asked for, or
        that more is on the disk; after ten if it says something else that is new; else after a second.
        """
        if self._acked_at is None:
            return 0.0
        pause = self._pause(self._told(written, fsynced))
        return max(0.0, self._acked_at + pause - now)

    def _told(self, written: int, fsynced: int) -> Ack:
        assert written >= self._acked.written, "a log that is open for a link does not end earlier"
        return Ack(written, max(min(fsynced, written), self._acked.fsynced))

    def _pause(self, ack: Ack) -> float:
        """Least time between the last ACK and this one."""
        if self._asked:
            return 0.0
        if ack == self._acked:
            return ACK_SECONDS_MAX
        # The frames that the leader waits for may come in pieces, and the first ACK told of the first piece only.
        asked = self._acked.written < self.last_lsn or ack.fsynced > self._acked.fsynced
        return ACK_SECONDS_ASKED if asked else ACK_SECONDS_MIN

    def overdue(self, now: float, timeout: float) -> bool:
        """Whether nothing came for `timeout` seconds."""
        return now - self.heard_at > timeout

    def _heard(self, beat: Beat, now: float) -> None:
        if beat.good > beat.last:
            raise ProtocolError(
                f"its log ends with LSN {beat.last}, but is good through LSN {beat.good}"
            )
        if beat.last < self.last_lsn:
            raise ProtocolError(
                f"its log ended with LSN {self.last_lsn}, and now with LSN {beat.last}"
            )
        if beat.now > NOW_MS_MAX:
            raise ProtocolError(f"its clock says {beat.now}, which is not a time")
        self.leader_now(now)  # the clock may be set back, but its readers see no time twice
        self.beat, self._beat_at, self._asked = beat, now, True
        if beat.last == self.lsn:
            _agree(beat.last, beat.crc, self.crc)
        elif len(self._places) < PLACES_MAX:  # the frames there have yet to be taken
            self._places.append((beat.last, beat.crc))


def _agree(lsn: int, theirs: int, ours: int | None) -> None:
    """Raise Parted unless both logs have the same frame that ends with `lsn`."""
    if ours != theirs:
        here = "no frame ends there here" if ours is None else f"{ours:08x} here"
        raise Parted(lsn, f"its frame has checksum {theirs:08x} there, and {here}")
