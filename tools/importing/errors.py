"""Errors of imports."""

from __future__ import annotations

from tidelog.engine.rdb.errors import RdbError, RdbUnknown
from tidelog.tools import exits
from tidelog.tools.failed import Failed


class SourceDamaged(Failed):
    """The source contradicts itself, or ends in the middle."""

    exit_code = exits.DAMAGED


class SourceNewer(Failed):
    """The source has something that this version does not know."""

    exit_code = exits.NEWER


def of_rdb(source: str, error: RdbError) -> Failed:
    """The error for an RDB image that cannot be read."""
    if isinstance(error, RdbUnknown):
        return SourceNewer(f"{source}, {error}. Import it with a newer version of tidelog")
    return SourceDamaged(
        f"{source}, {error}. Check the file with redis-check-rdb, or take another copy"
    )
