"""How far the checkpoint of a served store goes."""

from __future__ import annotations

from tests.server.conftest import Running


def folded(running: Running) -> int:
    """The LSN up to which the checkpoint holds everything."""
    return int(running.db.info()["checkpoint_lsn"])
