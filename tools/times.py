"""The value of options that name a time."""

from __future__ import annotations

import time

import click

from tidelog.tools.text import parse_time


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Unix milliseconds, as tools.text.parse_time reads the value; a callback of click."""
    try:
        return None if value is None else parse_time(value, time.time_ns() // 1_000_000)
    except ValueError:
        hint = f"{value!r} is not a time; give 2026-11-21T10:00, a Unix time, or 15m for 15 minutes ago"
        raise click.BadParameter(hint) from None
