"""A leader keeps its log for a follower that is away, within bounds; a follower that was away for too long is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import inside
from tests.replication.stores import equal
from tests.until import until

import tidelog


def fill(db: tidelog.Store, count: int) -> None:
    for number in range(count):
        db.xadd("orders", {"n": number, "pad": "x" * 500}, maxlen=10)


def away(root: Path, **options: Any) -> int:
    """The leader writes and makes checkpoints while its follower is away. How many copies it sends it then."""
    with (
        tidelog.open(root / "leader", fsync="no", segment_bytes=4096, retain_bytes=0) as db,
        tidelog.serve(db, port=0, **options) as serving,
    ):
        url = f"tidelog://127.0.0.1:{serving.port}"
        checkpoints = inside.checkpoints(db)
        with tidelog.follow(root / "follower", url, fsync="always") as copy:
            fill(db, 50)
            equal(db, copy)
        fill(db, 50)
        checkpoints.fold()
        fill(db, 50)
        checkpoints.fold()
        with tidelog.follow(root / "follower", url, fsync="always") as copy:
            until(lambda: copy.digest() == db.digest())
            server = serving.server
            assert server is not None
            return server.replicating.feeding.offerings.begun


def test_the_log_is_kept_for_a_follower_that_is_away(tmp_path: Path) -> None:
    assert away(tmp_path) == 0


def test_not_for_longer_than_asked(tmp_path: Path) -> None:
    assert away(tmp_path, repl_backlog_ttl=0) == 1


def test_not_more_than_asked(tmp_path: Path) -> None:
    assert away(tmp_path, repl_backlog_size=16 << 10) == 1
