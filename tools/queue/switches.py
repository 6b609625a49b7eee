"""`tidelog queue pause`, `resume` and `rm`: what is done with a queue as a whole, for all of its groups."""

from __future__ import annotations

import click

from tidelog.tools import console, exits
from tidelog.tools.names import queues
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.store import writing
from tidelog.tools.queue.value import one_line


def switch(
    verb: str, done: str, changed: str, unchanged: str, command: str | None = None
) -> click.Command:
    """The command that calls a method of a queue, and what it says; `done` is for JSON.

    command    its name, None = as the method
    """

    @at_path_or_url(
        f"tidelog queue {command or verb} redis://127.0.0.1:6379 mails", codes=exits.CHANGING
    )
    @click.argument("name", shell_complete=queues)
    def call(path: PathOrUrl, name: str, as_json: bool) -> None:
        with writing(path, name, None, f"queue.{verb}()") as queue:
            did: bool = getattr(queue, verb)()
        said = changed if did else unchanged
        console.told(as_json, {done: int(did)}, f"{one_line(name)} {said}")

    return call


pause = switch("pause", "paused", "is paused", "was paused already")
resume = switch("resume", "resumed", "goes on", "was not paused")
rm = switch("remove", "removed", "is removed", "was not there", "rm")
