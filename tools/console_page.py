"""`tidelog console`: the console of a store in the browser, however the store is served.

This process listens on loopback and answers the browser. It asks the store's server as any client does, over the
socket in the store's directory or the URL, so the server needs no port for HTTP. The port is open while the command
runs. It lets in the browser that brings the token of the link, and no other one.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import webbrowser
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import click

from tidelog.aof import identity
from tidelog.aof.errors import AofError, Damage
from tidelog.client.address import addresses_of
from tidelog.client.link import Link as Client
from tidelog.disk.real import RealDisk
from tidelog.engine.errors import CorruptBlock
from tidelog.jobs.verbs.verb import Safe
from tidelog.server.console.console import ROOT, Console
from tidelog.server.console.entry import Link, NoAnswer, Refusal
from tidelog.server.console.ticket import Ticket
from tidelog.server.http import HttpServer
from tidelog.store.errors import TidelogError
from tidelog.tools import exits, why
from tidelog.tools.failed import Unable
from tidelog.tools.heads import tool_command
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.path_or_url import PATH_OR_URL, PathOrUrl

TIMEOUT_S: Final = 10.0  # for a server to answer
BATCH: Final = 50  # commands that are sent together
HOST: Final = "127.0.0.1"


@tool_command(
    "tidelog console orders-data",
    "tidelog console redis://anna:secret@orders.example:6379",
    "tidelog console orders-data --port 9121 --no-browser",
    codes=(exits.OK, exits.USAGE, exits.NOT_A_STORE, exits.LOCKED, exits.SYSTEM, exits.REFUSED),
    note="The link works once, in one browser, while the command runs. End it with Ctrl-C. If no process serves the "
    "store in PATH, one is started, as by any client.",
)
@click.argument("place", metavar="PATH|URL", type=PATH_OR_URL)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on loopback, for example of a tunnel. Otherwise the system chooses one.",
)
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
def command(place: PathOrUrl, port: int, no_browser: bool) -> int:
    if isinstance(place, Path):
        with suppress(Damage):  # the server says what it can still serve
            identity.read(RealDisk(), place.absolute())
    with closing(Client(addresses_of(str(place)), TIMEOUT_S, {}, True)) as client:
        name = _user(client)
        lives = _Lives(place) if isinstance(place, Path) else None
        ticket = Ticket(name, lambda changes: nullcontext(_Link(client, changes)), lives)
        link = _bound(port)
        http = HttpServer(link, Console(ticket).answer, posts=f"{ROOT}/")
        try:
            _show(f"http://{HOST}:{link.getsockname()[1]}{ROOT}/#token={ticket.token}", no_browser)
        finally:
            http.stop()
    return exits.OK


def _user(client: Client) -> str:
    """The user whose rights the console has. Raises the errors of the store, so the server answers."""
    client.call((b"PING",), Safe.READ)
    found = client.calls(((b"ACL", b"WHOAMI"),), Safe.READ)[0]
    return found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else "somebody"


def _bound(port: int) -> socket.socket:
    link = socket.socket()
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.bind((HOST, port))
    except OSError as error:
        link.close()
        raise Unable(f"cannot listen on {HOST} port {port}: {error.strerror}") from error
    return link


def _show(url: str, no_browser: bool) -> None:
    """Print the link, open a browser if there is a display, and wait for SIGINT or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    click.echo(url)
    click.echo("The link works once. Ctrl-C ends the console.", err=True)
    # Without a display a browser for terminals might begin.
    if not no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(url)
    ended.wait()


class _Link(Link):
    """A link of the console to the store's server, which selects a database of its own.

    A call is repeated if its connection breaks, unless it `changes` something.
    """

    def __init__(self, client: Client, changes: bool) -> None:
        self._client, self._safe = client, Safe.NEVER if changes else Safe.READ
        self._db = 0

    def ask(self, *words: bytes) -> Any:
        """See `Link` of server/console/entry.py."""
        if words[0] == b"SELECT":  # connections are shared, so the database goes with each call
            self._db = int(words[1])
            return None
        return super().ask(*words)

    def ask_all(self, commands: Iterable[Sequence[bytes]]) -> list[Any]:
        """See `Link` of server/console/entry.py."""
        found: list[Any] = []
        every = list(commands)
        try:
            for at in range(0, len(every), BATCH):
                found += self._client.calls(every[at : at + BATCH], self._safe, self._db)
        except TidelogError as error:
            raise NoAnswer(str(error)) from error
        return found


class _Lives:
    """Tells what the log says of a job, as `tidelog why` does. One replay at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def __call__(self, key: bytes, job: int) -> list[dict[str, Any]]:
        """The events. Raises Refusal."""
        with self._lock:
            try:
                found = why.story(LogFiles(self._path, snapshots=True), key, job, quiet=True)
            except (why.Unknown, AofError, CorruptBlock, OSError) as error:
                raise Refusal(409, str(error)) from error
        told = [
            {"text": event.text, "at_ms": event.now, "lsn": event.lsn}
            for _, events in why.in_order(found)
            for event in events
        ]
        if not told:
            why_not = "the log knows no such job: its records were released"
            raise Refusal(404, why_not if found.damage is None else str(found.damage))
        return told
