"""Change one schedule by its name: the common part of pause, resume and rm."""

from __future__ import annotations

import json
from collections.abc import Callable

import click

from tidelog.tools.places import Place
from tidelog.tools.queue.store import AnyStore, NoSuch, listed, writable
from tidelog.tools.queue.value import one_line


def change(
    path: Place,
    name: str,
    call: str,
    done: str,
    as_json: bool,
    run: Callable[[AnyStore], bool],
) -> None:
    """Run a change and print what was `done`. `call` names the method that does the same. Raises NoSuch, Locked."""
    with writable(path, call) as store:
        if not run(store):
            names = [schedule.name for schedule in store.schedules.list()]
            raise NoSuch(
                f"there is no schedule {one_line(name)} in {path}: {listed('it holds', names)}"
            )
    if as_json:
        click.echo(json.dumps({done: name}))
    else:
        click.echo(f"{one_line(name)} {done}")
