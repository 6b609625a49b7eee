"""`tidelog aof plot`: write rate, bytes, exposed records, lag and pending entries over time, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tidelog.aof.errors import Damage
from tidelog.disk.readable import readable
from tidelog.figures.names import has_due_times
from tidelog.tools import console, exits, names
from tidelog.tools.aof.frames import frames_between, past_damage_option
from tidelog.tools.aof.series import GroupName, Sample, Series, base_for, samples
from tidelog.tools.aof.stats import Stats
from tidelog.tools.aof.wanted import Match, names_option
from tidelog.tools.bases import bases
from tidelog.tools.heads import tool_command
from tidelog.tools.installed import installed
from tidelog.tools.logfiles import STORE_PATH, LogFiles, hold, look_at
from tidelog.tools.output import force_option, output_option, publish, writable
from tidelog.tools.text import time_text
from tidelog.tools.times import moment

FORMATS: Final = (".png", ".svg", ".pdf")
GROUPS_SHOWN: Final = 6
_CANDIDATES: Final = 10_000  # groups among which the filters choose


@tool_command(
    "tidelog aof plot orders-data -o orders.svg",
    "tidelog aof plot orders-data -o orders.png --since 2h --key orders --group packers",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=STORE_PATH)
@output_option("The picture to write; its name ends in .png, .svg or .pdf.", required=True)
@force_option
@click.option("--since", callback=moment, help="Start at this time (UTC), or at 15m ago.")
@click.option("--until", callback=moment, help="Stop after this time.")
@names_option(
    "key",
    names.keys,
    "Show groups of this key, or of keys that match this glob; may be repeated.",
)
@names_option(
    "group",
    names.groups,
    "Show this group, or groups that match this glob; may be repeated.",
)
@past_damage_option
def command(
    paths: tuple[Path, ...],
    output: Path,
    force: bool,
    since: int | None,
    until: int | None,
    wanted_key: Match | None,
    wanted_group: Match | None,
    past_damage: bool,
) -> int:
    if output.suffix not in FORMATS:
        raise click.UsageError(f"{output}: the name must end in {', '.join(FORMATS)}")
    installed("tidelog aof plot", "matplotlib", extra="plot")
    writable(output, force)
    # here: it loads matplotlib
    from tidelog.tools.aof.picture import LIFE, Mark, Picture, drawn

    files = look_at(paths)
    hold(files)
    found: list[Damage] = []
    series, stats = Series(), Stats(files.life_of)
    for path, frame in frames_between(files, since, until, found, past_damage=past_damage):
        before = stats.entries
        stats.take(path, frame)
        series.take(frame, stats.entries - before)
    series.fit()
    if not stats.frames:
        raise click.UsageError("the log has no records of that time, so there is nothing to draw")
    shown = chosen(stats, wanted_key, wanted_group)
    of_groups = {} if found else of_each(files, series, shown, stats.since)
    marks = [Mark(stats.lives[life][5], LIFE) for life in stats.lives if life in stats.begun]
    marks += [
        Mark(base.start.now, base.name)
        for base in bases(files)
        if base.folder is not None and stats.since <= base.start.now <= stats.until
    ]
    picture = Picture(series, of_groups, marks, readable(str(paths[0])))
    publish(output, drawn(picture, output.suffix[1:]))
    count = len(series.numbers())
    click.echo(
        f"{output}: {stats.records:,} records from {time_text(stats.since)} to {time_text(stats.until)}, "
        f"{count:,} points of {span_text(series.width)} each, {len(of_groups)} groups"
    )
    for line in stats.clock.lines():
        click.echo(f"clock: {line}")
    return exits.DAMAGED if found else exits.OK


def chosen(stats: Stats, key: Match | None, group: Match | None) -> list[GroupName]:
    """The groups with the most records among those that the filters let through.

    Without the groups `due`, whose pending entries are delayed jobs and schedules: nobody works on them.
    """
    ranked = [row.name for row in stats.groups.top(_CANDIDATES)]
    return [
        name
        for name in ranked
        if (key is None or key(name[1])) and (group is None or group(name[2]))
        if not has_due_times(*name[1:])
    ][:GROUPS_SHOWN]


def of_each(
    files: LogFiles, series: Series, groups: list[GroupName], since: int
) -> dict[GroupName, dict[int, Sample]]:
    """Replay the log for the figures of groups; none if there is no state to begin with."""
    base = base_for(files, since) if groups else None
    if base is None:
        if groups:
            click.echo(
                "tidelog: the log continues no checkpoint and no snapshot, so lag and pending entries "
                "are not drawn",
                err=True,
            )
        return {}
    numbers = series.numbers()
    with console.progress("replaying", files.size(), size=True) as advance:
        found = samples(files, base, series.width, numbers[-1], groups, advance)
    return {
        group: {number: sample for number, sample in each.items() if number >= numbers[0]}
        for group, each in found.items()
    }


def span_text(ms: int) -> str:
    """The length of a span of time."""
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms} ms"
