"""Once: a client can repeat a write whose reply it never got, and the write happens once.

The client numbers the writes of a series, of which at most one is under way. Each write stores its number and its reply
under a key of its own, in its own unit. So after any crash both are in the log, or neither. A repeated number gets the
stored reply, and nothing is done. The keys are strings that expire an hour after the last write, and no client can name
them (reserved.py). docs/decisions/shared.md says why they are ordinary keys.

A series belongs to the user who opened it: its key is `tidelog:once:<user> NUL <series>`, and `tidelog:once:<series>`
for the default user. The name of neither a user nor a series holds a NUL, so no series of one user is one of another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.engine.api import SERIES, SERIES_MS, SET, Context
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply, status
from tidelog.resp.replies import parse
from tidelog.server.acl.users import DEFAULT, User
from tidelog.server.wire.render import rendered

SERIES_BYTES_MAX: Final = 64
REPLY_BYTES_MAX: Final = 4096  # a longer reply is not stored
NEW: Final = object()  # no write has this number yet
_WRONG_SERIES: Final = b"ERR the name of a lane has 1 to %d bytes, and no NUL" % SERIES_BYTES_MAX
# A numbered write that changes nothing, which a client sends to learn that all its writes before are safe. It names no
# series, since the name of a series is not empty.
NOTHING: Final = [b"DEL", SERIES]
_PASSED: Final = b"ONCE write %d came after write %d of this lane"
_NO_STRING: Final = (
    b"WRONGTYPE the key %b, which remembers the writes of this lane, holds another type"
)
_NO_REPLY: Final = b"ONCE write %d was stored before, but its reply was too long to be kept"


class Once:
    """One numbered write."""

    __slots__ = ("_key", "_number")

    def __init__(self, user: User, series: bytes, number: bytes) -> None:
        """`user` makes the write. Raises CommandError."""
        if not 0 < len(series) <= SERIES_BYTES_MAX or b"\0" in series:
            raise CommandError(_WRONG_SERIES)
        self._key = (
            SERIES + series if user.name == DEFAULT else b"%b%b\0%b" % (SERIES, user.name, series)
        )
        self._number = int64(number)

    def before(self, ctx: Context) -> Reply:
        """[lock] The reply that the write got before, or NEW. Raises CommandError if a later write was made."""
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
        return parse(reply, status, CommandError)

    def decided(self, decision: Callable[[Context], Reply], ctx: Context) -> Reply:
        """[lock] The result of a decision that logs its own effects, made once."""
        if (known := self.before(ctx)) is not NEW:
            return known
        result = decision(ctx)
        self.note(ctx, result)
        return result

    def planned(
        self, plan: Callable[[Context], tuple[list[list[bytes]], Reply]], ctx: Context
    ) -> tuple[list[list[bytes]], Reply]:
        """[lock] The commands and the result of a plan, made once."""
        if (known := self.before(ctx)) is not NEW:
            return [], known
        words, result = plan(ctx)
        return [self.words(result), *words], result

    def words(self, reply: Reply) -> list[bytes]:
        """The command that stores the number and the reply. It belongs into the unit of the write."""
        return [b"SET", self._key, self._kept(reply), b"PX", b"%d" % SERIES_MS]

    def note(self, ctx: Context, reply: Reply) -> None:
        """[lock] Add the effect of `words` to those of a decision. `before` was called for it."""
        ctx.effects.append((SET, ctx.db, self._key, self._kept(reply), ctx.now + SERIES_MS))

    def _kept(self, reply: Reply) -> bytes:
        data = rendered(reply, 2)
        return b"%d %b" % (self._number, data if len(data) <= REPLY_BYTES_MAX else b"")
