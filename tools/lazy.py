"""Groups of commands that import a command's module only when it is run, so that `tidelog --help` is quick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from tidelog.tools.text import examples


class LazyGroup(click.Group):
    """A group whose commands stand in a table (tools/commands.py), from which they get their help.

    `moved` has commands that moved to the top, in the same form. They still work, and say so.
    """

    def __init__(self, table: Table, *lines: str, moved: Table | None = None, **given: Any) -> None:
        """`lines` are examples for its help; `given` is for click."""
        super().__init__(**{"epilog": examples(*lines, codes=()), **given})
        self.table, self.moved = table, moved or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = self.table.get(cmd_name) or self.moved.get(cmd_name)
        if known is None:
            return None
        found = loaded(known[0])
        found.help = known[1]
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, but the error names commands with a similar name, also those of the groups below."""
        name = args[0]
        if name in self.moved:
            if not ctx.resilient_parsing:
                words = f"{ctx.command_path} {name}"
                click.echo(f"`{words}` is now `tidelog {name}`", err=True)
        elif name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            alike = ", ".join(f"'{found}'" for found in self.alike(name))
            hint = f" Did you mean {alike}?" if alike else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def alike(self, name: str) -> list[str]:
        """The commands that `name` may be meant for: of the same name in a group below, or of a similar name."""
        paths = dict(self._below())
        exact = [path for path, last in paths.items() if last == name]
        similar = get_close_matches(name, paths.values())
        return exact or [
            *get_close_matches(name, self.table),
            *(path for path, last in paths.items() if last in similar),
        ]

    def _below(self) -> Iterator[tuple[str, str]]:
        """(path, last word) of every command of the groups in this one. Imports no command."""
        for name, (group, _) in self.table.items():
            if isinstance(group, LazyGroup):
                for inner in group.table:
                    yield f"{name} {inner}", inner
                for path, last in group._below():
                    yield f"{name} {path}", last

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands from the table, so that a completion imports none of their modules; the options otherwise."""
        items = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.table.items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in self.table.items()])


def loaded(place: str | LazyGroup) -> click.Command:
    """The command or group of a row of a table. A module that makes several commands has one of them behind a colon."""
    if isinstance(place, LazyGroup):
        return place
    module, _, name = place.partition(":")
    found: click.Command = getattr(import_module(module), name or "command")
    return found


# a command's name -> its module, or a group; and a line of help
Table = Mapping[str, tuple[str | LazyGroup, str]]
