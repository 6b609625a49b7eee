"""Many ID arguments of one command, read at once (XACK and its kin name a hundred).

Plain digits, which is nearly all there is, are read in bulk straight to the keys of a narrow ID list, at
half the cost of one by one; everything else, errors too, is left to `engine.ids`.
"""

from __future__ import annotations

import re
from array import array

from tidelog.engine import ids
from tidelog.engine.idlist import KEY_BASE, MS_BITS, SEQ_BITS, IdList, from_keys, pack, pack_one

# Seven digits of seq can pass 2**22, and thirteen of ms 2**42: the maxima are looked at besides.
_PLAIN = re.compile(rb"(?:[0-9]{1,13}-[0-9]{1,7},)*[0-9]{1,13}-[0-9]{1,7}")


def id_list(args: list[bytes]) -> IdList:
    """Strict IDs (spec 3), at least one, in their order. Raises CommandError(INVALID_ID)."""
    if len(args) == 1:
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
