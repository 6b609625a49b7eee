"""The values of options that name a time or a length of time, and options that had another name before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from tidelog.tools.text import age_seconds, parse_time

F = TypeVar("F", bound=Callable[..., Any])
FORMS: Final = "in seconds, or as 15m, 2h, 1d12h"


class Option(click.Option):
    """An option that may have had other names. They still work, and no help shows them."""

    def __init__(self, *args: Any, formerly: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.formerly = formerly

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """As click, with the former names."""
        shown, self.opts = self.opts, [*self.opts, *self.formerly]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def renamed(*names: str, **more: Any) -> Callable[[F], F]:
    """An option, with its former names as `formerly`."""
    return click.option(*names, cls=Option, **more)


class Duration(click.FloatRange):
    """A length of time in seconds: 90, 1.5, 90s, 15m, 2h, 1d12h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The seconds, a float in the range."""
        seconds = age_seconds(value) if isinstance(value, str) else None
        try:
            number = float(value if seconds is None else seconds)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a duration; give it {FORMS}", param, ctx)
        return super().convert(number, param, ctx)


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Unix milliseconds, as tools.text.parse_time reads the value; a callback of click."""
    try:
        return None if value is None else parse_time(value, time.time_ns() // 1_000_000)
    except ValueError:
        hint = f"{value!r} is not a time; give 2026-11-21T10:00, a Unix time, or 15m for 15 minutes ago"
        raise click.BadParameter(hint) from None


def duration(
    *names: str,
    help: str,
    least: float = 0,
    most: float | None = None,
    above: bool = False,
    **more: Any,
) -> Callable[[F], F]:
    """An option whose value is a length of time, in seconds."""
    text = f"{help} Give it {FORMS}."
    return renamed(*names, type=Duration(least, most, min_open=above), help=text, **more)


every_option = duration(
    "--every",
    least=0.1,
    most=3600,
    default=1.0,
    show_default=True,
    help="The time from one look to the next.",
)
