"""A leader keeps its log for a follower that is away, within bounds; a follower that was away for too long is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.replication.stores import equal
from tests.until import until

import tidelog
from tidelog.disk.real import RealDisk


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


class Room:
    """How full the disk is, as the store sees it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.capacity, self.free = 1 << 30, 1 << 29
        patch.setattr(RealDisk, "capacity", lambda disk, path: self.capacity)
        patch.setattr(RealDisk, "free", lambda disk, path: self.free)


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    """Half of the disk is free unless a test says otherwise, however full this machine's is."""
    return Room(monkeypatch)


def test_nothing_is_kept_for_followers_when_the_disk_is_full(
    tmp_path: Path, room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    """The log that only they need is deleted without a checkpoint: a full disk has no room for one."""
    options: dict[str, Any] = {"fsync": "no", "segment_bytes": 4096, "retain_bytes": 0}
    with (
        tidelog.open(tmp_path / "leader", **options) as db,
        tidelog.serve(db, port=0) as serving,
    ):
        url = f"tidelog://127.0.0.1:{serving.port}"
        with tidelog.follow(tmp_path / "follower", url, fsync="always") as copy:
            fill(db, 50)
            equal(db, copy)
        fill(db, 50)
        inside.checkpoints(db).fold()
        fill(db, 50)

        def kept() -> int:
            return len(list((tmp_path / "leader" / "aof").glob("*.aof")))

        both = kept()
        room.free = room.capacity // 10 - 1
        until(lambda: kept() < both, "no segment is deleted")
        assert (
            "is void and keeps no log: less than a tenth of the disk, or of the quota, is free"
            in caplog.text
        )
        room.free = 0
        until(lambda: kept() < both - 5, "the log is kept on a full disk")
        fill(db, 1)
        with tidelog.follow(tmp_path / "follower", url, fsync="always") as copy:
            room.free = room.capacity
            until(lambda: copy.digest() == db.digest())


def test_a_follower_that_is_away_does_not_fill_the_quota(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        tidelog.open(tmp_path / "leader", fsync="no", segment_bytes=4096, maxdisk=1 << 20) as db,
        tidelog.serve(db, port=0) as serving,
    ):
        url = f"tidelog://127.0.0.1:{serving.port}"
        with tidelog.follow(tmp_path / "follower", url, fsync="always") as copy:
            fill(db, 50)
            equal(db, copy)

        def more() -> bool:
            try:
                fill(db, 20)
            except tidelog.StoreFull:
                return False
            return True

        for _ in range(100):
            until(more, "the log is kept at the quota")
        assert "is void and keeps no log: less than a tenth" in caplog.text
        with tidelog.follow(tmp_path / "follower", url, fsync="always") as copy:
            until(lambda: copy.digest() == db.digest())


def test_no_room_is_made_where_a_snapshot_needs_the_log(
    tmp_path: Path, room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        tidelog.open(tmp_path / "leader", fsync="no", segment_bytes=4096, retain_bytes=0) as db,
        tidelog.serve(db, port=0) as serving,
    ):
        db.snapshot()
        url = f"tidelog://127.0.0.1:{serving.port}"
        with tidelog.follow(tmp_path / "follower", url, fsync="always") as copy:
            fill(db, 50)
            equal(db, copy)
        fill(db, 50)
        room.free = 0
        inside.checkpoints(db).fold()
        assert "is void" not in caplog.text  # that would have given no room
        room.free = room.capacity
        with tidelog.follow(tmp_path / "follower", url, fsync="always") as copy:
            equal(db, copy)
            server = serving.server
            assert server is not None and server.replicating.feeding.offerings.begun == 0


def test_a_follower_is_named_before_it_is_too_far_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        tidelog.open(tmp_path / "leader", fsync="no", segment_bytes=4096, retain_bytes=0) as db,
        tidelog.serve(db, port=0, repl_backlog_size=100_000) as serving,
    ):
        url = f"tidelog://127.0.0.1:{serving.port}"
        with tidelog.follow(tmp_path / "follower", url, fsync="always") as copy:
            fill(db, 1)
            equal(db, copy)
        for _ in range(3):
            fill(db, 50)
            inside.checkpoints(db).fold()
        assert caplog.text.count("three quarters of the log that is kept for it") == 1
        assert "is void" not in caplog.text
        fill(db, 100)
        inside.checkpoints(db).fold()
        assert "more than 100000 bytes lie behind it" in caplog.text
