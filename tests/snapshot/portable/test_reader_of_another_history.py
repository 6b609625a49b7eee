"""A reader whose directory's name another history of the same store got, just where it had come to.

The segments then have the same names, the same LSNs and the same uuid: only the life that wrote them and the checksum
of the frame before tell the two apart. The reader shows the new history or the old one, and never some of each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
UNITS = 20


def add(db: tidelog.Store, name: str, units: int) -> None:
    for n in range(units):
        db.xadd("s", {name: n, "pad": "x" * 100})


def last_lsn(db: tidelog.Store) -> int:
    return int(db.info()["next_lsn"]) - 1


def two_histories(tmp_path: Path) -> tuple[Path, Path]:
    """A store of 20 units, ended in the segment that begins behind its snapshot; and what was restored of that."""
    root, other = tmp_path / "data", tmp_path / "other"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, "base", 3)
        made = db.snapshot()
    restore(RealDisk(), made.path, other)
    with tidelog.open(root, **OPTIONS) as db:
        add(db, "old", UNITS)
    return root, other


def segments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "aof").glob("*.aof"))


def put_in_place(root: Path, other: Path) -> None:
    root.rename(root.with_name("broken"))
    other.rename(root)


def shown_is_there(reader: tidelog.Store, root: Path) -> None:
    reader.refresh()
    with tidelog.open(root, read_only=True) as fresh:
        assert reader.xrange("s") == fresh.xrange("s")
        assert reader.digest() == fresh.digest()


def test_a_segment_that_begins_at_the_same_lsn(tmp_path: Path) -> None:
    """The other history came to the same LSN with other records, and its next life goes on there."""
    root, other = two_histories(tmp_path)
    with tidelog.open(root, read_only=True) as reader:
        at = int(reader.info()["written_lsn"])
        with tidelog.open(other, **OPTIONS) as db:
            add(db, "new", UNITS)
            assert last_lsn(db) == at
        with tidelog.open(other, **OPTIONS) as db:
            add(db, "more", 5)
        assert f"{at + 1:020d}.aof" in segments(other)
        put_in_place(root, other)
        shown_is_there(reader, root)


@pytest.mark.parametrize("units", [1, UNITS - 1, UNITS, UNITS + 1, 3 * UNITS])
def test_a_segment_of_the_same_name(tmp_path: Path, units: int) -> None:
    """Another life wrote the segment in which the reader stands; it is shorter, as long, or longer."""
    root, other = two_histories(tmp_path)
    with tidelog.open(root, read_only=True) as reader:
        with tidelog.open(other, **OPTIONS) as db:
            add(db, "new", units)
        assert segments(other)[-1] == segments(root)[-1]
        put_in_place(root, other)
        shown_is_there(reader, root)
