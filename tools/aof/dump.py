"""`tidelog aof dump`: the records of the log as Redis commands.

A line is

    LSN  time  segment@offset  unit  [db]  command

`unit` shows the place of the record in its unit: `-` is the only record, `/` the first of several, `|` one in the
middle, `\\` the last. A record prints one line per command; a record without a command is printed as a comment.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import click

from tidelog.aof.errors import Damage
from tidelog.aof.frame import Frame
from tidelog.engine.effects.as_commands import commands, database, keys
from tidelog.engine.effects.effect import EPOCH, OPCODE
from tidelog.engine.glob import matcher
from tidelog.tools import exits, names
from tidelog.tools.aof.records import FIRST, LAST, MIDDLE, ONLY, Record, records_of
from tidelog.tools.logfiles import STORE_PATH, LogFiles, look_at
from tidelog.tools.text import command_line, examples, json_value, parse_time, time_text

MARKS: Final = {ONLY: "-", FIRST: "/", MIDDLE: "|", LAST: "\\"}
POLL_SECONDS: Final = 0.1


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The value of --since and --until, as tools.text.parse_time reads it."""
    try:
        return None if value is None else parse_time(value, time.time_ns() // 1_000_000)
    except ValueError:
        hint = f"{value!r} is not a time; give 2026-11-21T10:00, a Unix time, or 15m for 15 minutes ago"
        raise click.BadParameter(hint) from None


@click.command(
    help="Print the records of the log as Redis commands.",
    epilog=examples(
        "tidelog aof dump orders-data --key orders --limit 3",
        "tidelog aof dump orders-data --command XACK --since 15m",
        "tidelog aof dump orders-data --json --follow | jq -c .commands",
    ),
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=STORE_PATH)
@click.option(
    "--key",
    "wanted_keys",
    multiple=True,
    shell_complete=names.keys,
    help="Print only records of this key, or of keys that match this glob; may be repeated.",
)
@click.option(
    "--command",
    "wanted_commands",
    multiple=True,
    help='Print only this command, such as "XADD" or "XGROUP SETID"; may be repeated.',
)
@click.option("--from-lsn", type=int, help="Start at this LSN.")
@click.option("--to-lsn", type=int, help="Stop after this LSN.")
@click.option(
    "--since", callback=moment, help="Start at this time (UTC), or at 15m for 15 minutes ago."
)
@click.option("--until", callback=moment, help="Stop after this time.")
@click.option("--limit", type=click.IntRange(1), help="Print at most this many records.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line and record.")
@click.option("--follow", is_flag=True, help="Continue to print as the log grows, until Ctrl-C.")
@click.option(
    "--past-damage", is_flag=True, help="Continue after damage with the frames that are intact."
)
def command(
    paths: tuple[Path, ...],
    wanted_keys: tuple[str, ...],
    wanted_commands: tuple[str, ...],
    from_lsn: int | None,
    to_lsn: int | None,
    since: int | None,
    until: int | None,
    limit: int | None,
    as_json: bool,
    follow: bool,
    past_damage: bool,
) -> int:
    if follow and past_damage:
        raise click.UsageError("--follow and --past-damage cannot be used together")
    wanted = Wanted(
        key_filter([key.encode("utf-8", "surrogateescape") for key in wanted_keys]),
        [tuple(name.upper().encode().split()) for name in wanted_commands],
        from_lsn or 0,
        math.inf if to_lsn is None else to_lsn,
        since or 0,
        math.inf if until is None else until,
    )
    found: list[Damage] = []
    files = look_at(paths)
    records = read(files, wanted, found, follow=follow, past_damage=past_damage)
    show = as_object if as_json else as_lines
    for record in islice(records, limit):
        sys.stdout.write(show(record))
        if follow:
            sys.stdout.flush()
    return exits.DAMAGED if found else exits.OK


class Wanted(NamedTuple):
    """The records to print. LSNs and times (unix ms) include both ends; no filter or names means all."""

    key: Callable[[bytes], object] | None
    names: list[tuple[bytes, ...]]
    lsn_min: int
    lsn_max: float
    time_min: int
    time_max: float

    def skips(self, frame: Frame) -> bool:
        """Whether a frame surely has no wanted record. Does not decode it."""
        too_early = frame.lsn + frame.count <= self.lsn_min or frame.now < self.time_min
        return too_early or self.ended(frame)

    def ended(self, frame: Frame) -> bool:
        """Whether this frame and all later ones surely have no wanted record."""
        return frame.lsn > self.lsn_max or frame.now > self.time_max

    def has(self, record: Record) -> bool:
        return (
            self.lsn_min <= record.lsn <= self.lsn_max
            and (self.key is None or any(map(self.key, keys(record.effect))))
            and (not self.names or is_one_of(record, self.names))
        )


def key_filter(patterns: list[bytes]) -> Callable[[bytes], object] | None:
    """A function that is true for keys that are one of the patterns or match one, as KEYS matches; None without any."""
    if not patterns:
        return None
    names = frozenset(patterns)
    match = [matcher(pattern) for pattern in patterns]
    return lambda key: key in names or any(matches(key) for matches in match)


def read(
    files: LogFiles, wanted: Wanted, found: list[Damage], *, follow: bool, past_damage: bool
) -> Iterator[Record]:
    """Yield the wanted records. Skipped damage is added to `found` and printed to standard error."""
    while True:
        items: Iterable[tuple[Path, Frame | Damage]] = (
            files.frames_past_damage() if past_damage else files.new() if follow else files.frames()
        )
        for path, item in items:
            if isinstance(item, Damage):
                found.append(item)
                click.echo(f"tidelog: {item}", err=True)
            elif not wanted.skips(item):
                yield from filter(wanted.has, records_of(path, item))
            elif wanted.ended(item) and not past_damage:
                return
        if not follow or files.snapshot is not None:
            return
        time.sleep(POLL_SECONDS)


def is_one_of(record: Record, names: list[tuple[bytes, ...]]) -> bool:
    """Whether one of the record's commands begins with one of the names."""
    return any(
        tuple(word.upper() for word in command[: len(name)]) == name
        for command in commands(record.effect)
        for name in names
    )


def as_lines(record: Record) -> str:
    db = database(record.effect)
    head = (
        f"{record.lsn:>8}  {time_text(record.now)}  {record.segment}@{record.offset}  "
        f"{MARKS[record.unit]}  {'' if db is None else f'[{db}] '}"
    )
    lines = [command_line(command) for command in commands(record.effect)]
    return "".join(f"{head}{line}\n" for line in lines or [f"# {comment(record)}"])


def comment(record: Record) -> str:
    """The name and fields of a record that has no command."""
    if record.effect[0] & OPCODE == EPOCH:
        _, number, incarnation = record.effect
        return f"EPOCH {number} {incarnation:016x}"
    fields = record.effect[1 if database(record.effect) is None else 2 :]
    shown = [command_line([field]) if isinstance(field, bytes) else str(field) for field in fields]
    return " ".join([record.name, *shown])


def as_object(record: Record) -> str:
    return (
        json.dumps(
            {
                "lsn": record.lsn,
                "time_ms": record.now,
                "segment": record.segment,
                "offset": record.offset,
                "unit": record.unit,
                "record": record.name,
                "db": database(record.effect),
                "commands": [[json_value(arg) for arg in c] for c in commands(record.effect)],
            }
        )
        + "\n"
    )
