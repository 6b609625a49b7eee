"""One verdict per place in the log where a frame is expected: the table, and nothing else.

What lies there:

    WHOLE     a frame: checksums, LSN and chain hold
    BLANK     zeros to the end of the file, or the end itself
    FOREIGN   a header whose checksum holds, of a frame that does not belong here (LSN or chain)
    BROKEN    anything else

Is it in the `last` segment of the log? And is it `promised`: is there proof that a record at or after
this place was durable once? Proof is
  - in a segment that is not the last: the header of the next, which says where this one ended when it
    was fsynced. Before that offset all is promised, at that offset nothing is;
  - in the last segment: a slot of DURABLE of the same life, with the LSN expected here or a higher one;
    or the `synced` LSN of a later frame of the segment, if this machine wrote it as leader.
A later valid frame alone proves nothing: after a power cut real file systems leave holes.

The verdicts:

    FRAME     read it, go on behind it
    END       the log, or this segment, ends here; nothing is missing
    TORN      what lies here was never promised: recovery takes it out, keeping a copy
    CORRUPT   something promised is gone: refuse to open. Also what no crash can explain
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Found(Enum):
    """What lies at a place in a segment."""

    WHOLE = "a whole frame"
    BLANK = "zeros or the end of the file"
    FOREIGN = "a frame that does not follow the one before"
    BROKEN = "a damaged or unfinished frame"


class Verdict(Enum):
    """What it means."""

    FRAME = "frame"
    END = "end"
    TORN = "torn"
    CORRUPT = "corrupt"


class Row(NamedTuple):
    """One row of the table; None stands for either."""

    verdict: Verdict
    found: Found | None
    last: bool | None
    promised: bool | None

    def matches(self, found: Found, last: bool, promised: bool) -> bool:
        return (
            self.found in (None, found)
            and self.last in (None, last)
            and self.promised in (None, promised)
        )


# The rows exclude one another, so their order means nothing.
# fmt: off
VERDICTS: Final = (
    #   verdict          found          last   promised
    Row(Verdict.FRAME,   Found.WHOLE,   True,  None),
    Row(Verdict.FRAME,   Found.WHOLE,   False, True),
    Row(Verdict.END,     Found.BLANK,   True,  False),   # prepared and never written, or cut
    Row(Verdict.END,     None,          False, False),   # where the next segment says it ended
    Row(Verdict.TORN,    Found.BROKEN,  True,  False),   # died while it was on its way to the disk
    Row(Verdict.CORRUPT, Found.BLANK,   None,  True),    # a promised frame is missing
    Row(Verdict.CORRUPT, Found.BROKEN,  None,  True),    # a promised frame is damaged
    Row(Verdict.CORRUPT, Found.FOREIGN, True,  None),    # no crash writes a valid frame elsewhere
    Row(Verdict.CORRUPT, Found.FOREIGN, False, True),
)
# fmt: on


def judge(found: Found, last: bool, promised: bool) -> Verdict:
    """The verdict of the one row that matches."""
    (verdict,) = [row.verdict for row in VERDICTS if row.matches(found, last, promised)]
    return verdict
