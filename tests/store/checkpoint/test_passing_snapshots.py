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
        checkpoints(db).delete_passing(path)
        assert there(db) == [path]
    place.close()
    checkpoints(db).delete_passing(path)
    assert there(db) == []
