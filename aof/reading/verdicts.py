"""The decision table: one verdict for each offset in the log where a frame is expected.

`found`, the content at the offset:

    WHOLE     a frame with valid checksums, LSN and chain
    BLANK     zeros to the end of the file, or the end itself
    FOREIGN   a header with a valid checksum, but a wrong LSN or chain
    BROKEN    anything else

`last`: the segment is the last one of the log.

`promised`: there is proof that a record at or after the offset was durable once. The proof is
  - in any segment but the last: the header of the next one, which states where this one ended when it
    was fsynced. Everything before that end is promised, and nothing from there on;
  - in the last segment: a DURABLE slot of the same life with an LSN at or above the one expected here,
    or the `synced` LSN of a later frame of the segment, if this machine wrote the segment as leader.
A later valid frame alone proves nothing: file systems leave holes after a power cut.

The verdicts:

    FRAME     read the frame and continue after it
    END       the log, or this segment, ends here; nothing is missing
    TORN      the bytes here were never promised: recovery cuts them off and keeps a copy
    CORRUPT   promised data is missing, or no crash can explain these bytes: refuse to open
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Found(Enum):
    """The content at an offset of a segment."""

    WHOLE = "a whole frame"
    BLANK = "zeros or the end of the file"
    FOREIGN = "a frame that does not follow the one before"
    BROKEN = "a damaged or unfinished frame"


class Verdict(Enum):
    """The conclusion; see the table above."""

    FRAME = "frame"
    END = "end"
    TORN = "torn"
    CORRUPT = "corrupt"


class Case(NamedTuple):
    """One row of the table; None matches any value."""

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


# The cases exclude one another, so their order does not matter.
# fmt: off
VERDICTS: Final = (
    #    verdict          found          last   promised       (None: any value)
    Case(Verdict.FRAME,   Found.WHOLE,   True,  None),
    Case(Verdict.FRAME,   Found.WHOLE,   False, True),
    Case(Verdict.END,     Found.BLANK,   True,  False),   # prepared and never written, or cut
    Case(Verdict.END,     None,          False, False),   # the end that the next segment states
    Case(Verdict.TORN,    Found.BROKEN,  True,  False),   # a crash before the frame was durable
    Case(Verdict.CORRUPT, Found.BLANK,   None,  True),    # a promised frame is missing
    Case(Verdict.CORRUPT, Found.BROKEN,  None,  True),    # a promised frame is damaged
    Case(Verdict.CORRUPT, Found.FOREIGN, True,  None),    # no crash writes a valid frame elsewhere
    Case(Verdict.CORRUPT, Found.FOREIGN, False, True),
)
# fmt: on


def judge(found: Found, last: bool, promised: bool) -> Verdict:
    """The verdict of the one row that matches."""
    (verdict,) = [row.verdict for row in VERDICTS if row.matches(found, last, promised)]
    return verdict
