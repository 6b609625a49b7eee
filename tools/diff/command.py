"""`tidelog diff`: what two logs have in common and where they part, or where two states differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from tidelog.tools import console, exits, names
from tidelog.tools.aof.wanted import Match, names_option
from tidelog.tools.diff.logs import Parting, Side, lives_through, parting
from tidelog.tools.diff.states import Difference, differences, text_of
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import LogFiles, look_at
from tidelog.tools.moment import contents_at
from tidelog.tools.replay import Contents
from tidelog.tools.text import argument, json_value, place_text, time_text

VERSION: Final = 1
SHOWN: Final = 10  # differences of one kind and key, without --full


class PathAt(NamedTuple):
    """A path, and the LSN behind its @."""

    path: Path
    lsn: int | None

    def __str__(self) -> str:
        return str(self.path)


def place(ctx: click.Context, param: click.Parameter, value: str) -> PathAt:
    """The value of A or B. A path that exists is taken as it stands, also with an @ in its name."""
    before, at, lsn = value.rpartition("@")
    if at and lsn.isdecimal() and not Path(value).exists():
        return PathAt(Path(before), int(lsn))
    return PathAt(Path(value), None)


@tool_command(
    "tidelog diff orders-data old-leader",
    "tidelog diff orders-data backup --state --key 'orders:*'",
    "tidelog diff orders-data@4711 orders-data@4735 --state --json",
    codes=(*exits.READING, exits.DIFFERS),
)
@click.argument("a", metavar="A", callback=place)
@click.argument("b", metavar="B", callback=place)
@click.option(
    "--state",
    "of_states",
    is_flag=True,
    help="Compare the states, each as of now, or as of LSN if it is given as PATH@LSN.",
)
@names_option(
    "key",
    names.keys,
    "With --state: compare only this key, or keys that match this glob; may be repeated.",
)
@click.option("--full", is_flag=True, help="With --state: show every difference of a key.")
@json_option("Print one JSON object; with --state one per line and difference.")
def command(
    a: PathAt, b: PathAt, of_states: bool, wanted_key: Match | None, full: bool, as_json: bool
) -> int:
    if of_states:
        found = _states(a, b, wanted_key, full=full, as_json=as_json)
    elif wanted_key or full or a.lsn is not None or b.lsn is not None:
        raise click.UsageError("--key, --full and PATH@LSN belong to --state")
    else:
        found = _logs(a, b, as_json=as_json)
    return exits.DIFFERS if found else exits.OK


# --- logs


def _logs(a: PathAt, b: PathAt, *, as_json: bool) -> bool:
    one, two = look_at((a.path,)), look_at((b.path,))
    with one.still(), two.still():
        found = parting(one, two)
    if as_json:
        console.json_object(as_object(found))
    else:
        show(found, a, b)
    return found.reason is not None


def as_object(found: Parting) -> dict[str, Any]:
    return {
        "v": VERSION,
        "equal": found.reason is None,
        "first_lsn": found.first,
        "last_lsn": found.last,
        "reason": found.reason,
        "a": side_object(found.a),
        "b": side_object(found.b),
    }


def side_object(side: Side) -> dict[str, Any]:
    return {
        "uuid": side.uuid,
        "first_lsn": side.first,
        "last_lsn": side.last,
        "lives": [
            {"number": number, "incarnation": f"{incarnation:016x}", "first_lsn": lsn}
            for number, incarnation, lsn in side.lives
        ],
        "beyond": side.beyond.figures(),
    }


def show(found: Parting, a: PathAt, b: PathAt) -> None:
    for name, path, side in (("A", a, found.a), ("B", b, found.b)):
        held = f"LSN {side.first:,} to {side.last:,}" if side.last else "no records"
        click.echo(f"{name}         {path}: store {side.uuid}, {held}")
    if found.last:
        lives = len(lives_through(found.a, found.last))
        click.echo(f"common    LSN {found.first:,} to {found.last:,}, {lives} lives")
    else:
        click.echo("common    nothing")
    if found.reason is None:
        click.echo("equal     neither has a record that the other lacks")
        return
    click.echo(f"parted    behind LSN {found.last:,}: {found.reason}")
    for name, side in (("A", found.a), ("B", found.b)):
        for line in beyond_lines(side):
            click.echo(f"{name} beyond  {line}")


def beyond_lines(side: Side) -> Iterator[str]:
    told = side.beyond.figures()
    if not told["records"]:
        yield "nothing"
        return
    yield (
        f"{told['records']:,} records, LSN {told['first_lsn']:,} to {told['last_lsn']:,}, "
        f"{time_text(told['first_unix_ms'])} to {time_text(told['last_unix_ms'])}"
    )
    for row in told["streams"]:
        yield f"{_key(row)}: {row['entries']:,} entries added, {row['first']} to {row['last']}"
    for row in told["groups"]:
        yield (
            f"{_key(row)}, group {argument(row['group'].encode())}: {row['delivered']:,} delivered, "
            f"{row['acknowledged']:,} acknowledged"
        )
    if told["others"]:
        yield f"{told['others']:,} records about anything else"


def _key(row: dict[str, Any]) -> str:
    return place_text(row["db"], row["key"].encode())


# --- states


def _states(a: PathAt, b: PathAt, wanted: Match | None, *, full: bool, as_json: bool) -> bool:
    one, two = LogFiles(a.path, snapshots=True), LogFiles(b.path, snapshots=True)
    with contents_at(one, a.lsn, None) as left, contents_at(two, b.lsn, None) as right:
        found = differences(left.state, right.state, wanted)
        if as_json:
            count = 0
            for count, difference in enumerate(found, 1):
                console.json_object(difference_object(difference))
            return count > 0
        for name, path, held in (("A", a, left), ("B", b, right)):
            click.echo(f"{name}  {path}: state at LSN {held.last_lsn:,}{_written(held)}")
        return _show_differences(found, full=full)


def _written(held: Contents) -> str:
    return f", last write {time_text(held.now)}" if held.now else ""


def difference_object(difference: Difference) -> dict[str, Any]:
    return {
        "v": VERSION,
        "db": difference.db,
        "key": json_value(difference.key),
        "difference": difference.kind,
        "group": None if difference.group is None else json_value(difference.group),
        "name": difference.name,
        "a": difference.a,
        "b": difference.b,
    }


def _show_differences(found: Iterator[Difference], *, full: bool) -> bool:
    total = 0
    for (db, key), items in groupby(found, key=lambda item: (item.db, item.key)):
        click.echo(f"[{db}] {argument(key)}")
        for (kind, group), alike in groupby(items, key=lambda item: (item.kind, item.group)):
            count = 0
            for count, difference in enumerate(alike, 1):
                if full or count <= SHOWN:
                    click.echo(f"  {text_of(difference)}")
            total += count
            if not full and count > SHOWN:
                of = "" if group is None else f" of group {argument(group)}"
                click.echo(f"  and {count - SHOWN:,} more: {kind.replace('_', ' ')}{of}")
    click.echo(f"{total:,} differences" if total else "no difference")
    return total > 0
