"""Object stores for tests, on loopback: moto's S3 server, and one that fails as it is told to."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyarrow import fs

SECRET = "a-secret-that-no-error-may-show"


class Bucket:
    """A bucket of moto's server."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.name = name
        self.query = f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
        self.files, _ = fs.FileSystem.from_uri(
            f"s3://{name}{self.query}&allow_bucket_creation=true"
        )
        self.files.create_dir(name)

    def url(self, path: str) -> str:
        return f"s3://{self.name}/{path}{self.query}"

    def put(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(f"{self.name}/{path}") as stream:
            stream.write(data)

    def get(self, path: str) -> bytes:
        with self.files.open_input_file(f"{self.name}/{path}") as file:
            return bytes(file.read())

    def names(self, path: str) -> list[str]:
        found = self.files.get_file_info(fs.FileSelector(f"{self.name}/{path}"))
        return sorted(info.base_name for info in found)


def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)


def bucket_of(
    endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """A bucket of a test's own, and the credentials for it."""
    credentials(monkeypatch)
    return Bucket(endpoint, re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-60:].strip("-"))


class Faulty(ThreadingHTTPServer):
    """Serves `objects`, path -> bytes, as far as S3's HEAD and GET need. Everything else is refused.

    fault   None; "short": a range ends after half of its bytes; "stall": it does not go on after half of them; "deny":
            every GET is refused. Only ranges that begin at byte `beyond` or later are concerned
    """

    daemon_threads = True

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.fault: str | None = None
        self.beyond = 0
        self.go_on = threading.Event()

    def url(self, path: str) -> str:
        host, port = self.server_address[:2]
        return f"s3://{path}?endpoint_override={host!s}:{port}&scheme=http&region=us-east-1"


class _Handler(BaseHTTPRequestHandler):
    server: Faulty

    def do_HEAD(self) -> None:
        data = self.server.objects.get(self.path.lstrip("/"))
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()

    def do_GET(self) -> None:
        data = self.server.objects.get(self.path.lstrip("/"))
        if data is None:  # such as a list of a folder
            self._refuse()
            return
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1]
        fault = self.server.fault if int(first) >= self.server.beyond else None
        if fault == "deny":
            self._refuse()
            return
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part if fault is None else part[: len(part) // 2])
        if fault == "stall":
            self.wfile.flush()
            self.server.go_on.wait(60)
        self.close_connection = fault is not None

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._refuse()

    do_POST = do_PUT

    def _refuse(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def faulty(objects: dict[str, bytes]) -> Iterator[Faulty]:
    server = Faulty(objects)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
