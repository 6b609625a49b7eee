"""The scrub of a whole store: silent over sound ones, also beside a writer; it names what is damaged and where."""

import random
import shutil
import threading
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.snapshot.portable.portable_store import DISK, opened, work

from tidelog.aof.errors import NotAStore
from tidelog.disk.simulated import SimulatedDisk
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot import portable
from tidelog.snapshot.manifest import Counts, DatabaseCount
from tidelog.snapshot.portable import Snapshot
from tidelog.snapshot.scrub import HARMLESS, verify_snapshot, verify_store


def test_beside_a_busy_writer(tmp_path: Path) -> None:
    root = tmp_path / "db"
    stop = threading.Event()
    rounds = 0
    with opened(root, segment_bytes=8192, retain_bytes=0) as db:
        work(db, random.Random(4), 50)

        def write() -> None:
            rng = random.Random(5)
            while not stop.is_set():
                work(db, rng, 20)
                if rng.random() < 0.5:
                    db.checkpoint()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(6):
                assert verify_store(DISK, root) == []
                rounds += 1
        finally:
            stop.set()
            thread.join()
        assert db.verify() == []


def test_of_itself_with_snapshots(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        work(db, random.Random(1), 200)
        made = db.snapshot()
        work(db, random.Random(2), 100)
        db.snapshot()
        assert db.verify() == []
        assert verify_store(DISK, tmp_path / "db", with_snapshots=True) == []
        (made.path / "notes.txt").touch()
        (finding,) = verify_store(DISK, tmp_path / "db", with_snapshots=True)
        assert (
            finding.check == "snapshot"
            and "notes.txt does not belong to a snapshot" in finding.text
        )


def test_progress_comes_to_its_end(tmp_path: Path) -> None:
    from collections.abc import Iterator
    from contextlib import contextmanager

    seen: list[tuple[str, int, int]] = []

    @contextmanager
    def progress(what: str, nbytes: int) -> Iterator[portable.Advance]:
        done = [0]

        def advance(more: int) -> None:
            assert more >= 0
            done[0] += more

        yield advance
        seen.append((what, nbytes, done[0]))

    with opened(tmp_path / "db") as db:
        work(db, random.Random(1), 200)
        db.snapshot()
    assert verify_store(DISK, tmp_path / "db", progress, with_snapshots=True) == []
    assert {what.split()[0] for what, _, _ in seen} == {"walking", "reading"}
    for what, nbytes, done in seen:
        if what.startswith("reading"):
            assert done == nbytes


def stored(root: Path) -> Snapshot:
    with opened(root) as db:
        work(db, random.Random(1), 300)
        db.xadd_many("s9", [{"n": i, "pad": "x" * 50} for i in range(2000)])
        return db.snapshot()


@pytest.mark.parametrize("seed", rest_slow(range(8), 2))
def test_a_changed_byte_of_a_value(tmp_path: Path, seed: int) -> None:
    """A byte of what was stored is changed: the finding names the stream and where in it."""
    made = stored(tmp_path / "db")
    path = tmp_path / "db" / "checkpoint" / "data.mdb"
    data = bytearray(path.read_bytes())
    places = [at for at in range(len(data)) if data.startswith(b"x" * 50, at)]
    assert places
    data[random.Random(seed).choice(places)] = ord("y")
    path.write_bytes(data)
    findings = verify_store(DISK, tmp_path / "db", with_snapshots=True)
    assert {finding.check for finding in findings} == {"checkpoint"}
    assert any(finding.stream is not None and "IDs" in finding.text for finding in findings)
    assert not HARMLESS & {finding.check for finding in findings}
    assert verify_snapshot(DISK, made.path) == []


def test_counts_that_lie(tmp_path: Path) -> None:
    made = stored(tmp_path / "db")
    counts = made.manifest.counts
    lies: dict[str, Counts] = {
        " entries, but the manifest says ": counts._replace(entries=counts.entries + 1),
        " streams, but the manifest says 0": counts._replace(streams=0),
        "database 0: the data has ": counts._replace(databases=(DatabaseCount(0, 1, 0),)),
        "database 7: the data has 0 keys, but the manifest says 1": counts._replace(
            databases=(*counts.databases, DatabaseCount(7, 1, 0))
        ),
        "stream b's9' with 1 entries": counts._replace(
            largest=(counts.largest[0]._replace(entries=1), *counts.largest[1:])
        ),
    }
    for text, lie in lies.items():
        manifest = made.manifest._replace(counts=lie)
        (made.path / manifests.NAME).write_bytes(manifests.render(manifest))
        findings = verify_snapshot(DISK, made.path)
        assert any(text in finding.text for finding in findings), (text, findings)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        verify_store(DISK, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_identity(tmp_path: Path) -> None:
    stored(tmp_path / "db")
    (tmp_path / "db" / "STORE").write_bytes(b"tidelog store\nformat 1\n")
    (finding,) = verify_store(DISK, tmp_path / "db")
    assert finding.check == "identity"


def test_a_store_without_checkpoints_on_the_simulated_disk() -> None:
    import tidelog

    disk = SimulatedDisk.of({})
    with tidelog.open("/db", disk=disk, fsync="no") as db:
        db.xadd("s", {"a": 1})
        assert verify_store(disk, Path("/db")) == []


def test_a_snapshot_of_elsewhere(tmp_path: Path) -> None:
    made = stored(tmp_path / "db")
    copy = shutil.copytree(made.path, tmp_path / "any name")
    assert verify_snapshot(DISK, copy) == []
