"""Ports that nobody listens on, and that nobody else is given."""

from __future__ import annotations

import random
import socket
from collections import deque
from contextlib import closing
from pathlib import Path

# The kernel takes ports from this range for those who ask for none. A port of it may be gone before a test uses it.
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST = 11_000

# The tests' own seeds must not lead two processes to the same ports.
_random = random.SystemRandom()
# A name that is bound keeps a port from other test processes. The last ports are kept so: those of the tests that run.
# More descriptors than this would not stay below the 1024 of select().
KEPT = 64
_reserved: deque[socket.socket] = deque()


def free_port() -> int:
    lowest, highest = _range()
    while True:
        port = _random.randint(lowest, highest)
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0tidelog-tests-port-{port}")
            with closing(socket.socket()) as link:
                link.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
        else:
            _reserved.append(mark)
            if len(_reserved) > KEPT:
                _reserved.popleft().close()
            return port


def _range() -> tuple[int, int]:
    """Below the kernel's range; within it where nothing is left below."""
    try:
        first, last = map(int, EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        first, last = 32_768, 60_999
    return (FIRST, first - 1) if first > FIRST + 1000 else (first, last)
