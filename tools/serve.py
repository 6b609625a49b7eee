"""`tidelog serve`: a store for every Redis client, over TCP, TLS and a Unix socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.engine.errors import CommandError
from tidelog.server.addresses import Addresses
from tidelog.server.config.config import Config, ConfigError, PackageMissing
from tidelog.server.config.options import FIXED, OPTIONS
from tidelog.server.config.stored import NAME as STORED
from tidelog.server.config.stored import Stored
from tidelog.server.tls import context
from tidelog.store.errors import StoreClosed, StoreLocked
from tidelog.tools import exits
from tidelog.tools.console import table
from tidelog.tools.failed import NotThere, Unable, Wrong
from tidelog.tools.heads import tool_command
from tidelog.tools.logfiles import STORE_PATH

# The flags, by the names of their parameters, and the options of the server that they set. --option sets all others.
DIRECT: dict[str, str] = {}


def list_options(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        rows = []
        for option in OPTIONS.values():
            if option.when != FIXED:
                default = option.kind.show(option.default)
                rows.append((option.name, default or '""', option.when, option.help))
        table(("OPTION", "DEFAULT", "CHANGED", "MEANING"), rows)
        ctx.exit()


def leader(ctx: click.Context, param: click.Parameter, value: tuple[str, str] | None) -> str | None:
    """The two words of --replicaof as the option's value."""
    return None if value is None else " ".join(value)


def direct(
    name: str, metavar: str, help: str, option: str | None = None, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A flag for an option of the server, of the same name unless told. The configuration checks its value."""
    flag = name.removeprefix("--")
    DIRECT[flag.replace("-", "_")] = option or flag
    return click.option(name, metavar=metavar, help=help, **more)


@tool_command(
    "tidelog serve orders-data",
    "tidelog serve orders-data --port 7000 --fsync always",
    "tidelog serve orders-data --port 0 --unixsocket orders.sock",
    "tidelog serve orders-data --config orders.toml --option maxclients=500",
    "tidelog serve orders-copy --port 6380 --replicaof 10.0.0.1 6379",
    codes=exits.CHANGING,
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="TOML file with options, in the place of the store's own tidelog.toml; CONFIG REWRITE updates it. "
    "Options on the command line override it.",
)
@direct("--port", "N", "TCP port (default 6379); 0 = none.")
@direct("--bind", "ADDRESSES", "Addresses to listen on (default 127.0.0.1 -::1).")
@direct("--unixsocket", "FILE", "Also listen on this Unix socket.")
@direct(
    "--fsync",
    "WHEN",
    "When the log is synced to disk: always, everysec or no. A new store has always.",
    "appendfsync",
)
@direct(
    "--requirepass",
    "WORD",
    "Password of the default user. Other users of the machine can see a command line; prefer the environment "
    "or the file.",
    envvar="TIDELOG_REQUIREPASS",
    show_envvar=True,
)
@direct(
    "--replicaof",
    "HOST PORT",
    "Follow this leader, if the store has no role yet. Later, REPLICAOF changes the role.",
    nargs=2,
    callback=leader,
)
@direct(
    "--memory-budget",
    "SIZE",
    "Memory budget such as 256mb; above it, unused data is evicted from memory. Default: no budget.",
    "maxmemory",
)
@direct(
    "--maxdisk",
    "SIZE",
    "Quota on disk such as 20gb; at it, writes that add data are refused. Default: no quota.",
)
@direct("--tls-port", "N", "TCP port for TLS.")
@direct("--tls-cert-file", "FILE", "PEM file with the server's certificate.")
@direct("--tls-key-file", "FILE", "PEM file with the certificate's private key.")
@direct(
    "--tls-ca-cert-file", "FILE", "PEM file with the CA certificates to verify clients against."
)
@direct(
    "--tls-auth-clients",
    "WHEN",
    "Require a client certificate: yes (default), optional or no.",
)
@direct("--metrics-port", "N", "HTTP port for /metrics, /health and /console.")
@direct("--loglevel", "LEVEL", "Lowest level to log: debug, verbose, notice (default) or warning.")
@direct("--logfile", "FILE", "Log to a file instead of standard error.")
@direct("--log-format", "FORMAT", "Format of log messages: text (default) or json.")
@click.option(
    "--option",
    "others",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set any other option, as CONFIG SET would; may be repeated.",
)
@click.option(
    "--list-options",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_options,
    help="Print all options with their defaults, and exit.",
)
def command(path: Path, file: Path | None, others: Sequence[str], **given: str | None) -> int:
    # These modules take half a second to import.
    from tidelog.server.monitoring.logs import Logs

    root = path.absolute()
    try:
        config = configured(root, file, others, given)
        with Logs(config):
            return serve(root, config)
    except PackageMissing as error:
        raise Unable(str(error)) from error
    except ConfigError as error:
        raise Wrong(str(error)) from error
    except StoreClosed as error:
        raise NotThere(str(error)) from error
    except CommandError as error:  # of a user in the file
        raise Wrong(f"{file or root / STORED}: users: {str(error).removeprefix('ERR ')}") from error
    except OSError as error:
        # Errors of the store have their own classes, so this error is about an address or about a file outside the
        # store.
        said = error.strerror or str(error)
        raise Unable(f"{error.filename}: {said}" if error.filename else said) from error


def check_first(root: Path, config: Config) -> None:
    """Raise what keeps this process from serving, as far as that shows while the owner goes on."""
    if config["tls-port"]:
        context(config)
    if not Stored(root).path.exists():  # else the owner may have the same ports
        Addresses(config).close()


def serve(root: Path, config: Config) -> int:
    """Serve the store. If an owner that clients started has it open, take it over. Returns the exit code."""
    # here: as in `command`
    from tidelog.client import takeover
    from tidelog.client.starting import is_owner
    from tidelog.server import serving

    passed: socket.socket | None = None
    place: tuple[int, int] | None = None
    until = time.monotonic() + takeover.TAKE_S
    try:
        while True:
            patience = 0.0 if passed is None else takeover.PATIENCE_S
            try:
                return serving.serve_forever(root, config, lock_timeout=patience, passed=passed)
            except StoreLocked:
                if not is_owner(root) or time.monotonic() >= until:
                    raise
            if passed is not None:
                if takeover.place_of(root) == place:
                    continue  # the owner is closing
                passed.close()  # another owner has begun in its place, and listens on a socket of its own
            check_first(root, config)
            place = takeover.place_of(root)
            passed = takeover.ask(root)
            if passed is None:
                time.sleep(takeover.LOOK_S)
    finally:
        if passed is not None:
            passed.close()


def configured(
    root: Path, file: Path | None, others: Sequence[str], given: dict[str, str | None]
) -> Config:
    """Defaults, then the file, then the command line. Raises ConfigError.

    A file that is named is used as a whole, and what the directory of the store says is not looked at.
    """
    config = Config()
    config.place(root)
    if file is not None:
        config.load(file)
    else:
        Stored(root).load(config)
    for name, text in given.items():
        if text is not None:
            config.take(DIRECT[name], text, f"--{name.replace('_', '-')}: ")
    for other in others:
        name, equals, text = other.partition("=")
        if not equals:
            raise ConfigError(f"--option {other}: must be NAME=VALUE")
        config.take(name.strip(), text, "--option: ")
    return config
