"""The recorder notes what happened, in one order, and a sync that runs covers only what came before it."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from tidelog.crash.record import RecordingDisk
from tidelog.crash.states import cut_at, cuts
from tidelog.crash.trace import Create, SyncBegin, SyncEnd, Write, tree_of
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.disk.simulated import SimulatedDisk

ROOT = Path("/")


def test_the_last_moment_without_a_cut_is_the_disk_itself(tmp_path: Path) -> None:
    for inner, root in ((SimulatedDisk(), ROOT), (RealDisk(), tmp_path)):
        inner.mkdir(root / "first")
        disk = RecordingDisk(inner, root)
        disk.mkdir(root / "d")
        recipe.publish(disk, root / "d" / "a", b"x" * 700)
        file = disk.open(root / "d" / "a", write=True)
        assert file.fill(1000, 3000) == 3000
        file.map(3000)
        file.append(512, b"y" * 600)
        file.unmap()
        file.truncate(900)
        file.extend(5000)
        file.close()
        recipe.move(disk, root / "d" / "a", root / "first" / "b")
        recipe.publish(disk, root / "first" / "b", b"again")
        disk.create(root / "d" / "gone").close()
        disk.unlink(root / "d" / "gone")
        disk.rmdir(root / "d")
        trace = disk.trace({}, [])
        cut = cut_at(trace, len(trace.operations))
        assert cut.image(cut.whole) == tree_of(inner, root)


def test_what_is_written_while_a_sync_runs_is_not_durable() -> None:
    """The sync of the simulated disk is a moment; the recorder gives it a beginning and an end."""
    disk = RecordingDisk(SimulatedDisk(), ROOT)
    recipe.publish(disk, ROOT / "log", bytes(2048))
    file = disk.open(ROOT / "log", write=True)
    file.write(0, b"before")

    def write(path: Path) -> None:
        disk.meanwhile = None
        thread = threading.Thread(target=file.write, args=(1024, b"meanwhile"))
        thread.start()
        thread.join()

    disk.meanwhile = write
    file.fdatasync()
    trace = disk.trace({}, [])
    kinds = [type(each) for each in trace.operations[-4:]]
    assert kinds == [Write, SyncBegin, Write, SyncEnd]
    cut = cut_at(trace, len(trace.operations))
    contents = {cut.image(state)["log"] for state in cut.states(random.Random(1), 100)}
    assert all(content is not None and content.startswith(b"before") for content in contents)
    assert {content is not None and b"meanwhile" in content for content in contents} == {
        True,
        False,
    }


def test_a_file_that_a_library_writes_is_seen_through_its_shadow(tmp_path: Path) -> None:
    disk = RecordingDisk(RealDisk(), tmp_path)
    disk.mkdir(tmp_path / "rows")
    assert disk.beneath(tmp_path / "rows") == (disk, tmp_path / "rows")
    library = RealDisk().create(tmp_path / "rows" / "data")
    library.write(0, b"a" * 4096 + b"b" * 4096)
    ours = disk.open(tmp_path / "rows" / "data", write=True)  # the next operation sees it
    library.write(4096, b"c" * 4096)
    ours.write(0, b"ours")
    ours.fsync()
    library.write(0, b"a")
    disk.sync_directory(tmp_path / "rows")
    trace = disk.trace({}, [])
    (node,) = [each.node for each in trace.operations if isinstance(each, Create)]
    writes = [
        (each.offset, each.data[:4])
        for each in trace.operations
        if isinstance(each, Write) and each.node == node
    ]
    assert writes == [(0, b"aaaa"), (4096, b"bbbb"), (4096, b"cccc"), (0, b"ours"), (0, b"aurs")]
    library.close()
    ours.close()


def test_a_descriptor_that_was_given_away_is_watched(tmp_path: Path) -> None:
    disk = RecordingDisk(RealDisk(), tmp_path)
    file = disk.create(tmp_path / "copy")
    library = RealDisk().open(tmp_path / "copy", write=True)
    assert file.fileno() > 0
    library.write(0, b"by descriptor")
    file.fsync()
    trace = disk.trace({}, [])
    assert [type(each) for each in trace.operations] == [Create, Write, SyncBegin, SyncEnd]
    library.close()
    file.close()


def test_a_failed_sync_makes_nothing_durable() -> None:
    inner = SimulatedDisk()
    disk = RecordingDisk(inner, ROOT)
    recipe.publish(disk, ROOT / "log", bytes(512))
    file = disk.open(ROOT / "log", write=True)
    file.write(0, b"new")

    def fail(operation: str, path: Path) -> None:
        raise OSError(5, "injected")

    inner.before = fail
    try:
        file.fdatasync()
    except OSError:
        pass
    *_, last = cuts(disk.trace({}, []))
    assert last.count == 2
