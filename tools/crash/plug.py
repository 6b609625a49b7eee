"""`tidelog crash plug`: write to a store until somebody pulls the plug, and say afterwards what is missing.

Only this shows whether a drive obeys a flush: the machine must really lose its power. A witness on another machine
notes each write that the store acknowledged as fsynced. Afterwards all of them must be there.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from pathlib import Path
from typing import Final

import click

from tidelog.api.opening import open_store
from tidelog.crash.served import be_quiet
from tidelog.disk.real import RealDisk
from tidelog.store.errors import CannotOpen, StoreLocked, TidelogError
from tidelog.tools import exits
from tidelog.tools.crash.medium import words_of
from tidelog.tools.crash.plugged import Line, Writers, missing
from tidelog.tools.crash.session import time_option
from tidelog.tools.crash.witness import NOTED, PORT, RUN, UNKNOWN, WRITERS_MAX
from tidelog.tools.failed import NotThere, Unable, Wrong
from tidelog.tools.heads import tool_command

KEY: Final = b"plug"  # has the name of the run
LOOK_S: Final = 0.5


def address_of(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    """The address of HOST:PORT or [HOST]:PORT."""
    host, _, port = value.rpartition(":")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 0
    if not host or not 0 < number < 65536:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, as in 192.0.2.7:{PORT}")
    return host.removeprefix("[").removesuffix("]"), number


def run_of(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The name of a run."""
    if value is not None and not RUN.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not the name of a run: 16 hexadecimal digits")
    return value


def write(path: Path, address: tuple[str, int], writers: int, seconds: float | None) -> int:
    """Make a store and write until the time is over, the witness is gone, or the power is."""
    disk = RealDisk()
    if not disk.exists(path):
        disk.mkdir(path)
        disk.sync_directory(path.absolute().parent)
    elif disk.listdir(path):
        raise Wrong(f"{path} is not empty; name a new directory")
    click.echo(f"directory {path}: {words_of(path)}")
    host, port = address
    run = secrets.token_hex(8)
    db = open_store(path, fsync="always")
    try:
        with db:
            db.set(KEY, run.encode())
            line = _line(address, "plug", run)
            work = Writers(db, run, line, writers)
            work.start()
            try:
                click.echo(f"run {run}: pull the plug at any time. When the machine is back:")
                click.echo(
                    f"  tidelog crash plug {path} --after --run {run} --witness {host}:{port}"
                )
                end = math.inf if seconds is None else time.monotonic() + seconds
                # A Ctrl-C right before Python waits for a lock does not end that wait, so it is a short one.
                while (left := end - time.monotonic()) > 0 and not work.stop.wait(
                    min(left, LOOK_S)
                ):
                    pass
            finally:
                work.join()
                line.close()
            if work.failed is not None:
                raise work.failed
    except (TidelogError, OSError) as error:
        raise Unable(f"the store takes no more writes: {error}") from error
    click.echo(
        f"{sum(work.told):,} writes were acknowledged and told, and the power is still there"
    )
    return exits.OK


def look(path: Path, address: tuple[str, int], run: str | None) -> int:
    """Open the store after the power came back, and compare it with the notes."""
    noted = {} if run is None else _noted(address, run)
    there = RealDisk().exists(path)
    if run is None and not there:
        raise NotThere(f"{path} does not exist. If its name was lost with the power, say --run RUN")
    try:
        if not there:
            found = [f"lost: {path} does not exist"]
        else:
            with open_store(path, fsync="always") as db:
                if run is None:
                    run = _kept(path, db.get(KEY))
                    noted = _noted(address, run)
                found = missing(db, run, noted)
    except (StoreLocked, CannotOpen):
        raise
    except TidelogError as error:
        found = [f"refused: {type(error).__name__}: {error}"]
    for text in found:
        click.echo(text)
    if found:
        return exits.FAILED
    click.echo(
        f"run {run}: all {sum(noted.values()):,} acknowledged writes that were noted are there"
    )
    return exits.OK


def _kept(path: Path, found: object) -> str:
    """The run that a store knows."""
    run = found.decode(errors="replace") if isinstance(found, bytes) else ""
    if not RUN.fullmatch(run):
        raise NotThere(
            f"{path} knows no run of tidelog crash plug. If that was lost, say --run RUN"
        )
    return run


def _noted(address: tuple[str, int], run: str) -> dict[int, int]:
    """The notes of the witness."""
    line = _line(address, "after", run)
    line.close()
    if line.answer == UNKNOWN:
        raise NotThere(f"the witness at {address[0]}:{address[1]} knows no run {run}")
    return {int(writer): int(number) for writer, number in json.loads(line.answer).items()}


def _line(address: tuple[str, int], kind: str, run: str) -> Line:
    line = Line(address, kind, run)
    expected = line.answer == NOTED if kind == "plug" else line.answer[:1] in ("{", UNKNOWN[0])
    if not expected:
        line.close()
        raise Unable(f"{address[0]}:{address[1]} is no witness of tidelog crash")
    return line


@tool_command(
    f"tidelog crash plug plug-store --witness 192.0.2.7:{PORT}",
    f"tidelog crash plug plug-store --after --witness 192.0.2.7:{PORT}",
    codes=(exits.OK, exits.FAILED, exits.USAGE, exits.NOT_A_STORE, exits.LOCKED, exits.SYSTEM),
)
@click.argument("path", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--witness",
    required=True,
    callback=address_of,
    metavar="HOST:PORT",
    help="Address of `tidelog crash witness` on a machine that keeps its power.",
)
@click.option("--after", is_flag=True, help="Open the store, and compare it with the notes.")
@click.option(
    "--run",
    callback=run_of,
    help="With --after: the name of the run. Needed only if the store has lost it.",
)
@click.option(
    "--writers",
    default=4,
    show_default=True,
    type=click.IntRange(1, WRITERS_MAX),
    help="Number of threads that write.",
)
@time_option("End after this time; without it, write until the plug is pulled.")
def command(
    path: Path,
    witness: tuple[str, int],
    after: bool,
    run: str | None,
    writers: int,
    seconds: float | None,
) -> int:
    be_quiet()
    if after:
        return look(path, witness, run)
    if run is not None:
        raise click.UsageError("--run is for --after")
    return write(path, witness, writers, seconds)
