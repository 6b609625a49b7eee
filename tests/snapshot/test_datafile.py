"""Tests of what is looked at before a file is mapped: foreign, short, cut and senseless files."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from tests.snapshot.world import DISK, cold, environment, write

from tidelog.aof.errors import NewerFormat
from tidelog.snapshot.errors import CheckpointError, DamagedCheckpoint
from tidelog.snapshot.rows import datafile
from tidelog.snapshot.rows.environment import open_environment

ROWS = {b"p%05d" % i: bytes([i % 251]) * (5000 if i % 50 == 0 else 90) for i in range(2000)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with environment(tmp_path / "c") as env:
        write(env, ROWS)
        write(env, {b"z": b"1"})
    return tmp_path / "c" / "data.mdb"


def made_short(path: Path, rows: int = 40, nbytes: int = 9000) -> bytearray:
    """A file as LMDB leaves it when its last pages were taken and given back in one transaction."""
    with environment(path.parent) as env:
        write(env, {b"z": b"2"})  # frees some pages in front of these
        writing = env.write()
        for number in range(rows):
            writing.put(b"t%d" % number, bytes(nbytes))
        for number in range(rows):
            writing.delete(b"t%d" % number)
        writing.commit()
        return bytearray(path.read_bytes())


def with_last_page(path: Path, change: int) -> bytearray:
    """The file with the number of the last page changed in the meta page that counts."""
    data = bytearray(path.read_bytes())
    at = head_of(path).transaction % 2 * 4096 + 136
    (last,) = struct.unpack_from("=Q", data, at)
    struct.pack_into("=Q", data, at, last ^ change)
    return data


def head_of(path: Path) -> datafile.Head:
    file = DISK.open(path)
    try:
        head = datafile.read_head(file)
    finally:
        file.close()
    assert head is not None
    return head


def test_the_head_is_what_lmdb_says(path: Path) -> None:
    head = head_of(path)
    with environment(path.parent) as env:
        lmdb = env._open()
        stat, info = lmdb.stat(), lmdb.info()
    assert head.psize == stat["psize"] and head.entries == stat["entries"] == 2001
    assert head.last_page == info["last_pgno"] and head.transaction == info["last_txnid"] == 2
    assert path.stat().st_size == head.bytes


@pytest.mark.parametrize("content", [b"", bytes(8192), bytes(65536)])
def test_a_blank_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(FileNotFoundError):
        open_environment(DISK, tmp_path, read_only=True)
    assert (tmp_path / "data.mdb").read_bytes() == content
    with environment(tmp_path) as env:
        write(env, ROWS)


# fmt: off
@pytest.mark.parametrize("content, reason", [
    (b"hello", "byte 5: the file ends here, before the end of meta page 0"),
    (b"SQLite format 3\0" + bytes(9000), "not an LMDB file"),
    (bytes(65537), "not an LMDB file"),
    (random.Random(0).randbytes(20000), "not an LMDB file"),
])
# fmt: on
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(DamagedCheckpoint, match=reason):
            open_environment(DISK, tmp_path, read_only=read_only)
    assert (tmp_path / "data.mdb").read_bytes() == content


# fmt: off
@pytest.mark.parametrize("at, layout, value, reason", [
    (0, "Q", 5, "page number 5"),
    (10, "H", 2, "not an LMDB file"),
    (40, "I", 4095, "page size 4095"),
    (40, "I", 8192, "page 1 is not a meta page|before the end of meta page 1"),
    (40, "I", 1 << 31, "page size"),
    (44, "H", 4, "tree flags"),
    (92, "H", 4, "tree flags"),
    (94, "H", 90, "depth"),
    (80, "Q", 1 << 50, "root pages"),
    (128, "Q", 1, "root pages"),
    (128, "Q", datafile.NO_PAGE, "rows without a root"),
    (136, "Q", 0, "last page 0"),
    (136, "Q", 1 << 60, "last page"),
    (4096 + 40, "I", 2048, "gives a page size"),
    (4096, "Q", 7, "page number 7"),
    (4096 + 16, "I", 7, "page 1 is not a meta page"),
    (20, "I", 0, "format 0 is unknown"),
])
# fmt: on
def test_senseless_meta_pages_are_refused(
    path: Path, at: int, layout: str, value: int, reason: str
) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("=" + layout, data, at, value)
    path.write_bytes(data)
    with pytest.raises(DamagedCheckpoint, match=reason) as raised:
        open_environment(DISK, path.parent)
    assert "snapshot restore" in str(raised.value) and str(path) in str(raised.value)


@pytest.mark.parametrize("at, value", [(80, 1 << 50), (128, 12), (136, 1 << 60)])
def test_the_older_meta_page_may_be_what_a_failed_commit_left(
    path: Path, at: int, value: int
) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("=Q", data, 4096 + at, value)
    path.write_bytes(data)
    with environment(path.parent) as env, cold(env) as rows:
        assert dict(rows.rows(b"p")) == ROWS
        write(env, {b"q": b""})
        write(env, {b"q": b""})
    assert head_of(path).transaction == 4


def test_the_format_of_a_later_lmdb_is_refused(path: Path) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("=I", data, 20, 3)
    path.write_bytes(data)
    with pytest.raises(NewerFormat):
        open_environment(DISK, path.parent)


def test_every_cut_is_refused_or_harmless(path: Path) -> None:
    whole = path.read_bytes()
    rng = random.Random(2)
    sizes = [len(whole) - 1, len(whole) - 4096, 8192, 8193, 4096, 4095, 100, 11]
    refused = 0
    for size in sizes + [rng.randrange(11, len(whole)) for _ in range(60)]:
        path.write_bytes(whole[:size])
        try:
            env = open_environment(DISK, path.parent)
        except DamagedCheckpoint:
            refused += 1
            assert path.stat().st_size == size
            continue
        with cold(env) as rows:
            assert dict(rows.rows(b"p")) == ROWS
        env.close()
    assert refused > 40


def test_a_healthy_file_that_is_short_is_extended(path: Path) -> None:
    data = made_short(path)
    head = head_of(path)
    assert len(data) < head.bytes - 10 * 4096
    with environment(path.parent) as env:
        assert path.stat().st_size == head.bytes
        with cold(env) as rows:
            assert dict(rows.rows(b"p")) == ROWS


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("bit", [10, 12, 16, 24, 31, 40, 46])
def test_a_damaged_number_of_the_last_page_makes_no_file_grow(
    path: Path, bit: int, short: bool
) -> None:
    """One flipped bit made an open extend the file to 64 GiB, and the next commit write there."""
    if short:
        made_short(path)
    data = with_last_page(path, 1 << bit)
    path.write_bytes(data)
    with pytest.raises(DamagedCheckpoint, match=r"gives \d+ as the last page, so \d+ pages are mis"):
        open_environment(DISK, path.parent)
    assert path.read_bytes() == data


def test_lists_of_free_pages_in_pages_of_their_own_count(path: Path) -> None:
    made_short(path, 30, 50_000)
    head = head_of(path)
    assert head.free.overflows > 0
    assert path.stat().st_size < head.bytes - 300 * 4096
    with environment(path.parent) as env:
        assert path.stat().st_size == head.bytes
        with cold(env) as rows:
            assert dict(rows.rows(b"p")) == ROWS


def test_a_short_file_that_may_not_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafile, "check_reach", lambda file, head: None)
    monkeypatch.setattr(type(DISK), "writable", lambda self, path: False)
    with path.open("r+b") as file:
        file.truncate(head_of(path).bytes - 1)
    with pytest.raises(CheckpointError, match="truncate -s"):
        open_environment(DISK, path.parent, read_only=True)


def test_a_commit_that_leaves_the_file_short_is_extended(path: Path) -> None:
    with environment(path.parent) as env:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + 5)
        env.extend()
        assert env.size() >= head_of(path).bytes


def test_short_files_with_damaged_trees_are_refused(path: Path) -> None:
    short = made_short(path)
    head = head_of(path)
    assert head.rows.root is not None
    at = head.rows.root * 4096
    (node,) = struct.unpack_from("=H", short, at + 16)
    for where, value in (
        (at, b"\xff"),  # its number
        (at + 10, b"\0\0"),  # its flags
        (at + 12, b"\xff\xff"),  # how many nodes it has
        (at + 16, b"\xff\xff"),  # where the first one lies
        (at + node, b"\xff" * 6),  # what that leads to
    ):
        data = bytearray(short)
        data[where : where + len(value)] = value
        path.write_bytes(data)
        with pytest.raises(DamagedCheckpoint, match="page"):
            open_environment(DISK, path.parent)
