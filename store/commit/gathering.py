"""Gathering: effects of many commands that are applied one after the other and appended together, as one frame.

A pipeline decides each command after the ones before it were applied, so memory is ahead of the log until the frame is
appended. There are two kinds:

    one unit each     a pipeline: each `take` is a unit. If something breaks, the complete units are still appended
                      (`rescue`), and only the rest is not stored
    one unit          EXEC: all takes together are a unit. If something breaks, all of it is undone, by rebuilding
                      memory

The frame under way uses the landing's packer, so there is only one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgpack

from tidelog.engine.api import APPLY, END, VOLATILE, Effect
from tidelog.store.commit.adding import AN_XADD
from tidelog.store.commit.landing import Landing, pack_unit

FRAME_BYTES: Final = 1 << 20  # append a frame of several units when it reaches about this size


class Gathering:
    """[lock] One frame under way.

    one_unit    all effects are one unit; else each `take`, and each record of `applied`, is a unit
    size        bytes that were packed and applied
    count       records in them
    changed     something was applied since the last frame was appended
    appending   inside `Log.add`: it is unknown whether the frame is there
    """

    __slots__ = ("size", "count", "changed", "appending", "one_unit", "flush", "_landing", "_last")

    def __init__(self, landing: Landing, flush: bool, one_unit: bool) -> None:
        self._landing = landing
        self.flush = flush
        self.one_unit = one_unit
        self.begin()

    def begin(self) -> None:
        """Begin an empty frame."""
        self.size = self.count = 0
        self.changed = False
        self._last: Effect = ()
        # Reset before use and not after it, because bytes that an interrupt left in the packer must never reach the
        # log.
        self._landing.packer.reset()
        self.appending = False  # last: see `append`

    def reserve(self, nbytes: int) -> None:
        """Make sure that the frame can grow by XADDs of `nbytes`. Raises as `pack`: nothing has changed."""
        self._landing.log.reserve(self.size + nbytes)
        if not self.one_unit:  # the quota of that was heeded before its first command
            self._landing.heed_quota(self.size + nbytes, AN_XADD)

    def take(self, effects: Sequence[Effect]) -> bool:
        """Pack, reserve and apply effects. Returns whether any is logged. Raises as `pack`, and as apply does."""
        count = self.pack(effects)
        if effects:
            self.apply(effects, count)
        return count > 0

    def pack(self, effects: Sequence[Effect]) -> int:
        """Pack effects and reserve their room. Returns how many records they are.

        Raises StoreDamaged, StoreFull, and what `Log.reserve` raises: these effects have changed nothing. After any
        but StoreDamaged the frame must be appended, which drops them.
        """
        landing = self._landing
        if landing.state.changes.cold is not None:
            landing.ready(effects)
        packer = landing.packer
        if len(effects) == 1 and effects[0][0] < VOLATILE:  # most commands are like this
            self._last = effect = effects[0]
            packer.pack(effect if self.one_unit else (effect[0] | END, *effect[1:]))
            count = 1
        elif self.one_unit:
            logged = [effect for effect in effects if effect[0] < VOLATILE]
            for effect in logged:
                packer.pack(effect)
            count = len(logged)
            if count:
                self._last = logged[-1]
        else:
            count = pack_unit(packer.pack, effects)
        if count:
            nbytes = packer.getbuffer().nbytes
            landing.log.reserve(nbytes)
            if not self.one_unit:
                landing.heed_quota(nbytes, effects)
        return count

    def apply(self, effects: Sequence[Effect], count: int) -> None:
        """Apply the effects that `pack` packed as `count` records."""
        landing = self._landing
        state, observed = landing.state, landing.observed
        self.changed = True
        for effect in effects:
            if observed:
                landing.observe(effect)
            APPLY[effect[0]](state, effect)
        if count:
            self.count += count
            self.size = landing.packer.getbuffer().nbytes

    def applied(self, records: int, last: Effect) -> None:
        """Note records that a caller's own loop packed and applied within reserved room (store/commit/batch.py)."""
        if records:
            self.count += records
            self.size = self._landing.packer.getbuffer().nbytes
            self._last = last

    def append(self) -> None:
        """Append what was gathered as one frame. Call `begin` next; if `Log.add` raises, call `Landing.broken` next.

        `appending` stays set until `begin` returns: an interrupt in between finds the frame stored or unknown.
        """
        if self.count:
            landing = self._landing
            # Take only the bytes that were applied, because the bytes of a refused unit may follow them in the packer.
            body = landing.packer.bytes()[: self.size]
            if self.one_unit:
                body = _marked(body, len(landing.pack_one(self._last)))
            self.appending = True
            landing.log.add(body, self.count, landing.now, self.flush)

    def rescue(self, units: int) -> bool:
        """After something broke: append the first `units` units, which are complete. False if that fails too."""
        if units:
            landing = self._landing
            body, count = whole_units(landing.packer.bytes(), units)
            try:
                landing.log.add(body, count, landing.now)
            except Exception:
                return False
        return True


def _marked(body: bytes, last: int) -> bytes:
    """Set the end mark in a unit's last record, `last` bytes long; which record is the last was not known before."""
    marked = bytearray(body)
    at = len(marked) - last
    # A record is a msgpack array of fewer than 16 fields, and its opcode is an int below 128. So the header and the
    # opcode take one byte each.
    assert marked[at] & 0xF0 == 0x90 and marked[at + 1] < VOLATILE
    marked[at + 1] |= END
    return bytes(marked)


def whole_units(packed: bytes, units: int) -> tuple[bytes, int]:
    """The first `units` units of packed records, and the number of their records."""
    unpacker = msgpack.Unpacker(raw=True, use_list=False, max_buffer_size=len(packed))
    unpacker.feed(packed)
    records = 0
    while units:
        records += 1
        if unpacker.unpack()[0] & END:
            units -= 1
    return packed[: unpacker.tell()], records
