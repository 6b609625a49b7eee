"""Snapshots of real stores: what they hold, beside a writer, at any moment, and read as a state."""

import errno
import random
import shutil
import threading
from pathlib import Path

import pytest
from tests import inside
from tests.rounds import some_and_all
from tests.snapshot.portable.portable_store import DISK, opened, work
from tests.until import until

import tidelog
from tidelog.aof.identity import DATA
from tidelog.disk.real import RealDisk, RealFile
from tidelog.engine.effects.digest import digest
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot import portable
from tidelog.snapshot.beside import create_beside
from tidelog.snapshot.errors import NewerSnapshot, NotASnapshot, SnapshotDamaged
from tidelog.snapshot.portable import Snapshot, open_snapshot
from tidelog.snapshot.restore import restore
from tidelog.snapshot.scrub import verify_snapshot


def digest_of(snapshot: Path) -> str:
    found = open_snapshot(DISK, snapshot)
    try:
        return digest(found.state())
    finally:
        found.close()


def files(root: Path) -> dict[str, bytes]:
    """Everything in a store but its snapshots."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "snapshots" not in path.parts
    }


@pytest.mark.parametrize("checkpoint", [False, True])
def test_beside_a_writer(tmp_path: Path, checkpoint: bool) -> None:
    rng = random.Random(checkpoint)
    with opened(tmp_path / "db") as db:
        work(db, rng, 300)
        if checkpoint:
            db.checkpoint()
            work(db, rng, 200)
        before = files(tmp_path / "db")
        made = create_beside(DISK, tmp_path / "db")
        assert {
            name: data
            for name, data in files(tmp_path / "db").items()
            if name != "checkpoint/lock.mdb"
        } == {name: data for name, data in before.items() if name != "checkpoint/lock.mdb"}
        assert digest_of(made.path) == db.digest()
        assert verify_snapshot(DISK, made.path) == []
        entries = sum(db.xlen(f"s{i}") for i in range(5) if db.exists(f"s{i}"))
        counts = made.manifest.counts
        assert counts.entries == entries
        assert counts.databases[0].keys == db.dbsize()
        assert sorted(path.name for path in made.path.iterdir()) == [DATA, manifests.NAME]
        assert {path.stat().st_mode & 0o777 for path in made.path.iterdir()} == {0o600}
        again = create_beside(DISK, tmp_path / "db")
        assert again == made._replace(existed=True)
        work(db, rng, 50)
    assert digest_of(made.path) != tidelog_digest(tmp_path / "db")


def tidelog_digest(root: Path) -> str:
    with opened(root) as db:
        return db.digest()


def test_of_the_store_itself(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        work(db, random.Random(3), 200)
        made = db.snapshot()
        assert isinstance(made, Snapshot)
        assert digest_of(made.path) == db.digest()
        assert db.snapshot() == made._replace(existed=True)
        work(db, random.Random(4), 20)
        later = db.snapshot()
    found = portable.snapshots(DISK, tmp_path / "db" / "snapshots")
    assert [item.path for item in found] == [made.path, later.path]
    assert sorted(portable.lsns(DISK, tmp_path / "db" / "snapshots")) == [made.lsn, later.lsn]


def test_a_snapshot_that_is_replaced_while_they_are_listed(tmp_path: Path) -> None:
    with opened(tmp_path / "db", keep_snapshots=1) as db:

        class Busy(RealDisk):
            """Before it reads the first manifest, the writer makes another snapshot, which replaces the first."""

            def guard(self, root: Path) -> None:
                super().guard(root)
                if root == first.path:
                    made.append(db.snapshot())

        made: list[Snapshot] = []
        first = db.snapshot()
        db.xadd("s", {"n": 1})
        found = portable.snapshots(Busy(), tmp_path / "db" / "snapshots")
    assert [item.path for item in found] == [made[0].path] and not first.path.exists()


def test_of_a_closed_store_and_of_an_empty_one(tmp_path: Path) -> None:
    opened(tmp_path / "empty").close()
    made = create_beside(DISK, tmp_path / "empty")
    assert (made.lsn, made.manifest.counts.streams) == (0, 0)
    restore(DISK, made.path, tmp_path / "again")
    with opened(tmp_path / "again") as db:
        assert db.dbsize() == 0
        db.xadd("s", {"a": 1})
    with opened(tmp_path / "db") as db:
        work(db, random.Random(1), 100)
        db.checkpoint()
        expected = db.digest()
    made = create_beside(DISK, tmp_path / "db")
    assert digest_of(made.path) == expected


@pytest.mark.parametrize("count", some_and_all(2, 6))
@pytest.mark.parametrize("retain_bytes", [0, 64 << 20])
def test_beside_a_busy_writer(tmp_path: Path, retain_bytes: int, count: int) -> None:
    """Every snapshot is the state at its LSN, whatever the writer does meanwhile: checkpoints, released segments."""
    root = tmp_path / "db"
    states: dict[int, str] = {}
    stop = threading.Event()
    with opened(root, segment_bytes=8192, retain_bytes=retain_bytes) as db:
        db.xadd("s0", {"a": 1})

        def write() -> None:
            rng = random.Random(5)
            while not stop.is_set():
                work(db, rng, 20)
                if rng.random() < 0.3:
                    db.checkpoint()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            made = []
            for _ in range(count):
                made.append(create_beside(DISK, root))
                until(lambda: inside.log(db).written_lsn > made[-1].lsn, "the writer has no time")
        finally:
            stop.set()
            thread.join()
    assert len({item.lsn for item in made}) > 1
    for item in made:
        assert verify_snapshot(DISK, item.path) == []
        states[item.lsn] = digest_of(item.path)
    if not retain_bytes:  # what lies behind a snapshot may be released before it is published
        return
    # From the first one and the log behind it, every other one can be had.
    first = made[0]
    for item in made[1:]:
        target = tmp_path / f"at-{item.lsn}"
        done = restore(DISK, first.path, target, until_lsn=item.lsn)
        assert done.lsn == item.lsn
        assert tidelog_digest(target) == states[item.lsn]


class FullFile(RealFile):
    """A file with room for its first piece."""

    __slots__ = ()

    def write(self, offset: int, data: bytes) -> None:
        if offset:
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        super().write(offset, data)


class FullDisk(RealDisk):
    """A disk without room for a copy."""

    def create(self, path: Path) -> RealFile:
        file = super().create(path)
        if path.name == DATA:
            file.__class__ = FullFile
        return file


def test_a_full_disk(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        for i in range(20_000):
            db.xadd("s", {"n": i, "pad": "x" * 100})
        db.checkpoint()
        with pytest.raises(OSError, match="No space left"):
            create_beside(FullDisk(), tmp_path / "db")
        folder = tmp_path / "db" / "snapshots"
        assert list((folder / "work").iterdir()) == [], "the room is given back"
        assert portable.snapshots(DISK, folder) == []
        made = create_beside(DISK, tmp_path / "db")
        assert digest_of(made.path) == db.digest()


# --- what is refused without reading the data


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with opened(tmp_path / "db") as db:
        work(db, random.Random(8), 100)
        return db.snapshot().path


def lie(path: Path, **changes: object) -> None:
    """Change the manifest, with a checksum that holds."""
    manifest = portable.read_snapshot(DISK, path).manifest._replace(**changes)  # type: ignore[arg-type]
    (path / manifests.NAME).write_bytes(manifests.render(manifest))


def test_the_size(made: Path) -> None:
    with (made / DATA).open("ab") as data:
        data.write(b"\0")
    with pytest.raises(SnapshotDamaged, match="bytes, but the manifest says"):
        open_snapshot(DISK, made)


def test_the_uuid(made: Path) -> None:
    lie(made, uuid=bytes(16))
    with pytest.raises(SnapshotDamaged, match="belongs to store .*, but the manifest says 0000"):
        open_snapshot(DISK, made)


def test_the_lsn(made: Path, tmp_path: Path) -> None:
    manifest = portable.read_snapshot(DISK, made).manifest
    lie(made, position=manifest.position._replace(lsn=5))
    with pytest.raises(SnapshotDamaged, match="the manifest says LSN 5, but the name"):
        open_snapshot(DISK, made)
    copy = shutil.copytree(made, tmp_path / "copy")
    with pytest.raises(
        SnapshotDamaged, match=f"ends with LSN {manifest.lsn}, but the manifest says 5"
    ):
        open_snapshot(DISK, copy)
    lie(copy, position=manifest.position._replace(crc=1))
    with pytest.raises(SnapshotDamaged, match="another position of the log"):
        open_snapshot(DISK, copy)


def test_a_newer_manifest(made: Path) -> None:
    text = (made / manifests.NAME).read_bytes()
    (made / manifests.NAME).write_bytes(text.replace(b'"format": 1', b'"format": 3'))
    with pytest.raises(NewerSnapshot, match="format version 3"):
        open_snapshot(DISK, made)


def test_no_data(made: Path) -> None:
    (made / DATA).unlink()
    with pytest.raises(SnapshotDamaged, match="the file is missing"):
        open_snapshot(DISK, made)


def test_the_store_instead(made: Path) -> None:
    with pytest.raises(NotASnapshot, match="it is a store"):
        open_snapshot(DISK, made.parent.parent)


def test_open_as_a_store(made: Path, tmp_path: Path) -> None:
    with tidelog.open(made, read_only=True) as db:
        assert db.digest() == digest_of(made)
    assert sorted(path.name for path in made.iterdir()) == [DATA, manifests.NAME]


def test_a_snapshot_that_may_not_be_written(made: Path, tmp_path: Path) -> None:
    made.chmod(0o500)
    for path in made.iterdir():
        path.chmod(0o400)
    try:
        assert len(digest_of(made)) == 64
        assert verify_snapshot(DISK, made) == []
    finally:
        made.chmod(0o700)
