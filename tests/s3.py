"""A server of S3 on loopback: moto's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer


@contextmanager
def served() -> Iterator[str]:
    """Run a server; gives its endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise it prints every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"{host}:{port}"
    finally:
        server.stop()
