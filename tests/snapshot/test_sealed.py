"""Tests of a published snapshot that is read without LMDB: the same rows, in few reads, or a precise error."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.snapshot.portable.portable_store import DISK, opened, work

from tidelog.aof.identity import DATA
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.rowkeys import KEY
from tidelog.snapshot import portable
from tidelog.snapshot.errors import NotASnapshot, SnapshotDamaged, SnapshotError
from tidelog.snapshot.manifest import NAME
from tidelog.snapshot.place import LocalPlace, place_of
from tidelog.snapshot.rows.windows import GAP_BYTES, WINDOW_BYTES, Windows
from tidelog.snapshot.sealed import Sealed, open_sealed


def snapshot_of(root: Path, seed: int, steps: int = 300) -> Path:
    rng = random.Random(seed)
    with opened(root) as db:
        for _ in range(rng.randrange(1, 4)):
            work(db, rng, steps)
            db.checkpoint()
        return db.snapshot().path


@contextmanager
def sealed(path: Path) -> Iterator[Sealed]:
    found = open_sealed(place_of(path))
    try:
        yield found
    finally:
        found.close()


class CountedPlace(LocalPlace):
    nbytes = 0

    def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
        data = super().read_at(file, offset, nbytes)
        self.nbytes += len(data)
        return data


def test_opening_does_not_read_ahead(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as db:
        for number in range(50):
            db.xadd(f"stream-{number}", {"body": b"x" * 100_000})
        path = db.snapshot().path
    place = CountedPlace(DISK, path)
    open_sealed(place).close()
    assert place.nbytes < 200_000


def test_a_sparing_reader_does_not_read_ahead_behind_a_page(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as db:
        for number in range(300):
            db.xadd(f"stream-{number}", {"body": b"x" * 5_000})
        path = db.snapshot().path
    read: dict[bool, int] = {}
    for sparing in (False, True):
        place = CountedPlace(DISK, path)
        ours = open_sealed(place, sparing=sparing)
        before = place.nbytes
        assert sum(1 for _ in ours.rows.rows(KEY)) == 300
        read[sparing] = place.nbytes - before
        ours.close()
    assert read[True] < 50_000 < 500_000 < read[False]


@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_every_row_is_the_one_that_lmdb_gives(tmp_path: Path, seed: int) -> None:
    path = snapshot_of(tmp_path / "store", seed)
    names = sorted(each.name for each in path.iterdir())
    with sealed(path) as ours:
        rows = list(ours.rows.rows(b""))
        state = digest(ours.state())
        assert sorted(each.name for each in path.iterdir()) == names, "no file was created"
        theirs = portable.open_snapshot(DISK, path)
        try:
            assert rows == list(theirs.rows.rows(b""))
            assert state == digest(theirs.state())
            assert ours.meta == theirs.meta
            rng = random.Random(seed)
            for key in rng.sample([key for key, _ in rows], min(len(rows), 50)):
                for near in (key, key + b"\0", key[:-1]):
                    assert ours.rows.get(near) == theirs.rows.get(near)
                    assert ours.rows.before(near, near[:1]) == theirs.rows.before(near, near[:1])
                    assert ours.rows.after(near, near[:1]) == theirs.rows.after(near, near[:1])
        finally:
            theirs.close()


class Counted:
    """A file in memory. It records each read as (offset, bytes)."""

    def __init__(self, nbytes: int) -> None:
        self.data = random.Random(1).randbytes(nbytes)
        self.reads: list[tuple[int, int]] = []

    def read_at(self, offset: int, nbytes: int) -> bytes:
        assert 0 < nbytes and 0 <= offset and offset + nbytes <= len(self.data)
        self.reads.append((offset, nbytes))
        return self.data[offset : offset + nbytes]


@pytest.mark.parametrize("seed", rest_slow(range(20), 5))
def test_windows_give_the_bytes_of_the_file(seed: int) -> None:
    rng = random.Random(seed)
    file = Counted(rng.choice((1000, 3 << 20)))
    windows = Windows(file.read_at, len(file.data), rng.choice((1, 4096, 64 << 10)))
    at = 0
    for _ in range(400):
        if rng.random() < 0.3:
            at = rng.randrange(len(file.data) + 100)
        nbytes = rng.choice((0, 1, 16, 4096, 60_000, rng.randrange(3 << 20)))
        assert windows.read_at(at, nbytes) == file.data[at : at + nbytes]
        at += nbytes + rng.choice((0, 0, 10, GAP_BYTES + 1))
    assert windows.reads == len(file.reads)


def test_reading_in_order_costs_one_read_for_each_window(tmp_path: Path) -> None:
    file = Counted(8 << 20)
    windows = Windows(file.read_at, len(file.data), 4096)
    for at in range(0, len(file.data), 50_000):
        windows.read_at(at, 16)
        windows.read_at(at + 16, 49_000)
    assert len(file.reads) <= (8 << 20) // WINDOW_BYTES + 3
    assert sum(nbytes for _, nbytes in file.reads) <= len(file.data), "no byte is read twice"


def test_a_look_up_does_not_read_a_window() -> None:
    file = Counted(8 << 20)
    windows = Windows(file.read_at, len(file.data), 4096)
    for at in range(7 << 20, 0, -(1 << 20)):
        windows.read_at(at, 16)
        windows.read_at(at + 16, 10_000)
    assert max(nbytes for _, nbytes in file.reads) < 16_384


def test_a_scan_of_a_snapshot_takes_few_reads(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as db:
        rng = random.Random(2)
        for number in range(20):
            db.xadd_many(f"s{number}", [{"f": rng.randbytes(600)} for _ in range(2000)])
        path = db.snapshot().path
    size = (path / DATA).stat().st_size
    assert size > 20 << 20
    place = place_of(path)
    reads = []
    plain = place.read_at

    def read_at(file: str, offset: int, nbytes: int) -> bytes:
        reads.append(nbytes)
        return plain(file, offset, nbytes)

    place.read_at = read_at  # type: ignore[method-assign]
    ours = open_sealed(place)
    for _ in ours.rows.rows(b""):
        pass
    ours.close()
    assert len(reads) < 2 * size / WINDOW_BYTES + 30
    assert sum(reads) < 1.1 * size + (1 << 20)


def test_directories_that_are_no_snapshot(tmp_path: Path) -> None:
    store = tmp_path / "store"
    snapshot_of(store, 1, 10)
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, reason in (
        (tmp_path / "missing", "the directory does not exist"),
        (empty, "it is empty"),
        (store, "it is a store; its snapshots are in its folder snapshots/"),
        (store / "STORE", "it is not a directory"),
    ):
        with pytest.raises(NotASnapshot, match=reason):
            open_sealed(place_of(path))


def test_files_that_are_not_those_that_were_published(tmp_path: Path) -> None:
    path = snapshot_of(tmp_path / "store", 2, 100)
    copy = tmp_path / "copy"

    def fresh() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        return Path(shutil.copytree(path, copy))

    (fresh() / DATA).unlink()
    with pytest.raises(SnapshotDamaged, match="data.mdb: the file is missing"):
        open_sealed(place_of(copy))
    data = (fresh() / DATA).read_bytes()
    (copy / DATA).write_bytes(data[:-1])
    with pytest.raises(SnapshotDamaged, match="but the manifest says"):
        open_sealed(place_of(copy))
    (copy / DATA).write_bytes(b"x" * len(data))
    with pytest.raises(SnapshotDamaged, match="data.mdb: byte 0: "):
        open_sealed(place_of(copy))
    fresh()
    (copy / DATA).unlink()
    (copy / DATA).symlink_to(path / DATA)
    with pytest.raises(SnapshotDamaged, match="found a symbolic link where a file belongs"):
        open_sealed(place_of(copy))
    (fresh() / NAME).write_bytes(b"{}")
    with pytest.raises(NotASnapshot, match="manifest.json is not a tidelog file"):
        open_sealed(place_of(copy))
    copy.rename(tmp_path / ("9" * 20))
    shutil.copy(path / NAME, tmp_path / ("9" * 20))
    with pytest.raises(SnapshotDamaged, match="but the name of the directory says"):
        open_sealed(place_of(tmp_path / ("9" * 20)))


def test_a_changed_byte_is_an_error_or_the_same_rows(tmp_path: Path) -> None:
    path = snapshot_of(tmp_path / "store", 3, 150)
    data = (path / DATA).read_bytes()
    with sealed(path) as ours:
        wanted = list(ours.rows.rows(b""))
    rng = random.Random(4)
    raised = 0
    for _ in range(300):
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            at -= at % 4096 - rng.randrange(64)
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        (path / DATA).write_bytes(changed)
        try:
            with sealed(path) as ours:
                assert list(ours.rows.rows(b"")) == wanted, f"byte {at}"
        except (SnapshotError, CorruptBlock) as error:
            raised += 1
            assert str(path / DATA) in str(error) or str(path) in str(error)
    assert raised > 100
