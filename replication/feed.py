"""A feed: a leader's side of one link. Bytes in, bytes out; no socket, no clock.

The shell calls `send` when there is something new, when the socket has room again, and at least once a second; and
`receive` with the bytes that came. All times are seconds of one monotonic clock.

A feed keeps no part of the log. `send` reads what it returns, so a follower that does not read costs the shell at most
what the shell asked for.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from tidelog.replication.errors import FaultFound, ProtocolError
from tidelog.replication.protocol import (
    BEAT_BYTES,
    FRAMES,
    FROM_FOLLOWER,
    OVERHEAD,
    SLICE_BYTES_MAX,
    Ack,
    Beat,
    Fault,
    Messages,
    Promote,
    Promoted,
    Want,
    message,
    packed,
)

BEAT_SECONDS: Final = 1.0
TIMEOUT_S_MIN: Final = 2 * BEAT_SECONDS  # with less, a link that is idle would look silent
SEND_BYTES_MAX: Final = 1 << 20
PACK_BYTES_MAX: Final = 128 << 10  # compressed at a time: some milliseconds
_PIECE_BYTES_MIN: Final = 1024  # many small pieces would cost more than they carry
_MARKS_MAX: Final = 1024
ROOM_BYTES_MIN: Final = BEAT_BYTES + OVERHEAD + _PIECE_BYTES_MIN


class SourceLike(Protocol):
    """Where the bytes of the log come from: `aof.seek.Source`, or one that reads ahead in a thread."""

    def read(self, nbytes_max: int, good: tuple[int, int], /) -> bytes:
        """The next bytes of frames, at most `nbytes_max`, up to `good` (`Log.good`); b"" if there are none now."""

    def at_end(self, good: tuple[int, int], /) -> bool:
        """Whether `read` has nothing now."""


class Feed:
    """One follower, as its leader sees it.

    acked_lsn      the follower has written and applied all records through this LSN; 0 before its first ACK
    fsynced_lsn    the follower has fsynced all records through this LSN
    heard_at       when bytes came last
    history        number of the history that the source is a part of (`Roles.rewinds`)
    promote        what the follower was told to do; None while it was not told to lead
    promoted       its answer, that it leads; None until then
    """

    def __init__(
        self,
        source: SourceLike,
        last: int,
        now: float,
        history: int = 0,
        *,
        compress: bool = False,
        log_bytes: Callable[[], int] = lambda: 0,
        begin: tuple[int, int] = (0, 0),
    ) -> None:
        """`last` is the leader's last LSN, as its reply to the handshake said it. `compress`: both sides want it.

        log_bytes   how many bytes of frames the leader's log has, counted from anywhere
        begin       the follower's LSN at the handshake, and where that is in these bytes
        """
        self.history = history
        self._message = packed if compress else message
        self._bytes_max = PACK_BYTES_MAX if compress else SEND_BYTES_MAX
        self.acked_lsn = 0
        self.fsynced_lsn = 0
        self.heard_at = now
        self.promote: Promote | None = None
        self.promoted: Promoted | None = None
        self._source = source
        self._messages = Messages(FROM_FOLLOWER)
        self._last = last  # as of the newest `send`: a follower cannot have more
        self._beat_at = now  # when the next BEAT is due
        # time, last LSN and bytes of the log at BEATs that are not reached yet
        self._marks: deque[tuple[float, int, int]] = deque()
        self._log_bytes = log_bytes
        self._reached = begin  # LSN and bytes of a place that the follower has reached

    def send(
        self,
        now: float,
        now_ms: int,
        good: tuple[int, int],
        last: tuple[int, int],
        good_lsn: int,
        room: int,
    ) -> bytes:
        """The next messages, at most `room` bytes and at most SEND_BYTES_MAX of the log; b"" if there are none.

        Args:
            now_ms: The leader's clock, unix milliseconds.
            good: Where its good records end, in its newest segment (`Log.good`).
            last: Its last LSN, and the CRC of the frame that ends with it.
            good_lsn: The last LSN that is good.
            room: Bytes that the shell has room for. Less than ROOM_BYTES_MIN may get nothing.
        """
        self._last = last[0]
        parts: list[bytes] = []
        # The BEAT goes first, so a follower that is always behind hears of the leader's clock, too.
        if now >= self._beat_at and room >= BEAT_BYTES:
            parts.append(Beat(now_ms, *last, good_lsn).pack())
            self._beat_at = now + BEAT_SECONDS
            room -= BEAT_BYTES
            if last[0] > self.acked_lsn:
                self._mark(now, last[0])
            else:
                self._reached = last[0], self._log_bytes()
        nbytes = min(_log_bytes(room), self._bytes_max)
        if nbytes >= _PIECE_BYTES_MIN and self.promote is None:
            # One read for all messages: beside a busy thread each system call can wait 5 ms for the interpreter.
            data = self._source.read(nbytes, good)
            for at in range(0, len(data), SLICE_BYTES_MAX):
                parts.append(self._message(FRAMES, data[at : at + SLICE_BYTES_MAX]))
        return b"".join(parts)

    def at_end(self, good: tuple[int, int]) -> bool:
        """Whether `send` has shipped all that is good."""
        return self._source.at_end(good)

    def ask(self) -> None:
        """Make a BEAT due now: the follower answers it at once, without the pause between two ACKs."""
        self._beat_at = -math.inf

    def tell_to_lead(self, promote: Promote) -> bytes:
        """The message that makes the follower lead. Behind it no frames are sent."""
        self.promote = promote
        return promote.pack()

    def receive(self, data: bytes, now: float) -> list[Want]:
        """Take in bytes from the follower. Returns the files of a snapshot that it asks for. Raises ProtocolError."""
        self.heard_at = now
        self._messages.put(data)
        wanted: list[Want] = []
        for found in self._messages:
            match found:
                case Ack():
                    self._acknowledged(found)
                case Want():
                    wanted.append(found)
                case Fault():
                    raise FaultFound(found.lsn, found.reason)
                case Promoted():
                    if self.promote is None:
                        raise ProtocolError("it says that it leads, but it was not told to")
                    self.promoted = found
        return wanted

    def overdue(self, now: float, timeout: float) -> bool:
        """Whether nothing came for `timeout` seconds."""
        return now - self.heard_at > timeout

    def _acknowledged(self, ack: Ack) -> None:
        if ack.written > self._last:
            raise ProtocolError(
                f"it acknowledges LSN {ack.written}, but the leader's log ends with LSN {self._last}"
            )
        if ack.fsynced > ack.written:
            raise ProtocolError(
                f"it has fsynced through LSN {ack.fsynced}, but written only through LSN {ack.written}"
            )
        if ack.written < self.acked_lsn or ack.fsynced < self.fsynced_lsn:
            raise ProtocolError(
                f"it acknowledges LSN {ack.written} (fsynced {ack.fsynced}) after LSN {self.acked_lsn} (fsynced "
                f"{self.fsynced_lsn})"
            )
        self.acked_lsn, self.fsynced_lsn = ack
        while self._marks and self._marks[0][1] <= self.acked_lsn:
            self._reached = self._marks.popleft()[1:]

    def lag_seconds(self, now: float) -> float:
        """How long ago the leader had what the follower lacks, within BEAT_SECONDS; 0 if it lacked nothing then.

        From any thread.
        """
        try:
            return now - self._marks[0][0]
        except IndexError:
            return 0.0

    def lag_bytes(self, last: int) -> int:
        """About how many bytes of frames the follower lacks of a log that ends with LSN `last`; 0 if it lacks none.

        Records between two BEATs count as equally long. From any thread.
        """
        if self.acked_lsn >= last:
            return 0
        end, (lsn, nbytes) = self._log_bytes(), self._reached
        try:
            _, lsn_above, nbytes_above = self._marks[0]
        except IndexError:
            lsn_above, nbytes_above = last, end
        part = (max(self.acked_lsn, lsn) - lsn) / max(lsn_above - lsn, 1)
        return max(round(end - nbytes - part * (nbytes_above - nbytes)), 0)

    def _mark(self, now: float, lsn: int) -> None:
        marks = self._marks
        if len(marks) >= _MARKS_MAX:  # it is far behind: every second one tells as much
            self._marks = marks = deque(itertools.islice(marks, 0, None, 2))
        marks.append((now, lsn, self._log_bytes()))


def _log_bytes(room: int) -> int:
    """Bytes of the log that fit into `room` as messages, at most SEND_BYTES_MAX."""
    whole, rest = divmod(room, SLICE_BYTES_MAX + OVERHEAD)
    return min(whole * SLICE_BYTES_MAX + max(rest - OVERHEAD, 0), SEND_BYTES_MAX)
