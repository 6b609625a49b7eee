"""A store whose directory is moved away while it is open, and another that gets its name: neither is harmed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog

OPTIONS: dict[str, Any] = {
    "fsync": "no",
    "segment_bytes": 4096,
    "checkpoint_bytes": 0,
    "save": (),
    "retain_bytes": 0,
}


def add(db: tidelog.Store, count: int) -> None:
    for n in range(count):
        db.xadd("s", {"n": n, "pad": "x" * 200})


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*.aof")}


@pytest.fixture
def moved(tmp_path: Path) -> Any:
    """A store that is open, whose directory another one took the name of."""
    root = tmp_path / "data"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, 40)
        db.checkpoint()
        add(db, 5)
        root.rename(tmp_path / "away")
        with tidelog.open(root, **OPTIONS) as other:
            add(other, 50)
        yield db, root, tmp_path / "away"


@pytest.mark.parametrize(
    "change",
    [lambda db: add(db, 100), lambda db: db.checkpoint(), lambda db: db.snapshot()],
    ids=["roll", "checkpoint", "snapshot"],
)
def test_the_other_is_left_alone(moved: Any, change: Callable[[tidelog.Store], object]) -> None:
    db, root, away = moved
    before = files(root)
    try:
        change(db)
    except tidelog.TidelogError as error:
        assert "was moved or replaced" in str(error) and str(root) in str(error)
    length = db.xlen("s")
    db.close()
    assert files(root) == before and not (root / "snapshots").exists()
    with tidelog.open(root) as other:
        assert other.xlen("s") == 50
    with tidelog.open(away) as own:
        assert own.xlen("s") == length >= 45


def test_a_call_that_needs_a_new_file_has_changed_nothing(moved: Any) -> None:
    db, _, away = moved
    with pytest.raises(tidelog.NotStored, match="was moved or replaced, or its LOCK was deleted"):
        add(db, 100)
    length = db.xlen("s")
    db.close()
    with tidelog.open(away) as own:
        assert own.xlen("s") == length


def test_moved_and_moved_back_it_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, 5)
        root.rename(tmp_path / "away")
        with pytest.raises(tidelog.NotStored):
            add(db, 100)
        length = db.xlen("s")
        (tmp_path / "away").rename(root)
        add(db, 100)
        db.checkpoint()
    with tidelog.open(root) as db:
        assert db.xlen("s") == length + 100
