"""Plugged: the writers of `tidelog crash plug`, their line to the witness, and the comparison afterwards.

The order is the proof: a write returns from the store, which promises that it was fsynced, and only then is it told.
"""

from __future__ import annotations

import socket
import threading
from hashlib import blake2b
from typing import Final

from tidelog.api.sync import Store
from tidelog.tools.failed import Unable

KEPT: Final = 10_000  # entries of a stream; older ones are trimmed
SILENCE_S: Final = 30.0  # a witness that does not answer for so long is gone
PAGE: Final = 1000
SIZES: Final = (16, 112, 704, 3008)  # bytes of a write; multiples of BLOCK
BLOCK: Final = 16


def stream_of(writer: int) -> bytes:
    """The stream of a writer."""
    return b"plug:%d" % writer


def payload(run: str, writer: int, number: int) -> bytes:
    """The data of a write: everybody can compute it, and no two are equal."""
    block = blake2b(f"{run} {writer} {number}".encode(), digest_size=BLOCK).digest()
    return block * (SIZES[block[0] % len(SIZES)] // BLOCK)


class Line:
    """A connection to the witness. `answer` is its answer to the first line. Raises Unable."""

    def __init__(self, address: tuple[str, int], kind: str, run: str) -> None:
        host, port = address
        self._where = f"{host}:{port}"
        try:
            self._socket = socket.create_connection(address, SILENCE_S)
        except OSError as error:
            raise Unable(f"no witness answers at {self._where}: {_why(error)}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(f"{kind} {run}\n".encode())
            with self._socket.makefile("r", encoding="utf-8", errors="replace") as lines:
                self.answer = lines.readline().strip()
        except OSError as error:
            self.close()
            raise Unable(f"the witness at {self._where} does not answer: {_why(error)}") from error

    def tell(self, writer: int, number: int) -> None:
        """Tell that a write was acknowledged. Raises Unable."""
        try:
            self._socket.sendall(f"{writer} {number}\n".encode())
        except OSError as error:
            raise Unable(f"the witness at {self._where} is gone: {_why(error)}") from error

    def close(self) -> None:
        self._socket.close()


def _why(error: OSError) -> str:
    return error.strerror or str(error)


class Writers:
    """Threads that write and tell the witness, until `stop` is set or one of them fails."""

    def __init__(self, db: Store, run: str, line: Line, count: int) -> None:
        self.stop = threading.Event()
        self.failed: Exception | None = None
        self.told = [0] * count
        self._db = db
        self._run = run
        self._line = line
        self._order = threading.Lock()  # of the lines to the witness
        self._threads = [
            threading.Thread(target=self._write, args=(writer,), name=f"tidelog-plug-{writer}")
            for writer in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """End them. Each ends after the write that it is doing."""
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, writer: int) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                number += 1
                fields = {b"number": b"%d" % number, b"data": payload(self._run, writer, number)}
                self._db.xadd(stream_of(writer), fields, maxlen=KEPT, approximate=True)
                with self._order:
                    self._line.tell(writer, number)
                self.told[writer] = number
        except Exception as error:
            self.failed = self.failed or error
            self.stop.set()


def missing(db: Store, run: str, noted: dict[int, int]) -> list[str]:
    """In words, everything that a store lacks of the notes, or has differently."""
    found = []
    for writer, number in sorted(noted.items()):
        last, wrong = _look(db, run, writer)
        if wrong:
            found.append(f"wrong: writer {writer}: {wrong}")
        if last < number:
            found.append(
                f"lost: writer {writer}: the witness noted write {number:,}, and the last one here is {last:,}"
            )
    return found


def _look(db: Store, run: str, writer: int) -> tuple[int, str]:
    """(the number of the last write of a writer, the first thing that is wrong with its writes)."""
    last, wrong, after = 0, "", b"-"
    while page := db.xrange(stream_of(writer), after, count=PAGE):
        for entry_id, fields in page:
            number = int(fields[b"number"])
            # Older writes were trimmed, so the first one may have any number.
            if last and number != last + 1:
                wrong = wrong or f"write {number:,} comes after write {last:,}"
            if fields[b"data"] != payload(run, writer, number):
                wrong = wrong or f"write {number:,} has other data"
            last, after = number, b"(" + entry_id
    return last, wrong
