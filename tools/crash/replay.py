"""`tidelog crash replay`: show a finding in words, and open that state again."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidelog.crash import report as reports
from tidelog.crash.errors import CrashError
from tidelog.crash.served import be_quiet
from tidelog.crash.shrink import tried_again
from tidelog.crash.trace import unpack
from tidelog.disk.real import RealDisk
from tidelog.tools import exits
from tidelog.tools.crash import shutdowns
from tidelog.tools.crash.scratch import scratch
from tidelog.tools.text import examples


@click.command(
    help="Show a finding of the crash bench, and try it again.",
    epilog=examples("tidelog crash replay crash-findings/lost-1"),
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, as_json: bool) -> int:
    try:
        finding = reports.load(RealDisk(), directory)
        lines = reports.describe(finding)
        trace = unpack(finding.trace, str(directory))
    except CrashError as error:
        raise click.ClickException(str(error)) from error
    be_quiet()
    with scratch(lambda text: click.echo(text, err=True)) as place:
        room = place / "replay"
        RealDisk().mkdir(room)
        if finding.layer == shutdowns.MACHINE:
            try:
                fault = shutdowns.try_again(room, trace, finding)
            except shutdowns.CannotMount as error:
                raise click.ClickException(f"the finding cannot be tried here: {error}") from error
        else:
            fault = tried_again(finding, trace, room)
    if as_json:
        words = None if fault is None else f"{fault.kind.value}: {fault.words}"
        click.echo(json.dumps({"found": lines, "now": words}))
    else:
        for line in lines:
            click.echo(line)
        if fault is None:
            click.echo("now: the store keeps its promises in this state")
        else:
            click.echo(f"now: {fault.kind.value}: {fault.words}")
    return exits.OK if fault is None else exits.FAILED
