"""HTTP: a small server in daemon threads, for /metrics, /health and the console. It knows nothing of what is asked.

If all seats are taken, the connection that has waited longest for its client gives way to a new one: first one whose
request has not come, then one whose answer was not read. So clients that do nothing cannot keep a probe away.
"""

from __future__ import annotations

import enum
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from tidelog.aof.errors import NoThread
from tidelog.aof.threads import start
from tidelog.store.errors import CannotOpen

SEATS: Final = 8  # connections at a time
SEAT_S: Final = 1.0  # how long a connection may take to give way
BACKLOG: Final = 128  # connections that the system accepts before we do
REQUEST_S: Final = 10.0  # an idle client is disconnected after so long
RETRY_S: Final = 0.1  # pause after a failed accept
BODY_MAX: Final = 64 << 10  # bytes of a request

_logger = logging.getLogger("tidelog.server")


class Request(NamedTuple):
    """One HTTP request.

    header    the value of a header, whatever the case of its name; empty if there is none
    peer      IP address and port of the client
    port      of this server
    """

    method: str
    target: str
    header: Callable[[str], str]
    body: bytes
    peer: tuple[str, int]
    port: int


class Response(NamedTuple):
    """Its answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class HttpServer:
    """Listens on a bound socket, which `stop` closes, and answers each request by `answer`, in a thread of its own.

    posts    how a target begins that takes POST; others are refused

    Raises OSError; CannotOpen if the system gives no thread.
    """

    def __init__(
        self, link: socket.socket, answer: Callable[[Request], Response], *, posts: str
    ) -> None:
        self._http = _Http(link, answer, posts)
        self._thread = threading.Thread(target=self._http.serve, name="tidelog-http", daemon=True)
        try:
            start(self._thread, "serve HTTP")
        except NoThread as error:
            raise CannotOpen(str(error)) from error

    def stop(self) -> None:
        """Stop listening. Running requests finish in their threads."""
        self._http.stop()
        self._thread.join()
        self._http.server_close()


class _Phase(enum.Enum):
    """A connection waits for its client's request, for our answer, for its client to read it, or for its end."""

    ASKING = enum.auto()
    WORKING = enum.auto()
    READING = enum.auto()
    LEAVING = enum.auto()


class _Http(ThreadingHTTPServer):
    """Accepts in one thread and handles each connection in its own, up to SEATS at a time."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(
        self, link: socket.socket, answer: Callable[[Request], Response], posts: str
    ) -> None:
        self.answer, self.posts = answer, posts
        self._free = threading.BoundedSemaphore(SEATS)
        self._lock = threading.Lock()
        self._phases: dict[socket.socket, _Phase] = {}  # of the connections, the oldest first
        self._stopping = False
        socketserver.BaseServer.__init__(self, link.getsockname(), _Handler)  # creates no socket
        # Do what HTTPServer does here, but without its reverse DNS lookup.
        self.server_name, self.server_port = link.getsockname()[:2]
        link.setblocking(True)
        self.socket = link
        self.server_activate()

    def serve(self) -> None:
        """Serve until `stop`. The thread sleeps in accept, so an idle server costs nothing."""
        while not self._stopping:
            self.handle_request()

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            if not self._stopping:
                time.sleep(RETRY_S)  # perhaps out of file descriptors
            raise

    def stop(self) -> None:
        """Make `serve` return. Called from another thread."""
        self._stopping = True
        self.socket.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            if not (self._give_way() and self._free.acquire(timeout=SEAT_S)):
                self.shutdown_request(request)
                return
        self.enter(request, _Phase.ASKING)
        try:
            super().process_request(request, client_address)
        except BaseException:  # the system gives no thread
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def enter(self, link: socket.socket, phase: _Phase) -> None:
        """A connection enters a phase. One that gives way stays LEAVING."""
        with self._lock:
            if self._phases.get(link) is not _Phase.LEAVING:
                self._phases[link] = phase

    def _leave(self, link: socket.socket) -> None:
        with self._lock:
            self._phases.pop(link, None)
        self._free.release()

    def _give_way(self) -> bool:
        """End the connection that has waited longest for its client. Return whether one is about to leave."""
        with self._lock:
            found = None
            for phase in (_Phase.ASKING, _Phase.READING, _Phase.LEAVING):
                found = next((link for link, at in self._phases.items() if at is phase), None)
                if found is not None:
                    break
            if found is None:
                return False
            self._phases[found] = _Phase.LEAVING
            try:
                found.shutdown(socket.SHUT_RDWR)  # wakes its thread
            except OSError:
                pass  # the client is gone already
            return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        _logger.debug("an HTTP request failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = REQUEST_S
    server_version = "tidelog"
    sys_version = ""
    server: _Http

    def do_GET(self) -> None:
        self._ask(b"")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not self.path.startswith(self.server.posts):
            self._refuse(405, f"only {self.server.posts} takes POST")
        elif not (length.isascii() and length.isdigit()):
            self._refuse(411, "Content-Length is missing")
        elif len(length) > 9 or int(length) > BODY_MAX:
            self._refuse(413, "the body is too long")
        else:
            self._ask(self.rfile.read(int(length)))

    def _ask(self, body: bytes) -> None:
        self.server.enter(self.connection, _Phase.WORKING)
        host, port = self.client_address[:2]
        here = self.server.server_port
        asked = Request(self.command, self.path, self._header, body, (host, port), here)
        self._answer(self.server.answer(asked))

    def _header(self, name: str) -> str:
        return str(self.headers.get(name, ""))

    def _refuse(self, status: int, text: str) -> None:
        self._answer(Response(status, "text/plain", text.encode() + b"\n"))

    def _answer(self, found: Response) -> None:
        self.server.enter(self.connection, _Phase.READING)
        self.send_response(found.status)
        for name, value in found.headers:
            self.send_header(name, value)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)

    def log_message(self, format: str, *args: Any) -> None:
        _logger.debug("HTTP: " + format, *args)
