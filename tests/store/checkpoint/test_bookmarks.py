"""Bookmarks of readers in other processes keep the log that these have not read."""

from __future__ import annotations

import errno
import logging
import os
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


def listed(root: Path) -> Any:
    return bookmarks.bookmarks(DISK, root, identity.read(DISK, root))


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
        assert listed(root) == ([Bookmark("query", 150), Bookmark("slower", 90)], [])
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
        assert record.getMessage() == (
            f"{root}: the bookmark query at LSN 10 is void and keeps no log: more than 30000 bytes lie behind it"
        )
        caplog.clear()
        put(root, 20)
        add(db, 1)
        db.checkpoint()
        (record,) = caplog.records
        assert (
            "query at LSN 20 is void and keeps no log: the log behind it is gone"
            in record.getMessage()
        )


def damaged(path: Path, way: str) -> None:
    text = path.read_bytes()
    path.unlink()
    match way:
        case "empty":
            path.touch()
        case "short":
            path.write_bytes(text[:-3])
        case "changed":
            path.write_bytes(text.replace(b"lsn 0", b"lsn 1"))
        case "long":
            path.write_bytes(text + bytes(bookmarks.BYTES_MAX - len(text)) + b"more")
        case "zeros":
            path.write_bytes(bytes(len(text)))
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(path.with_name("elsewhere"))
        case "fifo":
            os.mkfifo(path)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        *(
            (way, "the file is damaged")
            for way in ("empty", "short", "changed", "long", "zeros", "huge")
        ),
        ("directory", "found a directory where a file belongs"),
        ("link", "found a symbolic link where a file belongs"),
        ("fifo", "found a FIFO where a file belongs"),
    ],
)
def test_a_damaged_bookmark_keeps_nothing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str, why: str
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        put(root, 0)
        put(root, 60, "whole")
        damaged(root / "bookmarks" / "query", way)
        add(db)
        db.checkpoint()
        db.checkpoint()
        assert 1 < first_lsn(root) <= 61
        (record,) = caplog.records
        assert f"the bookmark query keeps no log: {why}" in record.getMessage()
    with tidelog.open(root, **OPTIONS):
        pass
    done = CliRunner().invoke(command, [str(root)], catch_exceptions=False)
    assert f"bookmark     query keeps no log: {why}" in done.output
    assert "bookmark     whole at LSN 60\n" in done.output


def test_any_byte_of_a_bookmark(tmp_path: Path) -> None:
    """A damaged bookmark is never taken for another one."""
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS):
        put(root, 4711)
    path = root / "bookmarks" / "query"
    text = path.read_bytes()
    for at in range(len(text)):
        path.write_bytes(text[:at])
        assert listed(root)[0] == []
        for bit in range(8):
            path.write_bytes(text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :])
            assert listed(root)[0] == []


def test_a_bookmark_of_another_store_keeps_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        bookmarks.put(DISK, root, bytes(16), Bookmark("query", 0))
        add(db)
        db.checkpoint()
        assert first_lsn(root) > 50
    assert f"it belongs to the store {bytes(16).hex()}" in caplog.text


def test_bookmarks_that_cannot_be_read_keep_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what they say. The next checkpoint tries again."""
    root = tmp_path / "s"
    with tidelog.open(root, **OPTIONS) as db:
        put(root, 50)
        add(db)
        with monkeypatch.context() as patch:

            def fail(*args: object) -> bytes:
                raise OSError(errno.EIO, "Input/output error")

            patch.setattr("tidelog.aof.bookmarks.recipe.read", fail)
            db.checkpoint()
        assert first_lsn(root) == 1
        assert "could not be deleted; the next checkpoint tries again" in caplog.text
        add(db, 1)
        db.checkpoint()
        assert 1 < first_lsn(root) <= 51


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
