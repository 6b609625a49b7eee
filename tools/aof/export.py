"""`tidelog aof export --resp`: the log as a stream of commands for `redis-cli --pipe`.

The form is that of Redis's propagation (spec 11): SELECT when the database changes, MULTI and EXEC around a unit of
several commands, so that the receiver also gets all of a unit or nothing. Only whole units are written, even if the
log ends in damage.

With `--at-lsn` or `--at-time` it is the state of that moment, in the form of a rewrite, and no log.

If the first part of the log was released, the export begins with the state of the checkpoint, written as Redis
rewrites its own log (engine/commands/rewrite.py). The command lists everything that this form cannot carry on standard
error at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import click

from tidelog.aof.frame import Frame
from tidelog.engine.commands.lower import lowered
from tidelog.engine.commands.rewrite import Lost, Target, commands_about, rewrite
from tidelog.engine.effects.as_commands import Command, commands, database
from tidelog.engine.effects.effect import Effect
from tidelog.engine.keys.state import State
from tidelog.resp.commands import encoded
from tidelog.tools import console
from tidelog.tools.aof.losses import as_objects, as_table, target_option
from tidelog.tools.aof.records import LAST, ONLY, UNFIT, Record, blamed, records_of, unfit
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import at_options, contents_at
from tidelog.tools.output import new_file, output_option

ADVANCE_EVERY: Final = 256  # commands exported between two updates of the progress bar


class Base(NamedTuple):
    """Where an export begins.

    lsn       `state` contains everything through this LSN; 0 = the log is complete
    state     of the checkpoint, None if the log is whole
    frames    everything after `lsn`, of `size` bytes
    """

    lsn: int
    state: State | None
    frames: Iterator[tuple[Path, Frame]]
    size: int


@contextmanager
def moment_of(path: Path, at_lsn: int | None, at_time: int | None) -> Iterator[Base]:
    """The state of a moment, without any log behind it."""
    with contents_at(LogFiles(path, snapshots=True), at_lsn, at_time) as found:
        yield Base(found.last_lsn, found.state, iter(()), 0)


@contextmanager
def base_of(path: Path) -> Iterator[Base]:
    """The base of a store. Files opened for it are closed at the end of the block."""
    files = LogFiles(path, snapshots=True, surpluses=True)
    with files.still():
        found = files.survey()[1]
        if not files.has_checkpoint or (found and found[0].header.first_lsn == 1):
            yield Base(0, None, files.frames(), files.size())
            return
        with files.opened_checkpoint() as opened:
            lsn = opened.meta.position.lsn
            behind = ((path, frame) for path, frame in files.frames() if frame.lsn > lsn)
            yield Base(lsn, opened.state(), behind, files.size())


@tool_command(
    "tidelog aof export --resp orders-data | redis-cli --pipe",
    "tidelog aof export --resp orders-data -o orders.resp",
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--resp",
    "as_resp",
    is_flag=True,
    required=True,
    help="Write RESP, which redis-cli --pipe reads.",
)
@output_option("Write to this new file instead of standard output.")
@click.option(
    "--to-lsn", type=click.IntRange(0), help="Stop after the unit that contains this LSN."
)
@at_options
@target_option(Target, Target.REDIS_8_8, "import the commands")
@json_option("Print what cannot be exported as one JSON object.")
def command(
    path: Path,
    as_resp: bool,
    output: Path | None,
    to_lsn: int | None,
    at_lsn: int | None,
    at_time: int | None,
    target: str,
    as_json: bool,
) -> None:
    moment = at_lsn is not None or at_time is not None
    if moment and to_lsn is not None:
        raise click.UsageError("--to-lsn cannot be used with --at-lsn or --at-time")
    lost = Lost()
    with ExitStack() as stack:
        base = stack.enter_context(moment_of(path, at_lsn, at_time) if moment else base_of(path))
        if to_lsn is not None and to_lsn < base.lsn:
            raise click.UsageError(
                f"the records up to LSN {base.lsn} are only in the checkpoint, so --to-lsn must be {base.lsn} or more"
            )
        out: BinaryIO = sys.stdout.buffer
        if output is not None:
            out = stack.enter_context(new_file(output))
        try:
            for line in exported(base, lost, to_lsn, Target(target)):
                out.write(encoded(line))
        except UNFIT as error:
            raise blamed(LogFiles(path, snapshots=True, surpluses=True), error) from error
        out.flush()
    if as_json:
        click.echo(json.dumps({"checkpoint_lsn": base.lsn, "lost": as_objects(lost)}), err=True)
    elif lost:
        click.echo(as_table(lost, "Redis has no command for it"), nl=False, err=True)


def exported(base: Base, lost: Lost, to_lsn: int | None, target: Target) -> Iterator[Command]:
    """Yield the commands of the state, then those of the log. Shows progress on standard error."""
    if base.state is not None:
        yield from state_commands(base.state, lost, target)
    with console.progress("exporting", base.size, size=True) as advance:
        reading: tuple[Path, Frame] | None = None

        def records() -> Iterator[Record]:
            nonlocal reading
            for reading in base.frames:
                yield from records_of(*reading)
                advance(len(reading[1].body))

        form = partial(lowered, lost=lost) if target is Target.REDIS_7_0 else commands
        try:
            yield from stream(units(records(), to_lsn), form)
        except UNFIT as error:
            if reading is None:
                raise
            raise unfit(*reading, error) from error


def state_commands(state: State, lost: Lost, target: Target) -> Iterator[Command]:
    """`rewrite` with a progress bar, for which all keys are counted first."""
    total = commands_about(state) if sys.stderr.isatty() else 0
    with console.progress("exporting the checkpoint", total) as advance:
        for number, line in enumerate(rewrite(state, lost, target), 1):
            yield line
            if not number % ADVANCE_EVERY:
                advance(ADVANCE_EVERY)


def units(records: Iterable[Record], to_lsn: int | None = None) -> Iterator[list[Record]]:
    """Yield whole units, up to the one that contains `to_lsn`."""
    unit: list[Record] = []
    for record in records:
        unit.append(record)
        if record.unit in (ONLY, LAST):
            yield unit
            unit = []
            if to_lsn is not None and record.lsn >= to_lsn:
                return


def stream(
    all_units: Iterable[list[Record]], form: Callable[[Effect], list[Command]] = commands
) -> Iterator[Command]:
    """The commands of the units, with SELECT, MULTI and EXEC between them. `form`: the commands of one effect."""
    selected: int | None = None
    for unit in all_units:
        lines: list[Command] = []
        wanted = selected
        for record in unit:
            made = form(record.effect)
            db = database(record.effect)
            if made and db is not None and db != wanted:
                select = [b"SELECT", b"%d" % db]
                # If the SELECT is the unit's first command, it may stand before MULTI. A later SELECT must be inside
                # the transaction.
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
