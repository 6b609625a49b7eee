"""PathOrUrl: PATH or URL on a command line, for commands that work on a directory or through a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from tidelog.tools import exits
from tidelog.tools.heads import OBJECT, tool_command

PathOrUrl = Path | str  # the directory of a store, or the URL of a server


class PathOrUrlType(click.Path):
    """PATH or URL."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path, or a str for a URL."""
        return value if "://" in str(value) else super().convert(value, param, ctx)


# As STORE_PATH, or a URL.
PATH_OR_URL: Final = PathOrUrlType(path_type=Path, readable=False)


class AtPathOrUrl(click.Command):
    """A command whose first argument is PATH. `--url URL`, anywhere on the line, says the same as a URL there.

    json    what the option --json does; None: there is none
    """

    def __init__(self, *args: Any, json: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if json is not None:
            self.params.append(click.Option(["--json", "as_json"], is_flag=True, help=json))
        self.params.append(
            click.Option(
                ["--url"], metavar="URL", expose_value=False, help="In place of PATH: a server."
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click, with the URL as the first argument."""
        end = args.index("--") if "--" in args else len(args)
        for at, word in enumerate(args[:end]):
            if word == "--url" and at + 1 < end:
                return super().parse_args(ctx, [args[at + 1], *args[:at], *args[at + 2 :]])
            if word.startswith("--url="):
                return super().parse_args(
                    ctx, [word.removeprefix("--url="), *args[:at], *args[at + 1 :]]
                )
        return super().parse_args(ctx, args)


def at_path_or_url(
    *lines: str, codes: Sequence[int] = exits.READING, json: str | None = OBJECT, note: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """The head of a command whose function takes `path: PathOrUrl` first, and `as_json: bool` if it has the option
    --json.

    `lines` and `note` are as of `tool_command`, and `json` says what --json does.
    """

    def made(function: Callable[..., Any]) -> click.Command:
        at_path = click.argument("path", type=PATH_OR_URL)(function)
        return tool_command(*lines, codes=codes, note=note, cls=AtPathOrUrl, json=json)(at_path)

    return made
