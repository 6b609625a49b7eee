"""Failed: an expected error of a command that is no error of a store."""

from __future__ import annotations

from typing import Any

import click


class Failed(click.ClickException):
    """One line on standard error. Each subclass has an `exit_code` of tools/exits.py."""

    def show(self, file: Any = None) -> None:
        click.echo(f"tidelog: {self.format_message()}", file=file, err=True)
