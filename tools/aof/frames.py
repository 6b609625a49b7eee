"""The frames of a log that dump, stats and plot ask for, with damage between them, or as the log grows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from tidelog.aof.errors import Damage
from tidelog.aof.frame import HEADER_BYTES, Frame
from tidelog.tools import console
from tidelog.tools.aof.wanted import Wanted
from tidelog.tools.logfiles import LogFiles

POLL_SECONDS: Final = 0.1


past_damage_option = click.option(
    "--past-damage", is_flag=True, help="Continue after damage with the frames that are intact."
)


def frames_between(
    files: LogFiles, since: int | None, until: int | None, found: list[Damage], *, past_damage: bool
) -> Iterator[tuple[Path, Frame]]:
    """As `wanted_frames`, with a progress bar: those from one time to another, unix ms; None: no bound."""
    wanted = Wanted(time_min=since or 0, time_max=math.inf if until is None else until)
    with console.progress("reading", files.size(), size=True) as advance:
        yield from wanted_frames(files, wanted, found, past_damage=past_damage, advance=advance)


def wanted_frames(
    files: LogFiles,
    wanted: Wanted,
    found: list[Damage],
    *,
    follow: bool = False,
    past_damage: bool = False,
    advance: console.Advance | None = None,
) -> Iterator[tuple[Path, Frame]]:
    """Yield the frames that may have a wanted record, in order, with their segments.

    With `past_damage`, damage is added to `found` and printed to standard error, and the frames behind it follow.
    Otherwise raises as `LogFiles.frames`. `advance` gets the bytes of every frame that was read.
    """
    while True:
        items: Iterable[tuple[Path, Frame | Damage]] = (
            files.frames_past_damage() if past_damage else files.new() if follow else files.frames()
        )
        for path, item in items:
            if isinstance(item, Damage):
                found.append(item)
                click.echo(f"tidelog: {item}", err=True)
                continue
            if not wanted.skips(item):
                yield path, item
            elif wanted.ended(item) and not past_damage:
                return
            if advance is not None:
                advance(HEADER_BYTES + len(item.body))
        if not follow or files.snapshot is not None:
            return
        time.sleep(POLL_SECONDS)
