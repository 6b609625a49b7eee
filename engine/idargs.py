"""The ID arguments of one command as an ID list: usually one (XACK), or about a hundred, which are parsed together.

IDs in plain digits, the usual form, are parsed directly into the keys of a narrow ID list. That costs half as much as
packing IDs that `engine.ids` parses one by one. `engine.ids` handles everything else, errors included.
"""

from __future__ import annotations

import re
import struct
from array import array
from typing import Final

from tidelog.engine import ids
from tidelog.engine.fast_path import fast_path
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

# Milliseconds with more digits lie beyond the year 2286; `ids.parse` reads these.
_MS_DIGITS: Final = 13
_SEQ_DIGITS: Final = 6  # a number of up to six digits is less than 2**22

# Seven digits of seq can exceed 2**22, and thirteen digits of ms can exceed 2**42. So `id_list` also checks the
# greatest numbers.
_PLAIN = re.compile(rb"(?:[0-9]{1,13}-[0-9]{1,7},)*[0-9]{1,13}-[0-9]{1,7}")


@fast_path(
    of="engine.ids:parse_many",
    held_by="tests/engine/test_fast_paths.py::test_ids_read_in_bulk_are_ids_read_one_by_one",
)
def id_list(args: list[bytes]) -> IdList:
    """Parse strict IDs (spec 3), at least one, in their order. Raises CommandError(INVALID_ID)."""
    if len(args) == 1:
        ms, _, seq = args[0].partition(b"-")
        if ms.isdigit() and seq.isdigit() and len(ms) <= _MS_DIGITS and len(seq) <= _SEQ_DIGITS:
            try:
                return pack_key((int(ms) << SEQ_BITS | int(seq)) - KEY_BASE)
            except struct.error:
                pass  # ms does not fit into a key
        return pack_one(ids.parse(args[0]))
    text = b",".join(args)
    if _PLAIN.fullmatch(text) is not None:
        numbers = list(map(int, text.replace(b",", b"-").split(b"-")))
        times, seqs = numbers[::2], numbers[1::2]
        # An argument that contains a comma itself gives more than two numbers, so check the number of IDs.
        if len(times) == len(args) and not max(times) >> MS_BITS and not max(seqs) >> SEQ_BITS:
            return from_keys(
                array("q", [(ms << SEQ_BITS | seq) - KEY_BASE for ms, seq in zip(times, seqs)])
            )
    return pack(ids.parse_many(args))
