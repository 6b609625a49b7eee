"""Once: a client can repeat a write whose reply it never got, and the write happens once.

The client numbers the writes of a lane, of which at most one is under way. Each write stores its number and its reply
under the key `tidelog:once:<lane>`, in its own unit. So after any crash both are in the log, or neither. A repeated
number gets the stored reply, and nothing is done. The keys are strings that expire an hour after the last write.
docs/decisions/shared.md says why they are ordinary keys.
"""

from __future__ import annotations

from typing import Final

from tidelog.engine.api import SET, Context
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.server.wire.reading import parse
from tidelog.server.wire.render import rendered

PREFIX: Final = b"tidelog:once:"
KEPT_MS: Final = 3_600_000
LANE_BYTES_MAX: Final = 64
REPLY_BYTES_MAX: Final = 4096  # a longer reply is not stored
NEW: Final = object()  # no write has this number yet
_LONG_LANE: Final = b"ERR the name of a lane has 1 to %d bytes" % LANE_BYTES_MAX
_PASSED: Final = b"ONCE this lane has gone on: write %d came after %d"
_NO_STRING: Final = (
    b"WRONGTYPE the key %b, which remembers the writes of this lane, holds another type"
)
_NO_REPLY: Final = b"ONCE write %d was stored before, but its reply was too long to be kept"


class Once:
    """One numbered write."""

    __slots__ = ("_key", "_number")

    def __init__(self, lane: bytes, number: bytes) -> None:
        """Raises CommandError."""
        if not 0 < len(lane) <= LANE_BYTES_MAX:
            raise CommandError(_LONG_LANE)
        self._key = PREFIX + lane
        self._number = int64(number)

    def before(self, ctx: Context) -> Reply:
        """[lock] The reply that the write got before, or NEW. Raises CommandError if the lane has gone on."""
        stored = ctx.lookup(self._key)
        if stored is None:
            return NEW
        if not isinstance(stored, bytes):
            raise CommandError(_NO_STRING % self._key)
        number, _, reply = stored.partition(b" ")
        last = int64(number)
        if last < self._number:
            return NEW
        if last > self._number:
            raise CommandError(_PASSED % (last, self._number))
        if not reply:
            raise CommandError(_NO_REPLY % last)
        return parse(reply)

    def words(self, reply: Reply) -> list[bytes]:
        """The command that stores the number and the reply. It belongs into the unit of the write."""
        return [b"SET", self._key, self._kept(reply), b"PX", b"%d" % KEPT_MS]

    def note(self, ctx: Context, reply: Reply) -> None:
        """[lock] Add the effect of `words` to those of a decision. `before` was called for it."""
        ctx.effects.append((SET, ctx.db, self._key, self._kept(reply), ctx.now + KEPT_MS))

    def _kept(self, reply: Reply) -> bytes:
        data = rendered(reply, 2)
        return b"%d %b" % (self._number, data if len(data) <= REPLY_BYTES_MAX else b"")
