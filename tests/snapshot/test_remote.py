"""Tests of snapshots at URLs: read in place with few requests, and one line for each way in which it fails."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.snapshot.buckets import SECRET, Bucket, Faulty, credentials, faulty
from tests.snapshot.portable.portable_store import DISK, opened, work
from tests.until import until

import tidelog
from tidelog.aof.identity import DATA
from tidelog.engine.streams.stored import stored_nodes, stored_stream
from tidelog.engine.streams.stream import Stream
from tidelog.snapshot import portable, remote
from tidelog.snapshot.errors import (
    NotASnapshot,
    SnapshotDamaged,
    SnapshotRefused,
    SnapshotUnreachable,
)
from tidelog.snapshot.manifest import NAME
from tidelog.snapshot.place import LocalPlace, place_of
from tidelog.snapshot.restore import restore
from tidelog.snapshot.scrub import verify_place
from tidelog.snapshot.sealed import open_sealed


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials(monkeypatch)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred streams, of 4 MB."""
    with opened(tmp_path_factory.mktemp("store") / "db") as db:
        rng = random.Random(1)
        for number in range(100):
            db.xadd_many(f"s{number}", [{"f": rng.randbytes(70)} for _ in range(500)])
        db.xgroup_create("s1", "g", id="0")
        return db.snapshot().path


def put(bucket: Bucket, path: Path, name: str = "kept") -> str:
    for file in path.iterdir():
        bucket.put(f"{name}/{file.name}", file.read_bytes())
    return bucket.url(name)


def test_every_row_of_a_bucket(bucket: Bucket, snapshot: Path) -> None:
    place = place_of(put(bucket, snapshot))
    assert place.name == f"s3://{bucket.name}/kept"
    assert place.names() == [DATA, NAME]
    with place.hold():
        pass
    theirs = portable.open_snapshot(DISK, snapshot)
    ours = open_sealed(place)
    try:
        assert ours.meta == theirs.meta
        assert list(ours.rows.rows(b"")) == list(theirs.rows.rows(b""))
    finally:
        theirs.close()
        ours.close()


def test_one_stream_of_a_hundred_takes_few_reads(bucket: Bucket, snapshot: Path) -> None:
    place = place_of(put(bucket, snapshot))
    reads: list[tuple[str, int, int]] = []
    plain = place.read_at

    def read_at(file: str, offset: int, nbytes: int) -> bytes:
        reads.append((file, offset, nbytes))
        return plain(file, offset, nbytes)

    place.read_at = read_at  # type: ignore[method-assign]
    ours = open_sealed(place)
    try:
        stream = ours.state().databases[0].keys[b"s50"]
        reads.clear()
        assert isinstance(stream, Stream)
        nodes = list(stored_nodes(ours.rows, stored_stream(ours.rows, stream.number)))
    finally:
        ours.close()
    assert len(nodes) > 5 and all(node.data for node in nodes)
    assert len(reads) <= 8, reads
    assert sum(nbytes for _, _, nbytes in reads) < 1 << 20


def test_it_is_verified_and_restored_in_place(
    bucket: Bucket, snapshot: Path, tmp_path: Path
) -> None:
    place = place_of(put(bucket, snapshot))
    assert verify_place(place) == []
    done = restore(DISK, place, tmp_path / "new")
    place.close()
    with (
        tidelog.open(tmp_path / "new", read_only=True) as ours,
        tidelog.open(snapshot, read_only=True) as theirs,
    ):
        assert ours.digest() == theirs.digest()
    assert done.lsn == int(snapshot.name)
    with pytest.raises(SnapshotRefused, match="kept is not inside a store.*--aof"):
        restore(DISK, place, tmp_path / "newer", until_lsn=done.lsn + 1)


def test_damage_in_a_bucket_is_found(bucket: Bucket, snapshot: Path) -> None:
    data = bytearray((snapshot / DATA).read_bytes())
    data[len(data) // 2] ^= 1
    bucket.put(f"bad/{DATA}", bytes(data))
    bucket.put(f"bad/{NAME}", (snapshot / NAME).read_bytes())
    bucket.put("bad/notes.txt", b"")
    texts = [finding.text for finding in verify_place(place_of(bucket.url("bad")))]
    assert any("notes.txt does not belong to a snapshot" in text for text in texts)
    assert any("has the BLAKE2b hash" in text for text in texts)
    assert all(f"s3://{bucket.name}/bad" in text for text in texts)
    bucket.put(f"bad/{DATA}", bytes(data)[:-1])
    with pytest.raises(SnapshotDamaged, match="bytes, but the manifest says"):
        open_sealed(place_of(bucket.url("bad")))


def test_places_without_a_snapshot(bucket: Bucket) -> None:
    bucket.put("notes/readme", b"x")
    with pytest.raises(NotASnapshot, match="notes is not a snapshot: it contains no file manifest"):
        open_sealed(place_of(bucket.url("notes")))
    with pytest.raises(NotASnapshot, match="nothing is not a snapshot"):
        open_sealed(place_of(bucket.url("nothing")))
    missing = bucket.url("x").replace(bucket.name, "another-bucket")
    with pytest.raises(SnapshotUnreachable, match="s3://another-bucket/x: no access .*NO_SUCH_BUC"):
        open_sealed(place_of(missing))


# fmt: off
@pytest.mark.parametrize(("url", "reason"), [
    ("s3://bucket/x?bogus=1", "Unexpected query parameter"),
    ("s3:///x", "Missing bucket name"),
    ("other://bucket/x", "Unrecognized filesystem type"),
    ("gs://", "the URL names no directory"),
])
# fmt: on
def test_urls_that_cannot_be_used(url: str, reason: str) -> None:
    with pytest.raises(SnapshotRefused, match=reason) as caught:
        place_of(url)
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    url = f"s3://AKIAUSER:{SECRET}@bucket/x?endpoint_override=127.0.0.1:{port}&scheme=http"
    with pytest.raises(SnapshotUnreachable) as caught:
        open_sealed(place_of(url))
    text = str(caught.value)
    assert text.startswith(f"s3://bucket/x/{NAME}: no access (")
    assert SECRET not in text and "AKIAUSER" not in text and "\n" not in text


@pytest.fixture
def broken(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    files = {f"bucket/x/{file.name}": file.read_bytes() for file in snapshot.iterdir()}
    with faulty(files) as server:
        yield server


def patiently(read: Callable[[], Any]) -> Any:
    """The result of the first read that succeeds."""
    found: list[Any] = []

    def reads() -> bool:
        with suppress(SnapshotUnreachable):
            found.append(read())
        return bool(found)

    until(reads, "it is not reachable")
    return found[0]


@pytest.mark.parametrize(
    "fault", ["short", "deny", pytest.param("stall", marks=pytest.mark.slow)]
)
def test_reads_that_fail(
    broken: Faulty, fault: str, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(broken.url("bucket/x"))
    # A place that waits a second for a byte may also lack one because the machine is busy: then it is tried again.
    with monkeypatch.context() as patch:
        if fault == "stall":
            patch.setattr(remote, "STALL_S", 1.0)
        hasty = place_of(broken.url("bucket/x"))
    ours = patiently(lambda: open_sealed(hasty))
    broken.fault, broken.beyond = fault, 1 << 20
    with pytest.raises(SnapshotUnreachable, match=r"s3://bucket/x/data.mdb, byte \d+: no access"):
        for _ in ours.rows.rows(b""):
            pass
    broken.fault = None
    assert patiently(lambda: sum(1 for _ in ours.rows.rows(b""))), "the same place can be read again"
    broken.fault = "short"
    with pytest.raises(SnapshotUnreachable, match=r"data.mdb, byte \d+: no access"):
        restore(DISK, place, tmp_path / "new")
    broken.fault = None
    assert restore(DISK, place, tmp_path / "new").lsn == int(snapshot.name)
    ours.close()


def test_secrets_are_cut_out_of_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = remote.RemoteFolder("s3://us%2Fer:p%2Fw@bucket/x?region=us-east-1")
    for secret in ("us/er", "us%2Fer", "p/w", SECRET):
        assert folder.reason(OSError(f"with {secret}, and more")) == "with ***, and more"
    assert folder.reason(OSError("at s3://a:b@c/d\nmore")) == "at s3://c/d"
    assert len(folder.reason(OSError("x" * 5000))) < 310
    assert folder.name == "s3://bucket/x"


def test_file_urls_are_local(snapshot: Path) -> None:
    place = place_of(f"file://{snapshot}")
    assert isinstance(place, LocalPlace) and place.path == snapshot
    open_sealed(place).close()


def test_random_stores_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    for seed in range(3):
        print("seed", seed)
        with opened(tmp_path / str(seed)) as db:
            work(db, random.Random(seed), 100)
            path = db.snapshot().path
        place = place_of(put(bucket, path, str(seed)))
        assert verify_place(place) == []
        ours = open_sealed(place)
        with tidelog.open(path, read_only=True) as theirs:
            assert sum(1 for _ in ours.rows.rows(b"")) and theirs.digest()
        ours.close()
