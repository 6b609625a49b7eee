"""Snapshots that are made for followers: they push out none that the store keeps, and go when they are not needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import inside

import tidelog
from tidelog.aof import identity
from tidelog.disk.real import RealDisk
from tidelog.snapshot.place import LocalPlace
from tidelog.store.checkpoints import Checkpoints


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tidelog.Store]:
    with tidelog.open(tmp_path / "db", fsync="no", keep_snapshots=2) as db:
        db.xadd("orders", {"n": 0})
        yield db


def checkpoints(db: tidelog.Store) -> Checkpoints:
    found = inside.checkpoints(db)
    assert isinstance(found, Checkpoints)
    return found


def made(db: tidelog.Store, *, passing: bool) -> Path:
    """A snapshot of something new."""
    db.xadd("orders", {"n": 1})
    return checkpoints(db).snapshot(passing=passing).path


def there(db: tidelog.Store) -> list[Path]:
    return sorted(inside.core(db).root.glob(f"{identity.SNAPSHOTS}/0*"))


def test_those_that_the_store_keeps_stay(db: tidelog.Store) -> None:
    own = [made(db, passing=False) for _ in range(3)][1:]
    assert there(db) == own
    others = [made(db, passing=True) for _ in range(3)]
    assert there(db) == own + others
    own = [own[1], made(db, passing=False)]
    assert there(db) == [own[0], *others, own[1]]
    for path in others:
        checkpoints(db).delete_passing(path)
    assert there(db) == own


def test_a_user_asks_for_one_that_a_follower_has(db: tidelog.Store) -> None:
    path = made(db, passing=True)
    again = db.snapshot()
    assert again.existed and again.path == path
    checkpoints(db).delete_passing(path)
    assert there(db) == [path]


def test_a_follower_uses_one_that_a_user_made(db: tidelog.Store) -> None:
    path = db.snapshot().path
    assert checkpoints(db).snapshot(passing=True).path == path
    checkpoints(db).delete_passing(path)
    assert there(db) == [path]


def test_one_that_is_held_stays_until_it_is_not(db: tidelog.Store) -> None:
    path = made(db, passing=True)
    place = LocalPlace(RealDisk(), path)
    with place.hold():
        assert not checkpoints(db).delete_passing(path)
        assert there(db) == [path]
    place.close()
    assert checkpoints(db).delete_passing(path)
    assert there(db) == []


def test_an_open_deletes_those_that_nobody_has(db: tidelog.Store) -> None:
    own, other, held, taken = (made(db, passing=passing) for passing in (False, True, True, True))
    db.snapshot()  # the last one is the store's from here on
    place = LocalPlace(RealDisk(), held)
    with place.hold():
        root = inside.core(db).root
        db.close()
        with tidelog.open(root, keep_snapshots=2) as again:
            assert there(again) == [own, held, taken] and not other.exists()
            assert checkpoints(again).passing() == [held]
    place.close()
    with tidelog.open(root, keep_snapshots=2) as again:
        assert there(again) == [own, taken]
        assert checkpoints(again).passing() == []


def test_the_log_goes_on_being_folded_behind_one(tmp_path: Path) -> None:
    """The log names who pins it; nobody does when the snapshot is gone."""
    with tidelog.open(tmp_path / "db", fsync="no", segment_bytes=4096, retain_bytes=0) as db:
        begun = db.time()[0]
        path = made(db, passing=True)
        for _ in range(50):
            db.xadd("orders", {"pad": "x" * 500})
        db.checkpoint()
        (pin,) = checkpoints(db).pins()
        assert pin[:3] == ("passing", path.name, int(path.name))
        assert begun * 1000 - 1000 <= pin.since_ms <= (db.time()[0] + 1) * 1000
        log = tmp_path / "db" / identity.AOF
        nbytes = sum(each.stat().st_size for each in log.glob("*.aof"))
        assert 20_000 < pin.nbytes < nbytes
    with tidelog.open(tmp_path / "db", fsync="no", segment_bytes=4096, retain_bytes=0) as db:
        db.set("k", "v")
        db.checkpoint()
        assert checkpoints(db).pins() == [] and not path.exists()
        assert sum(each.stat().st_size for each in log.glob("*.aof")) < nbytes - 20_000
