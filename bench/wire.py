"""Commands as bytes, for clients that should cost as little as possible."""

from __future__ import annotations

import socket

STREAM, GROUP = "orders", "billing"


def packed(*words: str | bytes) -> bytes:
    """One command as a server reads it."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def connected(port: int) -> socket.socket:
    """A connection to a server on this machine, without delay (TCP_NODELAY)."""
    line = socket.create_connection(("127.0.0.1", port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line
