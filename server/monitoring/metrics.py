"""Metrics: a small HTTP server on its own port, in daemon threads: /metrics for Prometheus, /health for probes, and
/console for people.

server/monitoring/collector.py makes the metrics. A scrape never goes through the event loop, so it delays no client,
and a health check detects a hanging loop. server/console/ answers everything under /console; it asks the loop.
"""

from __future__ import annotations

import enum
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client.exposition import choose_encoder

from tidelog.aof.errors import NoThread
from tidelog.aof.threads import start
from tidelog.api.face import nothing
from tidelog.figures.served import of_log
from tidelog.server.connection import ConnectionHost
from tidelog.server.console import console
from tidelog.server.console.console import Console, Request
from tidelog.server.monitoring.collector import Collector
from tidelog.server.monitoring.info import replication_of
from tidelog.store.errors import CannotOpen, TidelogError

SEATS: Final = 8  # connections at a time
SEAT_S: Final = 1.0  # how long a connection may take to give way
BACKLOG: Final = 128  # connections that the system accepts before we do
REQUEST_S: Final = 10.0  # an idle client is disconnected after so long
# time limit for the answer of the store, and then the same for the event loop
HEALTH_S: Final = 2.0
RETRY_S: Final = 0.1  # pause after a failed accept

_logger = logging.getLogger("tidelog.server")


class Metrics:
    """The HTTP server of one `Server`. `start` and `stop` are called in the loop's thread."""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None
        self.collector = Collector(server)
        self.console = Console(server)

    def start(self, link: socket.socket) -> None:
        """Listen on a bound socket, which `stop` closes. Raises OSError; CannotOpen if the system gives no thread."""
        http = _Http(link, self)
        thread = threading.Thread(target=http.serve, name="tidelog-metrics", daemon=True)
        try:
            start(thread, "serve metrics")
        except NoThread as error:
            raise CannotOpen(str(error)) from error
        self._http, self._thread = http, thread

    def stop(self) -> None:
        """Stop listening. Running requests finish in their threads. May be called twice."""
        http, self._http = self._http, None
        if http is not None and self._thread is not None:
            http.stop()
            self._thread.join()
            http.server_close()

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The response of /metrics for an Accept header: the body and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.collector), content_type  # it only calls `collect`

    def health(self) -> dict[str, Any]:
        """The response of /health as a dict; it has a `reason` if the server is unhealthy."""
        core = self._server.core
        reason = self._reason()
        if reason is not None:
            return {"status": "error", "reason": reason}
        log, replicating = of_log(core), self._server.replicating
        found = replication_of(self._server)
        told: dict[str, Any] = {
            "role": "replica" if found.link else "master",
            "followers": len(found.followers),
            "followers_lag_bytes": max((each.lag_bytes for each in found.followers), default=0),
            "followers_lag_seconds": round(max((f.lag_s for f in found.followers), default=0.0), 3),
            "retained_bytes": found.retained_bytes,
            "surpluses": found.surpluses,
            "surplus_records": found.surplus_records,
        }
        newer = replicating.feeding.feeds.superseded
        if newer is not None:
            told["superseded_by"] = str(newer)
        if found.link is not None:
            told["leader"] = f"{replicating.role.host}:{replicating.role.port}"
            told["link"] = "up" if found.link.up else "down"
            if found.link.leader_lsn is not None:
                told["link_failure"] = found.link.failure
                told["lag_lsn"] = found.link.lag_lsn
                told["lag_seconds"] = round(found.link.lag_s, 3)
                told["loading"] = replicating.loading
            if core.roles is not None:
                told["verified_lsn"] = core.roles.agreed
        return {
            "status": "ok",
            **told,
            "fsync": log.policy,
            "exposed_bytes": log.unsynced_bytes,
            "exposed_seconds": round(log.unsynced_s, 3),
            "written_lsn": log.written_lsn,
            "synced_lsn": log.synced_lsn,
        }

    def _reason(self) -> str | None:
        """Why the server cannot serve now, or None."""
        core = self._server.core
        if not core.ended and core.log.failure is not None and not core.log.in_doubt:
            return f"the log failed: {core.log.failure}"
        if not core.lock.acquire(timeout=HEALTH_S):
            return f"the store did not answer within {HEALTH_S:g} s"
        core.lock.release()
        try:
            core.look(nothing)  # this also rebuilds memory if that is needed
        except TidelogError as error:
            return str(error)
        refusal = core.log.refusal()
        if refusal is not None:
            return f"writes are refused: {refusal}"
        answered = threading.Event()
        try:
            self._server.loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return "the server has stopped"
        if not answered.wait(HEALTH_S):
            return f"the event loop did not answer within {HEALTH_S:g} s"
        return None


class _Phase(enum.Enum):
    """A connection waits for its client's request, for our answer, for its client to read it, or for its end."""

    ASKING = enum.auto()
    WORKING = enum.auto()
    READING = enum.auto()
    LEAVING = enum.auto()


class _Http(ThreadingHTTPServer):
    """Accepts in one thread and handles each connection in its own, up to SEATS at a time.

    If all seats are taken, the connection that has waited longest for its client gives way to a new one: first one
    whose request has not come, then one whose answer was not read. So clients that do nothing cannot keep a probe away.
    """

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, link: socket.socket, metrics: Metrics) -> None:
        self.metrics = metrics
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
        _logger.debug("a request for metrics failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = REQUEST_S
    server_version = "tidelog"
    sys_version = ""
    server: _Http

    def do_GET(self) -> None:
        self.server.enter(self.connection, _Phase.WORKING)
        path = self.path.partition("?")[0]
        metrics = self.server.metrics
        if path == console.ROOT or path.startswith(f"{console.ROOT}/"):
            self._console(b"")
        elif path == "/metrics":
            body, content_type = metrics.exposition(self.headers.get("Accept", ""))
            self._answer(200, body, content_type)
        elif path == "/health":
            health = metrics.health()
            self._answer(
                503 if "reason" in health else 200,
                json.dumps(health).encode() + b"\n",
                "application/json",
            )
        else:
            self._answer(404, b"/metrics, /health and /console are here\n", "text/plain")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not self.path.startswith(f"{console.ROOT}/"):
            self._answer(405, b"only /console takes POST\n", "text/plain")
        elif not (length.isascii() and length.isdigit()):
            self._answer(411, b"Content-Length is missing\n", "text/plain")
        elif len(length) > 9 or int(length) > console.BODY_MAX:
            self._answer(413, b"the body is too long\n", "text/plain")
        else:
            body = self.rfile.read(int(length))
            self.server.enter(self.connection, _Phase.WORKING)
            self._console(body)

    def _console(self, body: bytes) -> None:
        host, port = self.client_address[:2]
        here = self.server.server_port
        asked = Request(self.command, self.path, self._header, body, (host, port), here)
        found = self.server.metrics.console.answer(asked)
        self._answer(found.status, found.body, found.content_type, found.headers)

    def _header(self, name: str) -> str:
        return str(self.headers.get(name, ""))

    def _answer(
        self,
        status: int,
        body: bytes,
        content_type: str,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.server.enter(self.connection, _Phase.READING)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _logger.debug("metrics: " + format, *args)
