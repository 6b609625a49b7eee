"""Two stores that should hold the same: the bytes of their frames, and until when to wait for that."""

from __future__ import annotations

from tests import inside
from tests.until import until

import tidelog
from tidelog.aof import identity
from tidelog.aof.log import WRITTEN
from tidelog.aof.seek import Source, position_after


def last_lsn(db: tidelog.Store) -> int:
    """Of everything that is in the log."""
    log = inside.log(db)
    with log.lock:
        log.flush()
        return log.written_lsn


def frames(db: tidelog.Store, after: int = 0) -> bytes:
    """The bytes of all frames of an open store's log behind an LSN."""
    core = inside.core(db)
    last_lsn(db)
    roles = core.roles
    assert roles is not None
    directory = core.root / identity.AOF
    position = position_after(roles.disk, directory, roles.uuid, after)
    assert position is not None
    source = Source(roles.disk, directory, roles.uuid, position)
    good = core.log.good(WRITTEN)
    pieces = []
    while piece := source.read(1 << 20, good):
        pieces.append(piece)
    source.close()
    return b"".join(pieces)


def caught_up(leader: tidelog.Store, follower: tidelog.Store) -> None:
    """Until the follower has everything that its leader has now."""
    lsn = last_lsn(leader)
    until(lambda: last_lsn(follower) >= lsn, "the follower does not catch up")


def equal(leader: tidelog.Store, follower: tidelog.Store) -> None:
    """Both have caught up and hold the same."""
    caught_up(leader, follower)
    assert follower.digest() == leader.digest()
    assert frames(follower) == frames(leader)
