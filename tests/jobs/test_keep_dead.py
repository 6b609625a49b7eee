"""Which stores drop dead jobs: those that began empty, and any that is told to. A follower drops none by itself."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from tests.formats.described import crc32c
from tests.jobs.test_queue_retention import take
from tests.until import until

import tidelog
from tidelog import testing
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore

DAY: Final = 86_400.0
LIMITS: Final = (30 * DAY, 100_000)
NONE: Final = (0, 0)


def limits(db: tidelog.Store) -> tuple[float, int]:
    told = db.info()
    return told["keep_dead_seconds"], told["keep_dead_jobs"]


def bury(db: tidelog.Store, *values: Any) -> None:
    mails = db.queue("mails")
    for value in values:
        mails.put(value)
        assert take(mails).fail("no")


def dead(db: tidelog.Store) -> list[Any]:
    return [job.value for job in db.queue("mails").dead]


def of_an_earlier_version(root: Path) -> None:
    """The store as 0.1 made it."""
    path = root / "STORE"
    text = path.read_bytes().replace(b"made 2\n", b"")
    text = text[: text.index(b"crc32c")]
    path.write_bytes(text + b"crc32c %08x\n" % crc32c(text))


def test_a_new_store_has_limits_also_when_it_is_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        with tidelog.open(tmp_path / "s") as db:
            assert limits(db) == LIMITS


def test_the_store_of_an_earlier_version_keeps_what_it_had(
    tmp_path: Path, clock: testing.Clock
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, clock=clock) as db:
        bury(db, 1, 2)
    of_an_earlier_version(root)
    for value in (3, 4):
        clock.advance(400 * DAY)
        with tidelog.open(root, clock=clock) as db:
            bury(db, value)
            assert limits(db) == NONE
    with tidelog.open(root, clock=clock, keep_dead_jobs=3) as db:
        assert dead(db) == [1, 2, 3, 4]
        bury(db, 5)
        assert dead(db) == [3, 4, 5]
    with tidelog.open(root, clock=clock, keep_dead_seconds=timedelta(days=300)) as db:
        bury(db, 6)
        assert dead(db) == [4, 5, 6]


def test_a_store_with_data_from_elsewhere_keeps_all(tmp_path: Path, clock: testing.Clock) -> None:
    """Nobody knows what the store that they come from had."""
    with tidelog.open(tmp_path / "s", clock=clock) as db:
        bury(db, 1)
        snapshot = db.snapshot()
    restore(RealDisk(), Path(snapshot.path), tmp_path / "restored")
    clock.advance(31 * DAY)
    with tidelog.open(tmp_path / "restored", clock=clock) as db:
        bury(db, 2)
        assert dead(db) == [1, 2] and limits(db) == NONE
    shutil.copytree(tmp_path / "s", tmp_path / "copied")  # the same store
    with tidelog.open(tmp_path / "copied", clock=clock) as db:
        bury(db, 2)
        assert dead(db) == [2] and limits(db) == LIMITS


def test_a_leader_drops_for_its_follower(tmp_path: Path) -> None:
    """The follower has what the log says, whatever its own limits are; promoted, it has its own."""
    with (
        tidelog.open(tmp_path / "leader", fsync="no", keep_dead_jobs=2) as db,
        tidelog.serve(db, port=0) as serving,
        tidelog.follow(
            tmp_path / "follower", f"tidelog://127.0.0.1:{serving.port}", fsync="no"
        ) as copy,
    ):
        bury(db, 1, 2, 3, 4)
        until(lambda: copy.digest() == db.digest())
        assert dead(copy) == dead(db) == [3, 4]
        assert limits(copy) == NONE
        copy.promote()
        bury(copy, 5, 6)
        assert dead(copy) == [3, 4, 5, 6] and dead(db) == [3, 4]


def test_config_set_changes_them_at_once(tmp_path: Path) -> None:
    with (
        tidelog.open(tmp_path / "s", fsync="no") as db,
        tidelog.serve(db, port=0) as serving,
        tidelog.connect(f"redis://127.0.0.1:{serving.port}", decode_responses=True) as client,
    ):
        assert client.config_get("keep-dead-*") == {
            "keep-dead-seconds": "-1",
            "keep-dead-jobs": "-1",
        }
        bury(db, 1, 2, 3)
        client.config_set("keep-dead-jobs", "2")
        bury(db, 4)
        assert dead(db) == [3, 4] and limits(db) == (LIMITS[0], 2)
        client.config_set("keep-dead-jobs", "0")
        client.config_set("keep-dead-seconds", "0")
        bury(db, 5)
        assert dead(db) == [3, 4, 5] and limits(db) == NONE
        client.config_set("keep-dead-jobs", "-1")
        client.config_set("keep-dead-seconds", "-1")
        assert limits(db) == LIMITS


def test_a_key_of_another_type_does_no_harm(
    tmp_path: Path, clock: testing.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        mails = db.queue("mails")
        mails.put(1)
        db.set("mails:dead", "x")
        job = take(mails)
        clock.advance(61)
        assert job.ack() and db.get("mails:dead") == b"x"
    assert not caplog.records


@pytest.mark.parametrize("value", [-1, 1.5, "many", True])
def test_a_number_that_is_none(value: Any, tmp_path: Path) -> None:
    with pytest.raises(tidelog.DataError, match="keep_dead_jobs must be an integer of at least 0"):
        tidelog.open(tmp_path / "s", keep_dead_jobs=value)
    if value != 1.5:
        with pytest.raises(tidelog.DataError, match="keep_dead_seconds must be a number of"):
            tidelog.open(tmp_path / "s", keep_dead_seconds=value)
    assert not (tmp_path / "s").exists()
