"""`tidelog crash witness`: notes, on another machine, what a store acknowledged before somebody pulled its plug.

A client sends one line, and gets one:

    plug RUN     noted      then it sends `WRITER NUMBER` for each acknowledged write, and gets no more answers
    after RUN    {...}      JSON, the last number of each writer; `unknown` if the run never began

A run is 16 hexadecimal digits. The numbers of a writer count from 1. Anybody who reaches the port can add notes, of
runs whose names they know.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from tidelog.api.queue.running.signals import News, Signals
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.tools import exits
from tidelog.tools.failed import Unable, Wrong
from tidelog.tools.heads import tool_command

PORT: Final = 7333
LINE_BYTES_MAX: Final = 80
WRITERS_MAX: Final = 1000
NUMBER_MAX: Final = 10**18
RUN: Final = re.compile(r"[0-9a-f]{16}")
WORDS: Final = re.compile(r"([0-9a-f]{16}) +([0-9]{1,3}) +([0-9]{1,19})")
NOTE: Final = "{:16} {:3d} {:19d}\n"
NOTE_BYTES: Final = 41
NOTED: Final = "noted"
UNKNOWN: Final = "unknown"


class Notes:
    """The last number of each writer, in a file that has one line of equal length for each.

    Lines are written in place, so the file stays small however long a run is.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._places: dict[tuple[str, int], tuple[int, int]] = {}  # -> (line, number)
        disk = RealDisk()
        if disk.exists(path):
            text = recipe.read(disk, path).decode(errors="replace")
            for line, note in enumerate(text.splitlines()):
                found = WORDS.fullmatch(note)
                if found is None or len(note) + 1 != NOTE_BYTES:
                    raise Wrong(
                        f"{path}, line {line + 1}: not a note of a witness; name another file"
                    )
                self._places[found[1], int(found[2])] = line, int(found[3])
            self._file = disk.open(path, write=True)
        else:
            self._file = disk.create(path)

    def note(self, run: str, writer: int, number: int) -> None:
        """Note that a write was acknowledged. Raises OSError."""
        with self._lock:
            line, before = self._places.get((run, writer), (len(self._places), 0))
            number = max(number, before)
            text = NOTE.format(run, writer, number).encode()
            assert len(text) == NOTE_BYTES
            self._file.write(line * NOTE_BYTES, text)
            self._places[run, writer] = line, number

    def of(self, run: str) -> dict[int, int] | None:
        """The last number of each writer of a run. None if it never began."""
        with self._lock:
            found = {
                writer: number
                for (each, writer), (_, number) in self._places.items()
                if each == run
            }
        return found or None

    def close(self) -> None:
        """Make the notes durable."""
        with self._lock:
            self._file.fsync()
            self._file.close()


class Witness(socketserver.ThreadingTCPServer):
    """A server that notes. Port 0 takes a free one; `server_address` has it.

    say   gets a line when a run begins or ends, and one for each error
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self, host: str, port: int, notes: Notes, say: Callable[[str], object] = click.echo
    ) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.notes = notes
        self.say = say
        super().__init__((host, port), _Client)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell the error of a client. The others go on."""
        self.say(f"{client_address[0]}: {sys.exception()}")


class _Client(socketserver.StreamRequestHandler):
    server: Witness

    def setup(self) -> None:
        # A machine without power closes no connection.
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        super().setup()

    def handle(self) -> None:
        words = self._words()
        if len(words) != 2 or words[0] not in ("plug", "after") or not RUN.fullmatch(words[1]):
            self._answer("not understood")
            return
        kind, run = words
        if kind == "plug":
            self._note(run)
            return
        found = self.server.notes.of(run)
        self._answer(UNKNOWN if found is None else json.dumps(found))

    def _note(self, run: str) -> None:
        self.server.notes.note(run, 0, 0)
        self._answer(NOTED)
        self.server.say(f"run {run} from {self.client_address[0]} began")
        while len(words := self._words()) == 2:
            if not all(word.isascii() and word.isdecimal() for word in words):
                break
            writer, number = map(int, words)
            if writer >= WRITERS_MAX or number > NUMBER_MAX:
                break
            self.server.notes.note(run, writer, number)
        noted = self.server.notes.of(run) or {}
        self.server.say(f"run {run} ended: {sum(noted.values()):,} acknowledged writes noted")

    def _answer(self, text: str) -> None:
        self.wfile.write(f"{text}\n".encode())

    def _words(self) -> list[str]:
        """The words of the next line; none when the connection is over. The end of a line that was cut is lost."""
        try:
            line = self.rfile.readline(LINE_BYTES_MAX)
        except OSError:
            return []
        return line.decode(errors="replace").split() if line.endswith(b"\n") else []


@tool_command(
    "tidelog crash witness",
    "tidelog crash witness --bind 192.0.2.7 --port 7333",
    codes=(exits.OK, exits.USAGE, exits.SYSTEM),
)
@click.option(
    "--bind",
    default="0.0.0.0",
    show_default=True,
    help="Listen on this address.",
)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="TCP port; 0 takes a free one and prints it.",
)
@click.option(
    "--notes",
    default="witness-notes",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the notes in this file. A new witness goes on with it.",
)
def command(bind: str, port: int, notes: Path) -> int:
    with closing(Notes(notes)) as kept:
        try:
            server = Witness(bind, port, kept)
        except OSError as error:
            raise Unable(f"cannot listen on {bind}:{port}: {error.strerror}") from error
        with server:
            host, number = server.server_address[:2]
            click.echo(f"listening on {host!s}:{number}, notes in {notes}")
            # In a thread: a KeyboardInterrupt that comes while this one starts a thread for a client is lost.
            serving = threading.Thread(target=server.serve_forever, name="tidelog-witness")
            news: News[str] = News()
            with Signals(news.put):
                serving.start()
                news.get()
                server.shutdown()
            serving.join()
    return exits.OK
