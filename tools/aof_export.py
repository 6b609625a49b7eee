"""`tidelog aof export --resp`: the log as a stream of commands for `redis-cli --pipe`.

As Redis propagates (spec 11): SELECT when the database changes, MULTI and EXEC around a unit of several commands, so
that the receiver too has all of a unit or nothing. Only whole units are written, also when the log ends in damage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from tidelog.engine.as_commands import Command, commands, database
from tidelog.tools import console
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.records import LAST, ONLY, Record, records_of
from tidelog.tools.text import examples, resp


@click.command(
    help="Write the log as commands for redis-cli --pipe.",
    epilog=examples(
        "tidelog aof export --resp orders-data | redis-cli --pipe",
        "tidelog aof export --resp orders-data -o orders.resp",
    ),
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--resp", "as_resp", is_flag=True, required=True, help="As RESP, the form of redis-cli --pipe."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A file; standard output if not given."
)
@click.option("--to-lsn", type=click.IntRange(0), help="Stop after the unit that holds this LSN.")
def command(path: Path, as_resp: bool, output: Path | None, to_lsn: int | None) -> None:
    files = LogFiles(path)
    with ExitStack() as stack:
        out: BinaryIO = sys.stdout.buffer
        if output is not None:
            out = stack.enter_context(output.open("xb"))  # never over what is there
        advance = stack.enter_context(console.progress("exporting", files.size(), size=True))

        def records() -> Iterator[Record]:
            for segment, frame in files.frames():
                yield from records_of(segment, frame)
                advance(len(frame.body))

        for line in stream(units(records(), to_lsn)):
            out.write(resp(line))
        out.flush()


def units(records: Iterable[Record], to_lsn: int | None = None) -> Iterator[list[Record]]:
    """Whole units, up to the one that holds `to_lsn`."""
    unit: list[Record] = []
    for record in records:
        unit.append(record)
        if record.unit in (ONLY, LAST):
            yield unit
            unit = []
            if to_lsn is not None and record.lsn >= to_lsn:
                return


def stream(all_units: Iterable[list[Record]]) -> Iterator[Command]:
    """The commands of the units, with SELECT, MULTI and EXEC between them."""
    selected: int | None = None
    for unit in all_units:
        lines: list[Command] = []
        wanted = selected
        for record in unit:
            made = commands(record.effect)
            db = database(record.effect)
            if made and db is not None and db != wanted:
                select = [b"SELECT", b"%d" % db]
                # The first one may go ahead of MULTI; a change inside of the unit belongs into it.
                if lines:
                    lines.append(select)
                else:
                    yield select
                wanted = db
            lines += made
        selected = wanted
        if len(lines) > 1:
            yield [b"MULTI"]
            yield from lines
            yield [b"EXEC"]
        else:
            yield from lines
