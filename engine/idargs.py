"""The ID arguments of one command as an ID list: mostly one (XACK), or a hundred, which are read at once.

Plain digits, which is nearly all there is, are read straight to the keys of a narrow ID list, at half the cost of
packing what `engine.ids` reads one by one; everything else, errors too, is left to that.
"""

from __future__ import annotations

import re
import struct
from array import array
from typing import Final

from tidelog.engine import ids
from tidelog.engine.idlist import (
    KEY_BASE,
    MS_BITS,
    SEQ_BITS,
    IdList,
    from_keys,
    pack,
    pack_key,
    pack_one,
)

_SEQ_DIGITS: Final = 6  # so many are less than 2**22

# Seven digits of seq can pass 2**22, and thirteen of ms 2**42: the maxima are looked at besides.
_PLAIN = re.compile(rb"(?:[0-9]{1,13}-[0-9]{1,7},)*[0-9]{1,13}-[0-9]{1,7}")


def id_list(args: list[bytes]) -> IdList:
    """Strict IDs (spec 3), at least one, in their order. Raises CommandError(INVALID_ID)."""
    if len(args) == 1:
        ms, _, seq = args[0].partition(b"-")
        if ms.isdigit() and seq.isdigit() and len(seq) <= _SEQ_DIGITS:
            try:
                return pack_key((int(ms) << SEQ_BITS | int(seq)) - KEY_BASE)
            except (struct.error, ValueError):
                pass  # ms is beyond a key, or even beyond what is taken for a number
        return pack_one(ids.parse(args[0]))
    text = b",".join(args)
    if _PLAIN.fullmatch(text) is not None:
        numbers = list(map(int, text.replace(b",", b"-").split(b"-")))
        times, seqs = numbers[::2], numbers[1::2]
        # An argument that itself holds a comma would have made more numbers than two for each.
        if len(times) == len(args) and not max(times) >> MS_BITS and not max(seqs) >> SEQ_BITS:
            return from_keys(
                array("q", [(ms << SEQ_BITS | seq) - KEY_BASE for ms, seq in zip(times, seqs)])
            )
    return pack(ids.parse_many(args))
