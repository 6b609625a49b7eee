"""A proxy before a server that breaks connections at chosen transactions."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

import hiredis


class Fault(Enum):
    """The fault of a transaction.

    BEFORE   the connection breaks before EXEC reaches the server
    AFTER    it breaks after the server has answered EXEC, and before the answer reaches the client
    LATE     it breaks for the client, and EXEC reaches the server later: when `Proxy.deliver` is called
    """

    BEFORE = "before"
    AFTER = "after"
    LATE = "late"


class Proxy:
    """Listens on a loopback port.

    faults      number of a transaction (from 0, over all connections) -> what happens to it
    on_exec     called before each EXEC goes on, with the number of the transaction
    dead        every new connection is closed at once
    closes_after   number of a transaction whose answer still comes; then its connection is closed
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.faults: dict[int, Fault] = {}
        self.on_exec: Callable[[int], object] = lambda number: None
        self.dead = False
        self.closes_after: int | None = None
        self.transactions = 0
        self._connect = connect
        self._late: list[socket.socket] = []
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def deliver(self) -> list[Any]:
        """Let the held EXECs reach the server. Returns its answers."""
        answers = []
        for server in self._late:
            server.sendall(packed([b"EXEC"]))
            answers.append(relay(server, 1, None)[0])
            server.close()
        self._late.clear()
        return answers

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for link in (*self._open, *self._late):
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.dead:
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = self._connect()
        reader = hiredis.Reader()
        try:
            while data := client.recv(1 << 16):
                reader.feed(data)
                commands = []
                while (command := reader.gets()) is not False:
                    commands.append(command)
                if commands and not self._pass_on(commands, client, server):
                    return
        except OSError:
            pass
        finally:
            client.close()
            if server not in self._late:
                server.close()

    def _pass_on(
        self, commands: list[list[bytes]], client: socket.socket, server: socket.socket
    ) -> bool:
        """Pass commands and their answers on. False: the connection is to break."""
        before, execs = commands, [c for c in commands if c[0].upper() == b"EXEC"]
        fault = None
        if execs:
            assert commands[-1] is execs[0]
            before = commands[:-1]
            with self._lock:
                number = self.transactions
                self.transactions += 1
            fault = self.faults.get(number)
        server.sendall(b"".join(map(packed, before)))
        relay(server, len(before), None if fault else client)
        if not execs:
            return True
        if fault is Fault.BEFORE:
            return False
        if fault is Fault.LATE:
            self._late.append(server)
            return False
        self.on_exec(number)
        server.sendall(packed(execs[0]))
        relay(server, 1, None if fault else client)
        return fault is None and number != self.closes_after


def packed(command: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in command)


def relay(server: socket.socket, count: int, client: socket.socket | None) -> list[Any]:
    """Read answers, and pass them on if there is a client."""
    reader = hiredis.Reader()
    answers: list[Any] = []
    while len(answers) < count:
        data = server.recv(1 << 16)
        if not data:
            raise ConnectionResetError
        if client is not None:
            client.sendall(data)
        reader.feed(data)
        while (answer := reader.gets()) is not False:
            answers.append(answer)
    return answers
