"""The `tidelog` command: how it runs one of its commands (tools/commands.py), and how errors are printed.

An error is one line on standard error that
says what, where and what to do, never a traceback, and an exit code per kind (tools/exits.py).
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any, cast

import click

from tidelog.disk.readable import ERRORS
from tidelog.resp.urls import without_passwords
from tidelog.spark.errors import TidelogSparkError
from tidelog.store.version import __version__
from tidelog.tools import exits
from tidelog.tools.commands import TOP
from tidelog.tools.completion import COMPLETE, answer
from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples

# fmt: off
# Exit codes of the errors of spark/. An error that was caused by another has the exit code of its cause instead.
SPARK = {
    "TIDELOG_OPTION": exits.USAGE,
    "TIDELOG_SNAPSHOT": exits.NOT_A_STORE,
    "TIDELOG_DAMAGED": exits.DAMAGED,
    "TIDELOG_IO": exits.SYSTEM,
    "TIDELOG_NO_JAVA": exits.SYSTEM,
}
# fmt: on


def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"tidelog {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    table=TOP,
    epilog=examples(
        "tidelog info orders-data",
        "tidelog aof dump orders-data --key orders --count 3",
        "tidelog aof verify orders-data; echo $?",
        codes=(),
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """A durable job queue, and Redis Streams, in a directory.

    Inspects, verifies and serves stores of tidelog. Only `serve`, `worker`, `console` and the commands of `queue` that
    put, move or delete jobs change a store, and `config` changes how it is served. All others only read it, without
    a lock, so its writer may be running. Snapshots are written to its folder snapshots/.
    Exit codes: docs/guides/command-line.md.
    """


def exit_code(error: Exception) -> int | None:
    """The exit code of an expected error; None for a bug of tidelog."""
    # here: a command that raises has loaded them, and `tidelog --help` needs none of them
    from tidelog.aof import errors as aof
    from tidelog.engine.errors import CorruptBlock
    from tidelog.snapshot import errors as snapshot
    from tidelog.store import errors as store

    if isinstance(error, TidelogSparkError):
        cause = error.__cause__
        found = exit_code(cause) if isinstance(cause, Exception) else None
        return SPARK.get(error.code, exits.REFUSED) if found is None else found
    # fmt: off
    table: tuple[tuple[int, tuple[type[Exception], ...]], ...] = (
        (exits.NOT_A_STORE, (aof.NotAStore, store.NotAStore, snapshot.NotASnapshot, snapshot.SnapshotGone,
                             FileNotFoundError, NotADirectoryError)),
        (exits.NEWER,       (aof.NewerFormat, store.NewerFormat, snapshot.NewerSnapshot)),
        (exits.LOCKED,      (aof.StoreLocked, store.StoreLocked, snapshot.SnapshotsLocked)),
        (exits.DAMAGED,     (aof.Damage, store.StoreDamaged, snapshot.SnapshotDamaged, CorruptBlock)),
        (exits.REFUSED,     (store.UnitTooLarge,)),
        (exits.SYSTEM,      (OSError, aof.NoSpace, store.NotStored, store.CannotOpen, snapshot.SnapshotUnreachable,
                             snapshot.PackageMissing)),
        (exits.REFUSED,     (aof.AofError, store.TidelogError)),
    )
    # fmt: on
    return next((code for code, kinds in table if isinstance(error, kinds)), None)


def line_of(error: Exception) -> str:
    """The text of an expected error, on one line."""
    # here: a command that meets such an error has loaded it, and `tidelog --help` does not need it
    from tidelog.disk.real import OUT_OF_SPACE

    if isinstance(error, OSError) and error.strerror:
        # An OSError about an input always has a file name. One about the output may have none.
        if error.errno in OUT_OF_SPACE:
            return f"no space left on {error.filename or 'the device of the output'}; free some and run again"
        return f"{error.filename or 'while writing the output'}: {error.strerror}"
    return " ".join(str(error).split())


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        # Do not call cli.main, because it ends with exit code 1 after a broken pipe.
        with cli.make_context("tidelog", list(args)) as context:
            result: Any = cli.invoke(context)
            sys.stdout.flush()
            return result if isinstance(result, int) else exits.OK
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except click.ClickException as error:
        told = io.StringIO()
        error.show(told)
        click.echo(without_passwords(told.getvalue()), nl=False, err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The process that reads our output has ended (`| head`). Redirect stdout, because Python would report the
        # broken pipe again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        click.echo(f"tidelog: {without_passwords(line_of(error))}", err=True)
        return code


def main() -> None:
    # Either may be closed (`>&-`).
    sys.stdout = sys.stdout or open(os.devnull, "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        # click writes UTF-8 where a stream claims to be ASCII; so does everything else here.
        ascii = codecs.lookup(stream.encoding).name == "ascii"
        cast(TextIOWrapper, stream).reconfigure(encoding="utf-8" if ascii else None, errors=ERRORS)
    if COMPLETE in os.environ:
        sys.exit(answer(cli))
    sys.exit(run(sys.argv[1:]))
