"""Bookmarks of readers in other processes keep the log that these have not read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidelog
from tidelog.aof import bookmarks, identity
from tidelog.aof.bookmarks import Bookmark
from tidelog.disk.real import RealDisk
from tidelog.tools.info import command

OPTIONS: dict[str, Any] = {
    **{"fsync": "no", "save": (), "checkpoint_bytes": 0},
    **{"segment_bytes": 4096, "retain_bytes": 0},
}
DISK = RealDisk()


def add(db: tidelog.Store, count: int = 100) -> None:
    for n in range(count):
        db.xadd("s", {"n": n, "pad": "x" * 50})


def first_lsn(root: Path) -> int:
    return min(int(path.stem) for path in (root / "aof").glob("*.aof"))


def put(root: Path, lsn: int, name: str = "query") -> None:
    bookmarks.put(DISK, root, identity.read(DISK, root), Bookmark(name, lsn))


def test_the_log_behind_a_bookmark_stays(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        put(root, 50)
        add(db)
        db.checkpoint()
        assert 1 < first_lsn(root) <= 51
        put(root, 80)
        add(db)
        db.checkpoint()
        assert 51 < first_lsn(root) <= 81
        put(root, 150)
        put(root, 90, "slower")
        add(db)
        db.checkpoint()
        assert first_lsn(root) <= 91
        assert bookmarks.bookmarks(DISK, root, identity.read(DISK, root)) == [
            Bookmark("query", 150),
            Bookmark("slower", 90),
        ]
        for name in ("query", "slower"):
            (root / "bookmarks" / name).unlink()
        add(db)
        db.checkpoint()
        assert first_lsn(root) > 300


def test_a_bookmark_too_far_behind_is_void_and_said_to_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, retain_bookmark_bytes=30_000) as db:
        put(root, 10)
        add(db)
        db.checkpoint()
        assert first_lsn(root) == 1 and not caplog.records
        add(db, 300)
        with caplog.at_level(logging.WARNING):
            db.checkpoint()
            add(db, 1)
            db.checkpoint()
        assert first_lsn(root) > 300
        (record,) = caplog.records
        assert "the bookmark query at LSN 10 is void" in record.getMessage()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"",
        lambda text: text[:-3],
        lambda text: text.replace(b"lsn 0", b"lsn 1"),
        lambda text: text.replace(b"uuid ", b"uuid 00"),
    ],
)
def test_a_damaged_bookmark_keeps_nothing(tmp_path: Path, change: Any) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        put(root, 0)
        path = root / "bookmarks" / "query"
        path.write_bytes(change(path.read_bytes()))
        add(db)
        db.checkpoint()
        assert first_lsn(root) > 50


def test_a_bookmark_of_another_store_keeps_nothing(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        bookmarks.put(DISK, root, bytes(16), Bookmark("query", 0))
        add(db)
        db.checkpoint()
        assert first_lsn(root) > 50


def test_names() -> None:
    assert all(map(bookmarks.is_name, ("a", "query-1", "a.b_c", "x" * 64)))
    assert not any(map(bookmarks.is_name, ("", ".", "..", "a/b", "a.new", "-a", "x" * 65, "ä")))


def test_info_lists_them(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS, retain_bookmark_bytes=0) as db:
        add(db)
        db.checkpoint()
        put(root, 10, "late")
        put(root, 101, "near")
    done = CliRunner().invoke(command, [str(root)], catch_exceptions=False)
    assert "bookmark     late at LSN 10, void: the log behind it is gone\n" in done.output
    assert "bookmark     near at LSN 101\n" in done.output
