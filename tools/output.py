"""The one file that a command writes: refused before the work if it cannot be written, else written as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from tidelog.tools.failed import Unable

F = TypeVar("F", bound=Callable[..., Any])


def output_option(help: str, *, required: bool = False) -> Callable[[F], F]:
    """The option --output."""
    path = click.Path(path_type=Path)
    return click.option("-o", "--output", required=required, type=path, help=help)


force_option = click.option("--force", is_flag=True, help="Replace the file if it exists.")


def writable(output: Path, force: bool) -> None:
    """Find out before the work that the file could not be written."""
    there = os.path.lexists(output)  # a link that leads nowhere is somebody's too
    if there and force and not output.is_file():
        raise Unable(f"{output} is not a plain file, so it is not replaced; give another name")
    if there and not force:
        raise Unable(f"{output} exists already; give another name, or --force to replace it")
    if not output.parent.is_dir():
        raise Unable(f"{output}: its directory does not exist")


def publish(output: Path, data: bytes) -> None:
    """Write the file whole or not at all."""
    beside = output.with_name(output.name + ".new")
    try:
        beside.write_bytes(data)
        os.replace(beside, output)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a new file to write. If writing fails, delete it: half an export looks complete."""
    file = path.open("xb")
    try:
        with file:
            yield file
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
