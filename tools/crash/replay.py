"""`tidelog crash replay`: show a finding in words, and open that state again."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.crash import report as reports
from tidelog.crash.errors import CrashError
from tidelog.crash.explore import Finding
from tidelog.crash.served import Files, be_quiet, serve
from tidelog.crash.shrink import tried_again
from tidelog.crash.states import cut_at
from tidelog.crash.subjects import bench
from tidelog.crash.subjects.bench import SUBJECT
from tidelog.crash.trace import Trace, unpack
from tidelog.disk.real import RealDisk
from tidelog.testing.scratch import scratch
from tidelog.tools import console, exits
from tidelog.tools.crash import blocks, shutdowns
from tidelog.tools.crash.cutting import REAL
from tidelog.tools.crash.models import NOT_FOUND, ORDERED, model_option, on_ordered
from tidelog.tools.heads import json_option, tool_command


@tool_command(
    "tidelog crash replay crash-findings/lost-1",
    codes=(exits.OK, exits.FAILED, exits.USAGE, exits.NOT_A_STORE, exits.SYSTEM),
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--check",
    default="",
    help="The check of a finding of your own program. A check that the finding holds is shown, and not run.",
)
@model_option
@json_option()
def command(directory: Path, check: str, model: str | None, as_json: bool) -> int:
    try:
        finding = reports.load(RealDisk(), directory)
        lines = reports.describe(finding)
        trace = unpack(finding.trace, str(directory))
    except CrashError as error:
        raise click.ClickException(str(error)) from error
    be_quiet()
    if finding.layer == reports.TEST:
        return _of_a_test(finding, trace, lines, as_json)
    with scratch(lambda text: click.echo(text, err=True)) as place:
        room = place / "replay"
        RealDisk().mkdir(room)
        if finding.layer in REAL:
            try:
                if finding.layer in blocks.RECORDED:
                    fault = blocks.try_again(room, trace, finding.layer)
                else:
                    fault = shutdowns.try_again(room, trace, finding)
            except shutdowns.CannotMount as error:
                raise click.ClickException(f"the finding cannot be tried here: {error}") from error
        elif finding.layer == SUBJECT:
            try:
                fault = bench.try_again(room, trace, finding, check)
            except CrashError as error:
                raise click.ClickException(str(error)) from error
        else:
            fault = tried_again(finding, trace, room)
        counts = model != ORDERED or finding.layer != SUBJECT or bench.counts_in(finding, model)
        if model == ORDERED:
            can_show = on_ordered(finding, place / "ordered")
            lines.append(f"on an ordered file system: {can_show}")
            counts = counts and not can_show.startswith(NOT_FOUND)
    words = None if fault is None else f"{fault.kind.value}: {fault.words}"
    told = words or "the store keeps its promises in this state"
    console.told(as_json, {"found": lines, "now": words}, "\n".join([*lines, f"now: {told}"]))
    return exits.OK if fault is None or not counts else exits.FAILED


def _of_a_test(finding: Finding, trace: Trace, lines: list[str], as_json: bool) -> int:
    """Show the state of a finding in a user's test, as the store serves it. The test itself is not in the finding."""
    with scratch(lambda text: click.echo(text, err=True)) as place:
        served = serve(Files(place), cut_at(trace, finding.time).image(finding.state))
    if served.contents is None:
        now = [f"refused: {served.refused}"]
    else:
        now = [f"the store has {_held(key, content)}" for key, content in served.contents.items()]
    told = [*lines, *(f"now: {line}" for line in now or ["the store is empty"])]
    seed = trace.about["seed"]
    told.append(f"run the test again with --crash-seed {seed}: only that knows what is wrong here")
    console.told(as_json, {"found": lines, "now": "\n".join(now)}, "\n".join(told))
    return exits.FAILED if served.contents is None else exits.OK


def _held(key: bytes, content: object) -> str:
    name = key.decode(errors="backslashreplace")
    if not isinstance(content, tuple):
        return f"the string {name}"
    return f"the stream {name} with {len(content[0]):,} entries, the last ID {content[1]}"
