"""Metrics: a port for HTTP (server/http.py): /metrics for Prometheus, /health for probes, and /console for people.

server/monitoring/collector.py makes the metrics. A scrape never goes through the event loop, so it delays no client,
and a health check detects a hanging loop. server/console/ answers everything under /console; it asks the loop.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, Final

from prometheus_client.exposition import choose_encoder

from tidelog.api.face import nothing
from tidelog.figures.served import of_log
from tidelog.server.connection import ConnectionHost
from tidelog.server.console import console
from tidelog.server.console.console import Console
from tidelog.server.console.users import Users
from tidelog.server.http import HttpServer, Request, Response
from tidelog.server.monitoring.collector import Collector
from tidelog.server.monitoring.info import replication_of
from tidelog.store.errors import TidelogError

# time limit for the answer of the store, and then the same for the event loop
HEALTH_S: Final = 2.0


class Metrics:
    """The HTTP server of one `Server`. `start` and `stop` are called in the loop's thread."""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self._http: HttpServer | None = None
        self.collector = Collector(server)
        self.console = Console(Users(server))

    def start(self, link: socket.socket) -> None:
        """Listen on a bound socket, which `stop` closes. Raises OSError; CannotOpen if the system gives no thread."""
        self._http = HttpServer(link, self.answer, posts=f"{console.ROOT}/")

    def stop(self) -> None:
        """Stop listening. Running requests finish in their threads. May be called twice."""
        http, self._http = self._http, None
        if http is not None:
            http.stop()

    def answer(self, request: Request) -> Response:
        """The response to a request. It runs in a thread of the HTTP server."""
        path = request.target.partition("?")[0]
        if path == console.ROOT or path.startswith(f"{console.ROOT}/"):
            return self.console.answer(request)
        if path == "/metrics":
            body, content_type = self.exposition(request.header("Accept"))
            return Response(200, content_type, body)
        if path == "/health":
            health = self.health()
            status = 503 if "reason" in health else 200
            return Response(status, "application/json", json.dumps(health).encode() + b"\n")
        return Response(404, "text/plain", b"/metrics, /health and /console are here\n")

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
