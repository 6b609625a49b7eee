"""TIDELOG YIELD: an owner that is older than its client, and that nobody else uses, makes room for a newer one."""

from __future__ import annotations

import logging
import re
from typing import Final

from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.server.session import Session
from tidelog.store.version import __version__

VERSION: Final = __version__.encode()
_RELEASE: Final = re.compile(rb"\d{1,9}(?:\.\d{1,9})*")
_NO_VERSION: Final = b"ERR '%b' is not a version"

_logger = logging.getLogger("tidelog.server")


def yield_(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG YIELD version: end, if this is an owner of an older version and no other client is connected.

    Replies 1 if the process ends, and 0 if it stays. Only an owner ends: a server that an operator or a program runs
    has options of its own, and they decide when it ends.
    """
    wanted = _release(args[2])
    server = session.server
    if not server.config.owner or _release(VERSION) >= wanted or len(server.sessions) > 1:
        return 0
    _logger.info("stopping, because a client is newer: %s", args[2].decode())
    server.stop()
    return 1


def _release(text: bytes) -> tuple[int, ...]:
    """The numbers at the beginning of a version. Raises CommandError."""
    found = _RELEASE.match(text)
    if found is None:
        raise CommandError(_NO_VERSION % text[:32])
    return tuple(map(int, found.group().split(b".")))
