"""The HTTP port answers, however many of its clients do nothing."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.server.conftest import Start
from tests.server.ports import free_port

from tidelog.server.http import SEATS


class Site:
    """A server with an HTTP port, and clients of it that hang there until the test ends."""

    def __init__(self, start: Start, stack: ExitStack) -> None:
        self.port = free_port()
        self.running = start(metrics_port=self.port)
        self._stack = stack

    def hang(self, data: bytes) -> socket.socket:
        """A client that sends this, and then nothing."""
        link = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port), 60))
        link.sendall(data)
        return link

    def answers(self) -> bool:
        for path in ("/health", "/metrics", "/console/"):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as got:
                assert got.status == 200 and got.read()
        return True


@pytest.fixture
def site(start: Start) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(start, stack)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /hea",
        b"GET /health HTTP/1.0\r\nHost: x\r\n",
        b"POST /console/api/login HTTP/1.0\r\nContent-Length: 9\r\n\r\n{",
    ],
)
@pytest.mark.parametrize("count", [SEATS, 3 * SEATS])
def test_requests_that_do_not_come(site: Site, data: bytes, count: int) -> None:
    for _ in range(count):
        site.hang(data)
    assert site.answers()


def test_answers_that_are_not_read(site: Site) -> None:
    metrics: Any = site.running.server.listeners.metrics
    usual = metrics.exposition
    large = b"x" * (32 << 20)  # more than the system takes
    metrics.exposition = lambda accept: (large, "text/plain")
    asked = [site.hang(b"GET /metrics HTTP/1.0\r\n\r\n") for _ in range(SEATS)]
    for link in asked:
        assert link.recv(1) == b"H"  # it is being written
    metrics.exposition = usual
    assert site.answers()


def test_the_one_that_came_first_gives_way(site: Site) -> None:
    links = [site.hang(b"") for _ in range(SEATS)]
    assert site.answers()
    assert links[0].recv(1) == b""
    last = site.hang(b"GET /health HTTP/1.0\r\n\r\n")
    assert last.recv(4) == b"HTTP"
