"""The simulated disk does to unsynced data what real ones do, and nothing to synced data."""

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.disk import recipe
from tidelog.disk.simulated import SimulatedDisk

D = Path("/d")
A = D / "a"


def with_file(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    recipe.make_directory(disk, D)
    recipe.publish(disk, A, content)
    return disk


def images(disk: SimulatedDisk, count: int = 300) -> list[bytes | None]:
    rng = random.Random(1)
    return [disk.power_loss(rng).tree().get(str(A)) for _ in range(count)]


def test_synced_data_survives_every_power_loss() -> None:
    disk = with_file(b"x" * 5000)
    assert set(images(disk)) == {b"x" * 5000}
    file = disk.open(A, write=True)
    file.write(2000, b"y" * 3000)
    file.fdatasync()
    assert set(images(disk)) == {b"x" * 2000 + b"y" * 3000}


def test_unsynced_data_is_lost_kept_torn_reordered_and_holed() -> None:
    disk = with_file(bytes(2048))
    file = disk.open(A, write=True)
    file.write(0, b"1" * 1024)
    file.write(512, b"2" * 1024)
    file.fill(2048, 4096)
    file.write(2048, b"3" * 512)
    found = {image for image in images(disk) if image is not None}
    assert bytes(2048) in found
    assert b"1" * 512 + b"2" * 1024 + bytes(512) + b"3" * 512 + bytes(1536) in found
    assert any(image[:512] == b"1" * 512 and not image[512:1024].strip(b"\0") for image in found)
    assert any(image[:512] == bytes(512) and image[512:1024] == b"2" * 512 for image in found)
    assert any(image[512:1024] == b"1" * 512 and image[1024:1536] == b"2" * 512 for image in found)
    assert {len(image) for image in found} == {2048, 4096}
    sectors = {image[at : at + 512] for image in found for at in range(0, len(image), 512)}
    assert sectors == {bytes(512), b"1" * 512, b"2" * 512, b"3" * 512}, "sectors are never torn"


def test_names_come_and_go_until_the_directory_is_synced() -> None:
    disk = with_file(b"old")
    beside = disk.create(D / "a.new")
    beside.write(0, b"new")
    beside.fsync()
    disk.rename(D / "a.new", A)
    assert set(images(disk)) == {b"old", b"new"}, "a rename is atomic"
    disk.sync_directory(D)
    assert set(images(disk)) == {b"new"}
    disk.unlink(A)
    assert set(images(disk)) == {b"new", None}
    assert not disk.exists(A)


def test_a_rename_before_the_data_is_synced() -> None:
    disk = with_file(b"old")
    disk.create(D / "a.new").write(0, b"new")
    disk.rename(D / "a.new", A)
    assert {b"", b"\0\0\0"} & set(images(disk)), "the recipe's fsync is there for a reason"


def test_a_failed_fsync_drops_the_data_and_the_next_one_lies() -> None:
    disk = with_file(b"good")
    file = disk.open(A, write=True)
    file.write(0, b"lost")

    def fail(operation: str, path: Path) -> None:
        if operation == "fsync":
            raise OSError(errno.EIO, "injected")

    disk.before = fail
    with pytest.raises(OSError):
        file.fsync()
    disk.before = None
    assert file.pread(4, 0) == b"lost"
    file.fsync()
    assert file.pread(4, 0) == b"lost"
    assert set(images(disk)) == {b"good"}
    file.drop_cache()
    assert file.pread(4, 0) == b"good"


def test_a_failed_write_leaves_some_part() -> None:
    found = set()
    for seed in range(50):
        disk = SimulatedDisk.of({"/d": None, "/d/a": bytes(8)}, seed)

        def fail(operation: str, path: Path) -> None:
            raise OSError(errno.EIO, "injected")

        file = disk.open(A, write=True)
        disk.before = fail
        with pytest.raises(OSError):
            file.write(0, b"12345678")
        found.add(disk.tree()[str(A)])
    assert len(found) > 5 and all(part is not None and len(part) == 8 for part in found)


def test_full_while_filling() -> None:
    disk = with_file(b"")
    file = disk.open(A, write=True)
    left = 2

    def full(operation: str, path: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "injected")

    disk.before = full
    assert file.fill(0, 100_000) == 32_768


def test_locks_end_with_the_process() -> None:
    disk = SimulatedDisk()
    assert disk.lock(Path("/LOCK")) is not None
    assert disk.lock(Path("/LOCK")) is None
    disk.kill()
    again = disk.lock(Path("/LOCK"))
    assert again is not None
    again.close()
    assert disk.lock(Path("/LOCK")) is not None


def test_shared_and_exclusive_holds() -> None:
    disk = with_file(b"x")
    with pytest.raises(FileNotFoundError):
        disk.hold(D / "b", shared=True)
    first, second = disk.hold(A, shared=True), disk.hold(A, shared=True)
    assert first is not None and second is not None
    first.close()
    assert disk.hold(A, shared=False) is None
    second.unlock()
    alone = disk.hold(A, shared=False)
    assert alone is not None and disk.hold(A, shared=True) is None
    second.close()
    assert disk.hold(A, shared=True) is None
    alone.close()
    assert disk.hold(A, shared=True) is not None
    disk.kill()
    assert disk.hold(A, shared=False) is not None


Steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000), st.integers(1, 1500)),
        st.tuples(st.just("truncate"), st.integers(0, 4000), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(Steps, st.integers(0, 1 << 32))
def test_reads_see_every_write_and_syncs_hold(steps: list[tuple[str, int, int]], seed: int) -> None:
    disk, model = with_file(b""), bytearray()
    file = disk.open(A, write=True)
    synced = b""
    for number, (step, at, size) in enumerate(steps, 1):
        if step == "write":
            data = bytes([number]) * size
            file.write(at, data)
            model.extend(bytes(max(0, at + size - len(model))))
            model[at : at + size] = data
        elif step == "truncate":
            file.truncate(at)
            model = (model + bytes(at))[:at] if at > len(model) else model[:at]
        else:
            file.fdatasync()
            synced = bytes(model)
        assert file.pread(10_000, 0) == bytes(model)
    rng = random.Random(seed)
    if steps and steps[-1][0] == "sync":
        assert disk.power_loss(rng).tree()[str(A)] == synced
    assert disk.killed().tree()[str(A)] == bytes(model)
    assert disk.synced().tree()[str(A)] == synced


def test_what_libraries_need_to_know(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    file = disk.create(Path("/a"))
    file.write(0, b"123")
    file.extend(10)
    file.extend(5)
    assert file.pread(100, 0) == b"123" + bytes(7)
    assert file.identity() == disk.open(Path("/a")).identity()
    assert file.identity() != disk.create(Path("/b")).identity()
    assert disk.writable(Path("/a")) and not disk.writable(Path("/missing"))
    assert disk.free(Path("/")) > 0
    assert disk.beneath(Path("/a")) is None
    disk.real_root = tmp_path
    place = disk.beneath(Path("/d/a"))
    assert place is not None and place[1] == tmp_path / "d" / "a"
    assert place[0].listdir(tmp_path) == []


def moved(disk: SimulatedDisk) -> set[tuple[bool, bool]]:
    """Whether the file is in the directory that it was moved from, and in the other one, after power cuts."""
    rng = random.Random(2)
    found = [disk.power_loss(rng).tree() for _ in range(100)]
    return {(str(A) in tree, "/e/b" in tree) for tree in found}


@pytest.mark.parametrize("directory", [D, Path("/e")])
def test_a_move_is_whole_and_durable_when_either_directory_is_synced(directory: Path) -> None:
    disk = with_file(b"moved")
    recipe.make_directory(disk, Path("/e"))
    disk.move(A, Path("/e/b"))
    assert moved(disk) == {(True, False), (False, True)}
    disk.sync_directory(directory)
    assert moved(disk) == {(False, True)}
    assert str(A) not in disk.synced().tree() and disk.synced().tree()["/e/b"] == b"moved"


def test_a_move_replaces_only_an_empty_directory() -> None:
    disk = with_file(b"x")
    recipe.make_directory(disk, Path("/e"))
    recipe.make_directory(disk, Path("/e/d"))
    recipe.move(disk, D, Path("/e/d"))
    assert disk.tree()["/e/d/a"] == b"x" and not disk.exists(D)
    recipe.make_directory(disk, D)
    with pytest.raises(OSError) as caught:
        disk.move(D, Path("/e/d"))
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError) as caught:
        disk.rmdir(Path("/e/d"))
    assert caught.value.errno == errno.ENOTEMPTY
    recipe.remove_tree(disk, Path("/e"))
    assert not disk.exists(Path("/e"))
