"""A leader that lies about its snapshot: nothing of it is put in place, and the next honest one is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.replication.copies import Offered, fetch, follow, offered
from tests.rounds import rest_slow
from tests.store.following.leader import flush, pull

import tidelog
from tidelog.aof import identity
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.engine import rowkeys
from tidelog.replication import resync
from tidelog.replication.errors import ProtocolError, ReplicationError
from tidelog.replication.follower import ERRORS
from tidelog.replication.protocol import DATA_FILE, MANIFEST_FILE
from tidelog.snapshot.errors import SnapshotDamaged
from tidelog.snapshot.manifest import check_of
from tidelog.snapshot.restore import Restored, restore
from tidelog.snapshot.rows.environment import open_environment


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[tidelog.Store]:
    with tidelog.open(tmp_path / "leader", fsync="no") as db:
        for number in range(300):
            db.xadd("orders", {"n": number, "text": "x" * 300})
        yield db


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[tidelog.Store]:
    with tidelog.open(tmp_path / "copy", fsync="no") as db:
        db.xadd("own", {"n": 1})
        yield db


def retold(offer: Offered, change: Callable[[dict[str, Any]], object], told: bool) -> None:
    """Change the manifest, with a checksum that fits. `told`: SNAPSHOT says the same."""
    facts = json.loads(offer.files[MANIFEST_FILE])
    change(facts)
    del facts["check"]
    facts["check"] = check_of(facts)
    data = json.dumps(facts, sort_keys=True, indent=1).encode() + b"\n"
    offer.files[MANIFEST_FILE] = data
    offer.snapshot = offer.snapshot._replace(manifest_bytes=len(data))
    if told:
        offer.snapshot = offer.snapshot._replace(
            lsn=facts["position"]["lsn"],
            crc=int(facts["position"]["crc"], 16),
            data_bytes=facts["data"]["bytes"],
            blake2b=bytes.fromhex(facts["data"]["blake2b"]),
        )


def another(offer: Offered, **fields: Any) -> None:
    offer.snapshot = offer.snapshot._replace(**fields)


def cut(offer: Offered, nbytes: int) -> None:
    offer.files[DATA_FILE] = offer.files[DATA_FILE][:nbytes]
    another(offer, data_bytes=nbytes)


def flip(file: int, offer: Offered) -> None:
    data = bytearray(offer.files[file])
    data[len(data) // 2] ^= 1
    offer.files[file] = bytes(data)


def garbage(offer: Offered) -> None:
    """Data that is no database at all, with a manifest that fits it."""
    data = bytes(range(256)) * 64
    offer.files[DATA_FILE] = data
    told = {"bytes": len(data), "blake2b": blake2b(data, digest_size=32).hexdigest()}
    retold(offer, lambda facts: facts.update(data=told), True)


# fmt: off
LIES: dict[str, Callable[[Offered], object]] = {
    "another LSN":             lambda o: another(o, lsn=o.snapshot.lsn + 1),
    "another checksum":        lambda o: another(o, crc=o.snapshot.crc ^ 1),
    "another hash":            lambda o: another(o, blake2b=bytes(32)),
    "more data":               lambda o: another(o, data_bytes=1 << 62),
    "less data":               lambda o: another(o, data_bytes=4096),
    "no data":                 lambda o: another(o, data_bytes=0),
    "data cut off":            lambda o: cut(o, 8192),
    "a shorter manifest":      lambda o: another(o, manifest_bytes=100),
    "a manifest of one byte":  lambda o: another(o, manifest_bytes=1),
    "a flipped bit of data":   lambda o: flip(DATA_FILE, o),
    "a flipped bit of it":     lambda o: flip(MANIFEST_FILE, o),
    "no manifest":             lambda o: o.files.update({MANIFEST_FILE: b"x" * o.snapshot.manifest_bytes}),
    "no database":             garbage,
    "another store":           lambda o: retold(o, lambda f: f.update(uuid="ab" * 16), True),
    "another place, told":     lambda o: retold(o, lambda f: f["position"].update(lsn=o.snapshot.lsn + 7), True),
    "another place":           lambda o: retold(o, lambda f: f["position"].update(lsn=o.snapshot.lsn + 7), False),
    "another end, told":       lambda o: retold(o, lambda f: f["position"].update(crc="00000000"), True),
    "other counts":            lambda o: retold(o, lambda f: f["data"].update(bytes=1), False),
    "absurd size, told":       lambda o: retold(o, lambda f: f["data"].update(bytes=1 << 50), True),
    "lives of another":        lambda o: retold(o, lambda f: f.update(epochs=[]), True),
}
# fmt: on


@pytest.mark.parametrize("name", rest_slow(LIES, 6))
def test_a_lie_changes_nothing(tmp_path: Path, leader: tidelog.Store, name: str) -> None:
    truth = offered(leader)
    lie = truth.copy()
    LIES[name](lie)
    with tidelog.open(tmp_path / "copy", fsync="no") as copy:
        copy.xadd("own", {"n": 1})
        follow(copy)
        before = copy.digest()
        with pytest.raises(ERRORS) as caught:
            fetch(copy, lie)
        assert len(str(caught.value)) < 700 and "\n" not in str(caught.value)
        assert copy.digest() == before
        assert not (tmp_path / "copy" / identity.SWAP).exists()
        fetch(copy, truth)
        assert copy.digest() == leader.digest()


def test_the_manifest_is_compared_before_the_data_is_fetched(
    leader: tidelog.Store, copy: tidelog.Store
) -> None:
    lie = offered(leader)
    sent = []
    lie.change = lambda file, at, data: sent.append(file) or data  # type: ignore[func-returns-value]
    another(lie, blake2b=bytes(32))
    with pytest.raises(ProtocolError, match="not the one that it offered"):
        fetch(copy, lie)
    assert set(sent) == {MANIFEST_FILE}


def test_a_file_that_changes_its_size(leader: tidelog.Store, copy: tidelog.Store) -> None:
    """It grows while it is fetched. The follower takes no byte more than was offered."""
    lie = offered(leader)
    lie.files[DATA_FILE] += bytes(100_000)
    with pytest.raises(ReplicationError, match="more than the"):
        fetch(copy, lie)


def test_another_snapshot_of_the_same_lsn(
    tmp_path: Path, leader: tidelog.Store, copy: tidelog.Store
) -> None:
    """An unfinished copy of the one is not continued with the other, and is not in the way."""

    class Broken(Exception):
        pass

    def stop(file: int, at: int, data: bytes) -> bytes:
        if file == DATA_FILE and at:
            raise Broken
        return data

    flush(leader)
    shutil.copytree(tmp_path / "leader", tmp_path / "again")
    first = offered(leader)
    with tidelog.open(tmp_path / "again") as again:
        second = offered(again)
    assert second.snapshot.lsn == first.snapshot.lsn
    assert second.snapshot.blake2b != first.snapshot.blake2b
    first.change = stop
    with pytest.raises(Broken):
        fetch(copy, first)
    fetch(copy, second)
    assert copy.digest() == leader.digest()


def test_a_sound_file_that_holds_nonsense(
    tmp_path: Path, leader: tidelog.Store, copy: tidelog.Store
) -> None:
    """All hashes and checksums are right, but rows of a stream are missing: only the walk finds that."""
    truth = offered(leader)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "data.mdb").write_bytes(truth.files[DATA_FILE])
    environment = open_environment(RealDisk(), tmp_path / "x")
    writing = environment.write()
    writing.delete_range(rowkeys.DATA, bytes([rowkeys.DATA[0] + 1]), 1)
    writing.commit()
    environment.close()
    lie = truth.copy()
    lie.files[DATA_FILE] = data = (tmp_path / "x" / "data.mdb").read_bytes()
    told = {"bytes": len(data), "blake2b": blake2b(data, digest_size=32).hexdigest()}
    retold(lie, lambda facts: facts.update(data=told), True)
    follow(copy)
    before = copy.digest()
    with pytest.raises(SnapshotDamaged):
        fetch(copy, lie)
    assert copy.digest() == before
    fetch(copy, truth)
    assert copy.digest() == leader.digest()


@pytest.mark.parametrize(("shared", "kept"), [(1, True), (2, False)])
def test_records_behind_what_both_share_are_kept(
    tmp_path: Path, leader: tidelog.Store, shared: int, kept: bool
) -> None:
    """Although a checksum proves that the leader has those before."""
    flush(leader)
    with tidelog.open(tmp_path / "copy", fsync="no") as copy:
        inside.core(copy).roles.follow("leader", 1)  # type: ignore[union-attr]
        inside.core(copy).roles.adopt(inside.core(leader).roles.uuid)  # type: ignore[union-attr]
        pull(copy, leader)
        truth = offered(leader)
        last = copy.info()["next_lsn"] - 1
        fetch(copy, truth, shared=last - 2 + shared, same=True)
        assert copy.digest() == leader.digest()
        assert (tmp_path / "copy" / identity.QUARANTINE).exists() == kept


def test_a_copy_that_rots_before_it_is_used(
    leader: tidelog.Store, copy: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the follower damages what was fetched. It is fetched anew."""
    truth = offered(leader)

    def rot(disk: Disk, snapshot: Path, *args: Any, **more: Any) -> Restored:
        data = bytearray((snapshot / "data.mdb").read_bytes())
        data[5000] ^= 1
        (snapshot / "data.mdb").write_bytes(data)
        monkeypatch.undo()
        return restore(disk, snapshot, *args, **more)

    monkeypatch.setattr(resync, "restore", rot)
    with pytest.raises(ERRORS):
        fetch(copy, truth)
    assert fetch(copy, truth) == len(truth.files[DATA_FILE])
    assert copy.digest() == leader.digest()
