"""The operating system's files, through our interface."""

import errno
import os
import stat
from pathlib import Path

import pytest

from tidelog.disk import real, recipe
from tidelog.disk.real import RealDisk, RealFile, file_system_magic


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_write_and_read(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "a")
    file.write(3, b"xyz")
    assert file.size() == 6
    assert (
        file.pread(100, 0) == b"\0\0\0xyz" and file.pread(2, 4) == b"yz" and file.pread(5, 9) == b""
    )
    file.truncate(4)
    file.fdatasync()
    file.fsync()
    file.drop_cache()
    file.close()
    file.close()
    again = disk.open(tmp_path / "a")
    assert again.pread(10, 0) == b"\0\0\0x"
    with pytest.raises(OSError):
        again.write(0, b"read-only")
    again.close()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_fill_map_and_append(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "a")
    assert file.fill(10, 100_000) == 100_000
    file.append(0, b"written")
    file.map(100_000)
    file.append(20, b"stored")
    assert file.fill(100_000, 200_000) == 200_000
    file.map(200_000)
    file.append(199_994, b"at end")
    file.fdatasync()
    assert (tmp_path / "a").read_bytes()[:26] == b"written" + bytes(13) + b"stored"
    assert file.pread(6, 199_994) == b"at end"
    file.unmap()
    file.append(0, b"W")
    file.truncate(30)
    file.close()
    assert (tmp_path / "a").read_bytes() == b"Written" + bytes(13) + b"stored" + bytes(4)


def test_short_writes_and_reads_are_completed(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 2), at))
    file = disk.create(tmp_path / "a")
    file.write(0, b"0123456789")
    assert file.fill(10, 20) == 20
    assert file.pread(30, 0) == b"0123456789" + bytes(10)
    file.close()


def test_fill_says_how_far_it_got(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create(tmp_path / "a")
    pwrite = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if at >= 2 * len(real.ZEROS):
            raise OSError(errno.EDQUOT, "quota")
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    assert file.fill(0, 1 << 20) == 2 * len(real.ZEROS)
    file.close()


def test_one_lock(disk: RealDisk, tmp_path: Path) -> None:
    first = disk.lock(tmp_path / "LOCK")
    assert first is not None
    assert disk.lock(tmp_path / "LOCK") is None
    first.close()
    second = disk.lock(tmp_path / "LOCK")
    assert second is not None
    second.close()


def test_shared_and_exclusive_holds(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(FileNotFoundError):
        disk.hold(path, shared=True)
    assert not path.exists(), "it creates nothing"
    path.write_bytes(b"x")
    path.chmod(0o400)
    first, second = disk.hold(path, shared=True), disk.hold(path, shared=True)
    assert first is not None and second is not None
    assert disk.hold(path, shared=False) is None
    first.close()
    assert disk.hold(path, shared=False) is None
    second.unlock()
    alone = disk.hold(path, shared=False)
    assert alone is not None
    assert disk.hold(path, shared=True) is None
    second.close()
    alone.close()
    again = disk.hold(path, shared=True)
    assert again is not None
    again.close()


def test_names(disk: RealDisk, tmp_path: Path) -> None:
    recipe.make_directory(disk, tmp_path / "d")
    recipe.make_directory(disk, tmp_path / "d")
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    recipe.publish(disk, tmp_path / "d" / "b", b"one")
    recipe.publish(disk, tmp_path / "d" / "b", b"two")
    recipe.publish(disk, tmp_path / "d" / "a", b"")
    assert disk.listdir(tmp_path / "d") == ["a", "b"]
    assert recipe.read(disk, tmp_path / "d" / "b") == b"two"
    disk.rename(tmp_path / "d" / "b", tmp_path / "d" / "c")
    disk.unlink(tmp_path / "d" / "a")
    disk.sync_directory(tmp_path / "d")
    assert disk.listdir(tmp_path / "d") == ["c"]
    assert disk.exists(tmp_path / "d" / "c") and not disk.exists(tmp_path / "d" / "a")


def test_only_known_file_systems_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert file_system_magic(tmp_path) != 0
    assert file_system_magic(tmp_path / "missing") == 0
    monkeypatch.setattr(real, "file_system_magic", lambda path: 0x9123683E)  # btrfs
    file = RealDisk().create(tmp_path / "a")
    assert isinstance(file, RealFile)
    file.fill(0, 5000)
    file.map(5000)
    file.append(0, b"written, not stored")
    file.truncate(10)  # which a mapped file refuses
    assert file.pread(100, 0) == b"written, n"
    file.close()


def test_what_libraries_need_to_know(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "a")
    file.write(0, b"123")
    file.extend(10_000)
    assert file.size() == 10_000 and file.pread(4, 0) == b"123\0"
    file.extend(5)
    assert file.size() == 10_000
    (tmp_path / "b").symlink_to(tmp_path / "a")
    other, created = disk.open(tmp_path / "b"), disk.create(tmp_path / "c")
    assert other.identity() == file.identity() != created.identity()
    other.close()
    created.close()
    file.close()
    assert disk.writable(tmp_path / "a") and not disk.writable(tmp_path / "missing")
    assert disk.free(tmp_path) > 0
    assert disk.beneath(tmp_path) == (disk, tmp_path)


def test_a_file_and_a_directory_are_moved_to_another_directory(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.guard(tmp_path)
    for name in ("from", "to", "from/inner"):
        recipe.make_directory(disk, tmp_path / name)
    recipe.publish(disk, tmp_path / "from" / "inner" / "file", b"x")
    recipe.move(disk, tmp_path / "from" / "inner", tmp_path / "to" / "inner")
    assert recipe.read(disk, tmp_path / "to" / "inner" / "file") == b"x"
    assert disk.listdir(tmp_path / "from") == []
    recipe.move(disk, tmp_path / "to" / "inner" / "file", tmp_path / "from" / "file")
    disk.rmdir(tmp_path / "to" / "inner")
    recipe.remove_tree(disk, tmp_path / "from")
    assert disk.listdir(tmp_path) == ["to"]


def test_a_tree_is_removed_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "keep").write_bytes(b"x")
    (tmp_path / "root" / "sub" / "link").symlink_to(tmp_path / "other")
    disk = RealDisk()
    disk.guard(tmp_path / "root")
    recipe.remove_tree(disk, tmp_path / "root" / "sub")
    assert (tmp_path / "other" / "keep").read_bytes() == b"x"
    assert disk.listdir(tmp_path / "root") == []
