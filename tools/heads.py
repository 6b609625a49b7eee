"""Heads of commands: the end of their help, and what --json does. The table of a command's group begins its help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from tidelog.tools import exits
from tidelog.tools.text import examples

OBJECT: Final = "Print one JSON object."
LINES: Final = "Print one JSON object per line."
F = TypeVar("F", bound=Callable[..., Any])


def json_option(help: str = OBJECT) -> Callable[[F], F]:
    """The option --json."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def tool_command(
    *lines: str, codes: Sequence[int] = exits.READING, note: str = "", **given: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, whose help ends with the note, its exit codes and these examples; `given` is for
    click.
    """
    more = examples(*lines, codes=codes)
    return click.command(epilog=f"{note}\n\n{more}" if note else more, **given)
