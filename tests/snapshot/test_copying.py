"""Tests of copying snapshots: cut short anywhere, the same call goes on, and the copy is the snapshot byte for byte."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.rounds import some_and_all
from tests.snapshot.buckets import Bucket, credentials
from tests.snapshot.portable.portable_store import DISK, opened

from tidelog.aof.identity import DATA
from tidelog.disk.real import RealDisk, RealFile
from tidelog.snapshot import copying, portable
from tidelog.snapshot.copying import MARK, NEW, Copied, copy_snapshot
from tidelog.snapshot.errors import NotASnapshot, SnapshotDamaged, SnapshotRefused
from tidelog.snapshot.manifest import NAME
from tidelog.snapshot.place import LocalPlace, place_of
from tidelog.snapshot.sealed import open_sealed

PIECE = 64 << 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PIECE_BYTES", PIECE)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of some 2 MB."""
    with opened(tmp_path_factory.mktemp("store") / "db") as db:
        rng = random.Random(1)
        for number in range(10):
            db.xadd_many(f"s{number}", [{"f": rng.randbytes(200)} for _ in range(1000)])
        return db.snapshot().path


def copied(source: Path | str, target: Path | str) -> Copied:
    one, other = place_of(source), place_of(target)
    try:
        return copy_snapshot(one, other)
    finally:
        one.close()
        other.close()


def same(one: Path, other: Path) -> bool:
    return {path.name: path.read_bytes() for path in one.iterdir()} == {
        path.name: path.read_bytes() for path in other.iterdir()
    }


def test_a_copy_is_the_snapshot(snapshot: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    made = copied(snapshot, target)
    assert (made.kept, made.existed, made.name) == (0, False, str(target))
    assert same(snapshot, target)
    again = copied(snapshot, target)
    assert again.existed and again.kept == (snapshot / DATA).stat().st_size
    assert copied(snapshot, tmp_path / snapshot.name).existed is False


class Cut(Exception):
    """The copy is cut short here."""


class CutDisk(RealDisk):
    """A disk that fails at the operation with this number."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self.at, self.error, self.done = at, error, 0

    def count(self) -> None:
        self.done += 1
        if self.done == self.at:
            raise self.error

    def create(self, path: Path) -> RealFile:
        self.count()
        return self.counting(super().create(path))

    def open(self, path: Path, *, write: bool = False) -> RealFile:
        return self.counting(super().open(path, write=write))

    def lock(self, path: Path) -> RealFile | None:
        file = super().lock(path)
        return None if file is None else self.counting(file)

    def rename(self, source: Path, target: Path) -> None:
        self.count()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self.count()
        super().unlink(path)

    def counting(self, file: RealFile) -> RealFile:
        counted = CountedFile(file.path, os.dup(file.fileno()), may_map=False)
        counted.disk = self
        file.close()
        return counted


class CountedFile(RealFile):
    """Its writes count as operations of a CutDisk."""

    __slots__ = ("disk",)
    disk: CutDisk

    def write(self, offset: int, data: bytes) -> None:
        try:
            self.disk.count()
        except BaseException:
            super().write(offset, data[: len(data) // 2])
            raise
        super().write(offset, data)

    def fsync(self) -> None:
        self.disk.count()
        super().fsync()


def cut_copy(source: Path, target: Path, at: int, error: BaseException) -> int:
    """Copy until the operation `at`; the number of operations. Raises `error` there."""
    disk = CutDisk(at, error)
    one = place_of(source)
    try:
        copy_snapshot(one, LocalPlace(disk, target))
    finally:
        one.close()
    return disk.done


@pytest.mark.parametrize("every", some_and_all(3, 1))
def test_cut_short_at_every_operation(snapshot: Path, tmp_path: Path, every: int) -> None:
    operations = cut_copy(snapshot, tmp_path / "whole", 0, Cut())
    assert operations > 60
    size = (snapshot / DATA).stat().st_size
    most = 0
    for at in sorted({*range(1, operations, every), operations}):
        target = tmp_path / str(at)
        with pytest.raises(Cut):
            cut_copy(snapshot, target, at, Cut())
        if at < operations:
            with pytest.raises(NotASnapshot):
                open_sealed(place_of(target))
        made = copied(snapshot, target)
        assert same(snapshot, target)
        assert made.kept >= min(most - PIECE, size - PIECE) - PIECE, "it went on where it was"
        most = max(most, made.kept)
        shutil.rmtree(target)
    assert most == size


def test_spoiled_pieces_are_copied_again(snapshot: Path, tmp_path: Path) -> None:
    size = (snapshot / DATA).stat().st_size
    rng = random.Random(3)
    for number in range(12):
        target = tmp_path / str(number)
        with pytest.raises(Cut):
            cut_copy(snapshot, target, 45, Cut())
        path = target / rng.choice((NEW, NEW, MARK))
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data) // 2, len(data))
        if rng.random() < 0.5:
            data[at] ^= 64
        else:
            data[at:] = bytes(len(data) - at)
        path.write_bytes(data)
        made = copied(snapshot, target)
        assert same(snapshot, target), f"{path} byte {at}"
        assert 0 < made.kept < size or path.name == MARK


def test_a_full_disk(snapshot: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    full = OSError(errno.ENOSPC, "No space left on device", str(target / NEW))
    with pytest.raises(OSError, match="No space left on device.*data.mdb.new"):
        cut_copy(snapshot, target, 30, full)
    with pytest.raises(NotASnapshot, match="it is an unfinished copy; run the same"):
        open_sealed(place_of(target))
    assert copied(snapshot, target).kept > 0
    assert same(snapshot, target)


CHILD = """
import sys
from tidelog.snapshot import copying
from tidelog.snapshot.place import place_of

copying.PIECE_BYTES = 64 << 10
source = place_of(sys.argv[1])
plain = source.read_at


def read_at(file, offset, nbytes):
    print(offset, flush=True)
    sys.stdin.readline()
    return plain(file, offset, nbytes)


source.read_at = read_at
copying.copy_snapshot(source, place_of(sys.argv[2]))
"""


def kill_at(source: Path | str, target: Path | str, reads: int) -> None:
    """Copy in another process and kill it when it begins its read number `reads`."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(source), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        for _ in range(reads):
            assert child.stdout.readline()
            child.stdin.write("\n")
            child.stdin.flush()
        assert child.stdout.readline()
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        with suppress(BrokenPipeError):
            child.stdin.close()


def test_killed_again_and_again(snapshot: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(5):
        kill_at(snapshot, target, rng.randrange(3, 9))
        with pytest.raises(NotASnapshot):
            open_sealed(place_of(target))
    pruned = portable.prune(DISK, snapshot.parent, 1, dry_run=True)
    assert pruned.held == [], "the lease of a killed copy is gone"
    assert copied(snapshot, target).kept > 0
    assert same(snapshot, target)


def test_a_copy_holds_its_source(snapshot: Path, tmp_path: Path) -> None:
    class Looking(LocalPlace):
        def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
            if file == DATA:
                held = portable.prune(DISK, snapshot.parent, 0, dry_run=True).held
                assert [item.path for item in held] == [snapshot]
            return super().read_at(file, offset, nbytes)

    copy_snapshot(Looking(DISK, snapshot), place_of(tmp_path / "copy"))


# --- what is refused


# fmt: off
@pytest.mark.parametrize(("names", "reason"), [
    (("notes.txt",), r"is not empty \(it contains notes.txt\)"),
    ((MARK, "notes.txt"), r"is not empty \(it contains notes.txt\)"),
    ((NEW,), r"is not empty \(it contains data.mdb.new\)"),
    ((DATA,), "the data has 1 bytes, but the manifest says"),
    ((MARK,), "contains an unfinished copy of another snapshot"),
    ((NAME,), "the target is another snapshot, or a damaged one"),
])
# fmt: on
def test_targets_that_contain_something(
    snapshot: Path, tmp_path: Path, names: tuple[str, ...], reason: str
) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    for name in names:
        (target / name).write_bytes(b"x")
    with pytest.raises(SnapshotRefused, match=reason):
        copied(snapshot, target)
    assert sorted(path.name for path in target.iterdir()) == sorted(names)
    assert all(path.read_bytes() == b"x" for path in target.iterdir())


def test_other_targets(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SnapshotRefused, match="is not a directory"):
        copied(snapshot, tmp_path / "file")
    with pytest.raises(SnapshotRefused, match=f"end its path with {snapshot.name}"):
        copied(snapshot, tmp_path / ("1" * 20))
    made = tmp_path / "copy"
    copied(snapshot, made)
    (made / "notes.txt").write_bytes(b"")
    with pytest.raises(SnapshotRefused, match="contains notes.txt"):
        copied(snapshot, made)
    (made / "notes.txt").unlink()
    data = bytearray((made / DATA).read_bytes())
    data[100_000] ^= 1
    (made / DATA).write_bytes(data)
    with pytest.raises(SnapshotRefused, match="has the BLAKE2b hash"):
        copied(snapshot, made)


def test_two_copies_at_once(snapshot: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"

    class Second(LocalPlace):
        def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
            if file == DATA and offset == PIECE:
                with pytest.raises(SnapshotRefused, match="another process is copying to it"):
                    copied(snapshot, target)
            return super().read_at(file, offset, nbytes)

    copy_snapshot(Second(DISK, snapshot), place_of(target))
    assert same(snapshot, target)


def test_a_damaged_source(snapshot: Path, tmp_path: Path) -> None:
    bad = Path(shutil.copytree(snapshot, tmp_path / "bad"))
    data = bytearray((bad / DATA).read_bytes())
    data[300_000] ^= 1
    (bad / DATA).write_bytes(data)
    target = tmp_path / "copy"
    for _ in range(2):
        with pytest.raises(SnapshotDamaged, match=f"{bad / DATA}: .*the BLAKE2b hash"):
            copied(bad, target)
        assert not (target / NAME).exists() and not (target / DATA).exists()
    assert copied(snapshot, target).kept == 0, "none of its pieces is trusted"
    assert same(snapshot, target)


# --- buckets


def test_there_and_back(bucket: Bucket, snapshot: Path, tmp_path: Path) -> None:
    url = bucket.url("orders/kept")
    made = copied(snapshot, url)
    assert (made.name, made.kept, made.existed) == (f"s3://{bucket.name}/orders/kept", 0, False)
    assert bucket.names("orders/kept") == [DATA, NAME]
    assert bucket.get(f"orders/kept/{DATA}") == (snapshot / DATA).read_bytes()
    assert copied(snapshot, url).existed
    assert copied(url, bucket.url("orders/again")).existed is False
    copied(bucket.url("orders/again"), tmp_path / "back")
    assert same(snapshot, tmp_path / "back")


def test_an_upload_that_was_killed(bucket: Bucket, snapshot: Path) -> None:
    url = bucket.url("kept")
    kill_at(snapshot, url, 8)
    with pytest.raises(NotASnapshot, match="it is an unfinished copy"):
        open_sealed(place_of(url))
    copied(snapshot, url)
    assert bucket.names("kept") == [DATA, NAME]
    open_sealed(place_of(url)).close()


def test_a_download_that_was_killed_goes_on(
    bucket: Bucket, snapshot: Path, tmp_path: Path
) -> None:
    url = bucket.url("kept")
    copied(snapshot, url)
    kill_at(url, tmp_path / "back", 9)
    made = copied(url, tmp_path / "back")
    assert 0 < made.kept < (snapshot / DATA).stat().st_size
    assert same(snapshot, tmp_path / "back")


def test_data_that_was_sent_is_not_sent_again(bucket: Bucket, snapshot: Path) -> None:
    for name in ("sent", "marked"):
        bucket.put(f"{name}/{DATA}", (snapshot / DATA).read_bytes())
    bucket.put(f"marked/{MARK}", b"")
    for name in ("sent", "marked"):
        made = copied(snapshot, bucket.url(name))
        assert made.kept == (snapshot / DATA).stat().st_size and not made.existed
        assert bucket.names(name) == [DATA, NAME]


# fmt: off
@pytest.mark.parametrize(("name", "reason"), [
    ("notes.txt", r"is not empty \(it contains notes.txt\)"),
    (DATA, r"is not empty \(it contains data.mdb\)"),
    (MARK, "contains an unfinished copy of another snapshot"),
    (NAME, "the target is another snapshot, or a damaged one"),
])
# fmt: on
def test_urls_that_contain_something(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, snapshot: Path, name: str, reason: str
) -> None:
    credentials(monkeypatch)
    bucket = Bucket(endpoint, f"contains-{name.lower().replace('.', '-')}")
    bucket.put(f"x/{name}", b"x")
    with pytest.raises(SnapshotRefused, match=reason):
        copied(snapshot, bucket.url("x"))
    assert bucket.names("x") == [name] and bucket.get(f"x/{name}") == b"x"


def test_a_damaged_source_is_not_sealed(bucket: Bucket, snapshot: Path, tmp_path: Path) -> None:
    bad = Path(shutil.copytree(snapshot, tmp_path / "bad"))
    data = bytearray((bad / DATA).read_bytes())
    data[300_000] ^= 1
    (bad / DATA).write_bytes(data)
    with pytest.raises(SnapshotDamaged, match="the BLAKE2b hash"):
        copied(bad, bucket.url("x"))
    assert NAME not in bucket.names("x")
    copied(snapshot, bucket.url("x"))
    assert bucket.names("x") == [DATA, NAME]
