"""Ports that nobody listens on."""

from __future__ import annotations

import socket
from contextlib import closing


def free_port() -> int:
    with closing(socket.socket()) as link:
        link.bind(("127.0.0.1", 0))
        return int(link.getsockname()[1])
