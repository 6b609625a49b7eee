"""Failed: an expected error of a command that is no error of a store, and the kinds that several commands have."""

from __future__ import annotations

from typing import Any

import click

from tidelog.tools import exits


class Failed(click.ClickException):
    """One line on standard error. Each subclass has an `exit_code` of tools/exits.py."""

    def show(self, file: Any = None) -> None:
        click.echo(f"tidelog: {self.format_message()}", file=file, err=True)


class Wrong(Failed):
    """An option, a file or a directory that was given is not as it must be."""

    exit_code = exits.USAGE


class NotThere(Failed):
    """There is no such store, key, queue or run."""

    exit_code = exits.NOT_A_STORE


class Unable(Failed):
    """The system refused what the command needs: an address, a file, a package."""

    exit_code = exits.SYSTEM


class Refused(Failed):
    """A server or the command itself does not do what was asked for."""

    exit_code = exits.REFUSED
