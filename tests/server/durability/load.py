"""Clients that load a server and remember what it has answered: what they were told must never be lost."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tests.oracle.wire import Connection
from tests.server.wire import connect
from tests.until import PATIENCE_S

import tidelog


@dataclass
class Promised:
    """The replies to one client so far, over all its connections.

    added      numbers whose XADD was answered
    acked      IDs whose XACK was answered
    """

    added: list[int] = field(default_factory=list)
    acked: list[bytes] = field(default_factory=list)
    next: int = 0


class Load:
    """Clients, each a thread with a stream and a group of its own, until `stop` or the server's end."""

    def __init__(self, clients: int) -> None:
        self.promised = [Promised() for _ in range(clients)]
        self.answers = 0
        self.enough = threading.Event()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._wanted = 0

    def start(self, port: int, answers: int) -> None:
        """Begin; `enough` is set after this number of answers."""
        self._stopping = False
        self.enough.clear()
        self.answers, self._wanted = 0, answers
        self._threads = [
            threading.Thread(target=self._run, args=(number, port), daemon=True)
            for number in range(len(self.promised))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the clients: they end with the server, or with the command they are at."""
        self._stopping = True
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _run(self, number: int, port: int) -> None:
        try:
            link = connect(port)
        except OSError:
            return
        try:
            while not self._stopping:
                self._step(link, number, self.promised[number])
        except (OSError, ConnectionError):
            pass  # it was killed
        finally:
            link.close()

    def _step(self, link: Connection, number: int, told: Promised) -> None:
        key = b"load:%d" % number
        told.next += 1
        mine = told.next
        answer = link.call(b"XADD", key, b"*", b"n", b"%d" % mine)
        assert isinstance(answer, bytes), answer
        told.added.append(mine)
        if mine == 1:
            link.call(b"XGROUP", b"CREATE", key, b"g", b"0")
        found = link.call(
            b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"2", b"STREAMS", key, b">"
        )
        if isinstance(found, list):
            ids = [entry[0] for entry in found[0][1]]
            answer = link.call(b"XACK", key, b"g", *ids)
            if answer == len(ids):
                told.acked += ids
        self.answers += 1
        if self.answers >= self._wanted:
            self.enough.set()


def check(db: tidelog.Store, promised: list[Promised]) -> None:
    """Everything that was promised is there."""
    for number, told in enumerate(promised):
        key = f"load:{number}"
        numbers = {int(fields[b"n"]) for _, fields in db.xrange(key)}
        lost = [n for n in told.added if n not in numbers]
        assert not lost, f"{key}: answered, and lost: {lost[:10]}"
        if told.acked:
            pending = {row["message_id"] for row in db.xpending_range(key, "g", "-", "+", 100_000)}
            assert not pending & set(told.acked), f"{key}: acknowledged, and pending again"
