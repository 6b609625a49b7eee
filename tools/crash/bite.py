"""`tidelog crash --mutants`: plant faults into the engine one by one, and see the bench find each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import click

from tidelog.crash.mutants import PLANTED, Planted
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.testing.scratch import scratch
from tidelog.tools import console, exits
from tidelog.tools.crash.site import sitecustomize

SECONDS: Final = 40.0  # the bench looks so long for one fault
OVER_S: Final = 60.0  # a task that has begun may take so much longer
MARK: Final = "planted"  # in the scratch directory


class Caught(NamedTuple):
    """The outcome of the search for one fault. `kind` is that of the finding; "" if there was none, as `words` says."""

    kind: str
    words: str
    seconds: float


def search(fault: Planted, policy: str, scratch: Path, seconds: float) -> Caught:
    """Plant a fault in a process of its own, and have the bench look for it under a policy.

    scratch   an existing empty directory
    """
    change = {"file": fault.file, "anchor": fault.anchor, "replacement": fault.replacement}
    mark = scratch / MARK
    site = Path(sitecustomize.__file__).parent
    env = {
        **os.environ,
        sitecustomize.CHANGE: json.dumps(change),
        sitecustomize.MARK: str(mark),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))),
    }
    command = (sys.executable, "-m", "tidelog.crash.mutants")
    started = time.monotonic()
    try:
        done = subprocess.run(
            [*command, fault.layer, policy, str(seconds), str(scratch)],
            env=env,
            capture_output=True,
            text=True,
            timeout=seconds + OVER_S,
        )
    except subprocess.TimeoutExpired:
        return Caught("", "the bench hung", time.monotonic() - started)
    passed = time.monotonic() - started
    if done.returncode != 0:
        return Caught("", f"the bench failed: {done.stderr.strip()[-300:]}", passed)
    if not mark.exists():
        return Caught("", f"no module of {fault.file} was loaded", passed)
    kind, words = json.loads(done.stdout)
    return Caught(kind, words, passed)


def bite(as_json: bool, faults: tuple[Planted, ...] = PLANTED) -> int:
    """Try the faults, and print a line for each. Returns the exit code."""

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    outcomes: list[tuple[Planted, Caught]] = []
    interrupted = False
    try:
        with scratch(say) as place:
            for fault in faults:
                caught = _tried(fault, place / str(len(outcomes)))
                outcomes.append((fault, caught))
                say(
                    f"{caught.kind or 'missed':8} {caught.seconds:5.1f} s  {fault.name}: {fault.promise}"
                )
                if not caught.kind:
                    say(f"{'':18}{caught.words}")
    except KeyboardInterrupt:
        interrupted = True
    missed = sum(not caught.kind for _, caught in outcomes)
    if as_json:
        found = [
            {"fault": fault.name, "layer": fault.layer, **caught._asdict()}
            for fault, caught in outcomes
        ]
        console.json_object({"mutants": found, "planted": len(outcomes), "missed": missed})
    say(f"{len(outcomes) - missed} of {len(outcomes)} planted faults found")
    if interrupted:
        click.echo("interrupted", err=True)
        return exits.INTERRUPTED
    return exits.FAILED if missed else exits.OK


def _tried(fault: Planted, room: Path) -> Caught:
    disk = RealDisk()
    disk.mkdir(room)
    try:
        # The last policy has the fewest syncs, so nearly every fault is found soonest.
        return search(fault, fault.policies[-1], room, SECONDS)
    finally:
        recipe.remove_tree(disk, room)
