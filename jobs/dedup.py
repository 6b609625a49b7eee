"""Dedup IDs: the commands that make a queue's stream remember them."""

from __future__ import annotations

from typing import Final

from tidelog.engine.api import Stream
from tidelog.jobs.options import DEDUP_IDS, DEDUP_SECONDS

PRODUCER: Final = b"queue"  # the producer ID under which XADD remembers dedup IDs


def remembering(stream: Stream | None, key: bytes) -> list[list[bytes]]:
    """The command that makes a stream remember dedup IDs for DEDUP_SECONDS, unless it does. The stream must exist when
    the command runs.
    """
    idmp = None if stream is None else stream.idmp
    if idmp is not None and (idmp.duration, idmp.maxsize) == (DEDUP_SECONDS, DEDUP_IDS):
        return []
    duration, most = b"%d" % DEDUP_SECONDS, b"%d" % DEDUP_IDS
    return [[b"XCFGSET", key, b"IDMP-DURATION", duration, b"IDMP-MAXSIZE", most]]
