"""`tidelog completion`: print the script that lets a shell complete commands, options and names.

The script runs `tidelog` with COMPLETE in its environment; `answer` then prints the candidates. Names of queues, groups
and keys come from the store whose PATH is on the line.
"""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import shell_complete

from tidelog.tools import exits
from tidelog.tools.text import examples

PROGRAM: Final = "tidelog"
COMPLETE: Final = "_TIDELOG_COMPLETE"  # the name that click's scripts give
SHELLS: Final = ("bash", "zsh", "fish")


@click.command(
    help="Print the script that lets a shell complete commands, options and names.",
    epilog=examples(
        "tidelog completion bash",
        "tidelog completion zsh",
        "tidelog completion fish",
        codes=(exits.OK, exits.USAGE),
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    return shell_complete(ctx.find_root().command, {}, PROGRAM, COMPLETE, f"{shell}_source")


def answer(cli: click.Command) -> int:
    """Print the candidates that the shell asks for. Returns the exit code."""
    return shell_complete(cli, {}, PROGRAM, COMPLETE, os.environ[COMPLETE])
