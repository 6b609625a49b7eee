"""Moment: the state of a store as of an LSN or a time, from the newest base before it and the log behind that.

The log has one state at the end of each unit. A moment inside a unit means the unit before. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from tidelog.aof.reading.reader import Scan, Segment
from tidelog.engine.effects.apply import applier
from tidelog.snapshot.tail import NO_BOUND, Bound, follow, last_bytes
from tidelog.tools import console
from tidelog.tools.aof.records import SUSPECT, blamed
from tidelog.tools.bases import Base, bases, state_of
from tidelog.tools.failed import Refused
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.replay import Contents, contents
from tidelog.tools.text import time_text
from tidelog.tools.times import moment


def at_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --at-lsn and --at-time, whose values come as `at_lsn` and `at_time`."""
    command = click.option(
        "--at-time",
        callback=moment,
        metavar="TIME",
        help="Show the state after the last unit of this time (UTC); 15m is 15 minutes ago.",
    )(command)
    return click.option(
        "--at-lsn",
        type=click.IntRange(0),
        metavar="LSN",
        help="Show the state after the last unit that ends at or before this LSN.",
    )(command)


@contextmanager
def contents_at(files: LogFiles, at_lsn: int | None, at_time: int | None) -> Iterator[Contents]:
    """The state as of a moment, or of now if both are None. It may be used inside the block only.

    Raises Refused; as `LogFiles.frames`, if the log is damaged before the moment; CorruptBlock.
    """
    if at_lsn is None and at_time is None:
        with contents(files) as found:
            yield found
        return
    try:
        with files.still(), _contents_at(files, at_lsn, at_time) as found:
            yield found
    except SUSPECT as error:
        raise blamed(files, error) from error


@contextmanager
def _contents_at(files: LogFiles, at_lsn: int | None, at_time: int | None) -> Iterator[Contents]:
    bound = Bound(NO_BOUND if at_lsn is None else at_lsn, NO_BOUND if at_time is None else at_time)
    with state_of(files, _base_before(files, bound)) as (state, start):
        folded = start.lsn
        if start.lsn < bound.lsn and files.snapshot is None:
            nbytes = last_bytes(files.disk, files.directory, files.uuid, start)
            with console.progress("replaying", nbytes, size=True) as advance:
                directory = files.directory
                apply = applier(state)
                tail = follow(files.disk, directory, files.uuid, start, apply, bound, advance)
            start = tail.start
            if at_lsn is not None and start.lsn < at_lsn and not tail.bound:
                raise _refusal(files, f"LSN {at_lsn} is behind the end of the log")
        elif at_lsn is not None and start.lsn < at_lsn:
            raise _refusal(files, f"the snapshot holds the state of LSN {start.lsn} only")
        yield Contents(state, start.lsn, start.now, folded)


def _base_before(files: LogFiles, bound: Bound) -> Base:
    """The newest base at or before the bound from which the log reaches it."""
    found = [
        base for base in bases(files) if base.start.lsn <= bound.lsn and base.start.now <= bound.ms
    ]
    first = first_lsn(files)
    for base in reversed(found):
        if base.start.lsn in (bound.lsn, first - 1) or base.start.lsn + 1 >= first:
            return base
    wanted = f"LSN {bound.lsn}" if bound.lsn != NO_BOUND else time_text(bound.ms)
    raise _refusal(files, f"nothing holds the state of {wanted}")


def first_lsn(files: LogFiles) -> int:
    """The LSN with which the log begins."""
    headers = files.headers()[1]
    return headers[0].first_lsn if headers else 1


def _refusal(files: LogFiles, reason: str) -> Refused:
    ranges = ", ".join(
        f"LSN {first} ({text})" if first == last else f"LSN {first} to {last} (from {text} on)"
        for first, last, text in reachable(files)
    )
    return Refused(f"{reason}. The moments that the files reach: {ranges or 'none'}")


def reachable(files: LogFiles) -> list[tuple[int, int, str]]:
    """(first LSN, last LSN, name of the base) of the moments that the files reach."""
    first, last = first_lsn(files), last_lsn(files)
    found: list[tuple[int, int, str]] = []
    begun = False  # the log continues the base before this one
    for base in bases(files):
        if base.start.lsn + 1 < first:
            found.append((base.start.lsn, base.start.lsn, base.name))
        elif not begun:
            found.append((base.start.lsn, max(last, base.start.lsn), base.name))
            begun = True
    return found


def last_lsn(files: LogFiles) -> int:
    """The last LSN of the log. Reads the last segment."""
    promises, headers = files.headers()
    if not headers or headers[-1].fields is None:
        return 0
    scan = Scan(
        files.disk, Segment(headers[-1].path, headers[-1].fields, None), promises, live=True
    )
    for _ in scan.tuples():
        pass
    return scan.lsn - 1
