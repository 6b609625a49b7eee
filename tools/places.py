"""Places: PATH or URL on a command line, for commands that work on a directory or through a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

Place = Path | str  # the directory of a store, or the URL of a server


class PlaceType(click.Path):
    """PATH or URL."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path, or a str for a URL."""
        return value if "://" in str(value) else super().convert(value, param, ctx)


# As STORE_PATH, or a URL.
PLACE: Final = PlaceType(path_type=Path, readable=False)


class AtPlace(click.Command):
    """A command whose first argument is PATH. `--url URL`, anywhere on the line, says the same as a URL there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
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
