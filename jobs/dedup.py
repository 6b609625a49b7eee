"""Dedup IDs: which job has an ID, and the records by which it takes, keeps and frees it. Under the store's lock.

There are two memories. Both are tables of idempotence IDs (engine/streams/idmp.py), so no record is new:

    window    producer PRODUCER in the stream that the job was put into: the ID -> the ID that `put` returned. It is
              forgotten DEDUP_SECONDS after the put, by DEDUP_IDS newer ones, or when it is freed
    taken     producer TAKER in the stream of the queue's name: the ID -> where the job is now. It does not expire. The
              job that ends frees it, and a delayed job that becomes due takes it along to its new entry

An ID is freed by an XIDMPRECORD with the time FREED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tidelog.engine.api import FREED, HELD, XIDMPRECORD, Context, Effect, Idmp, Stream
from tidelog.engine.ids import SEQ_MAX
from tidelog.jobs.options import DEDUP_IDS, DEDUP_SECONDS, Options
from tidelog.store.errors import DataError

PRODUCER: Final = b"queue"  # the producer ID under which XADD remembers dedup IDs
TAKER: Final = b"queue:held"  # that of the IDs which are taken until their jobs are done

WINDOW: Final = "window"
UNTIL_DONE: Final = "until-done"
REPLACE: Final = "replace"
MODES: Final = (WINDOW, UNTIL_DONE, REPLACE)


def mode_of(dedup: Any, dedup_id: object) -> str:
    """The argument `dedup`. Raises DataError."""
    if dedup not in MODES:
        raise DataError(f"dedup must be {', '.join(map(repr, MODES))}, not {dedup!r}")
    if dedup != WINDOW and dedup_id is None:
        raise DataError(f"dedup={dedup!r} needs a dedup_id")
    return str(dedup)


def remembering(stream: Stream | None, key: bytes) -> list[list[bytes]]:
    """The command that makes a stream remember dedup IDs for DEDUP_SECONDS, unless it does. The stream must exist when
    the command runs.
    """
    idmp = None if stream is None else stream.idmp
    if idmp is not None and (idmp.duration, idmp.maxsize) == (DEDUP_SECONDS, DEDUP_IDS):
        return []
    duration, most = b"%d" % DEDUP_SECONDS, b"%d" % DEDUP_IDS
    return [[b"XCFGSET", key, b"IDMP-DURATION", duration, b"IDMP-MAXSIZE", most]]


def freed(db: int, key: bytes, pid: bytes, iid: bytes, entry: int) -> Effect:
    """The effect that frees an ID."""
    return XIDMPRECORD, db, key, pid, iid, entry >> 64, entry & SEQ_MAX, FREED


def taking(db: int, options: Options, iid: bytes, entry: int) -> Effect:
    """The effect by which a job takes an ID until it is done, or takes it along to another entry."""
    return XIDMPRECORD, db, options.root, TAKER, iid, entry >> 64, entry & SEQ_MAX, HELD


def table_at(ctx: Context, key: bytes, pid: bytes) -> Idmp | None:
    """The tables of the stream at a key, if it remembers IDs of this producer."""
    value = ctx.lookup(key)
    idmp = value.idmp if isinstance(value, Stream) else None
    return idmp if idmp is not None and pid in idmp.producers else None


def let_go(ctx: Context, options: Options, stream: Stream, jobs: Iterable[int]) -> list[Effect]:
    """The effects that free the IDs taken by jobs of a lane that end in the options' group. A job that another group
    still needs keeps its ID.
    """
    table = table_at(ctx, options.root, TAKER)
    if table is None:
        return []
    owned = {job: iid for job in jobs if (iid := table.owned(TAKER, job)) is not None}
    return [
        freed(ctx.db, options.root, TAKER, iid, job)
        for job, iid in owned.items()
        if not needed_elsewhere(stream, options.group_key, job)
    ]


def needed_elsewhere(stream: Stream, group: bytes, job: int) -> bool:
    """Whether a group other than this one has a job still to do."""
    return len(stream.groups) > 1 and any(
        name != group and (other.last_id < job or other.pending.contains(job))
        for name, other in stream.groups.items()
    )
