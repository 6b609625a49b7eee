"""`tidelog queue schedule pause`, `resume` and `rm`: change one schedule by its name."""

from __future__ import annotations

import click

from tidelog.tools import console, exits
from tidelog.tools.failed import NotThere
from tidelog.tools.names import schedules
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.store import listed, writable
from tidelog.tools.queue.value import one_line


def change(verb: str, done: str, method: str) -> click.Command:
    """The command that calls a method of `Store.schedules` and says what is `done`."""

    @at_path_or_url(f"tidelog queue schedule {verb} orders-data nightly", codes=exits.CHANGING)
    @click.argument("name", shell_complete=schedules)
    def command(path: PathOrUrl, name: str, as_json: bool) -> None:
        with writable(path, f"db.schedules.{method}()") as store:
            if not getattr(store.schedules, method)(name):
                names = [schedule.name for schedule in store.schedules.list()]
                raise NotThere(
                    f"there is no schedule {one_line(name)} in {path}: {listed('it holds', names)}"
                )
        console.told(as_json, {done: name}, f"{one_line(name)} {done}")

    return command


pause = change("pause", "paused", "pause")
resume = change("resume", "resumed", "resume")
rm = change("rm", "removed", "remove")
