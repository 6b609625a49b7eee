"""The fixed parts of the format: packed, unpacked, and told apart from anything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.aof.world import ROOT

from tidelog.aof import durable, frame, identity, lock, segment
from tidelog.aof.durable import Promise
from tidelog.aof.errors import DamagedFile, NewerFormat, NotAStore, StoreLocked
from tidelog.aof.segment import End, SegmentHeader
from tidelog.crash.logs import UUID
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.crc32c import crc32c, crc32c_of

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
HERE = Path("somewhere")


def test_the_bytes_of_a_frame() -> None:
    data = frame.pack(7, 2, 1_700_000_000_000, 5, 0xAABBCCDD, b"body", crc32c_of(UUID))
    assert len(data) == 52 and data[48:] == b"body"
    assert data[:4].hex() == "1ed7f4a1"
    assert data[4:8] == (4).to_bytes(4, "little")
    assert data[8:16] == (7).to_bytes(8, "little")
    assert data[36:40].hex() == "ddccbbaa"
    assert data[40:44] == crc32c(b"body").to_bytes(4, "little")
    assert data[44:48] == crc32c(UUID + data[:44]).to_bytes(4, "little")


@given(st.binary(min_size=16, max_size=16), U64, U64, U64, U64, U64, U32, st.sampled_from([1, 2]))
def test_segment_headers(
    uuid: bytes, life: int, lsn: int, time: int, last: int, at: int, crc: int, role: int
) -> None:
    header = SegmentHeader(uuid, life, lsn, time, End(last, at, crc), role)
    data = header.pack()
    assert len(data) == segment.HEADER_BYTES
    assert segment.unpack(HERE, data + b"frames") == header


def test_segment_headers_that_are_none() -> None:
    good = SegmentHeader(UUID, 1, 1, 1, End(0, 0, 0)).pack()
    for data in (b"", good[:79], bytes(80), b"x" * 80, good[:40] + b"!" + good[41:]):
        with pytest.raises(DamagedFile, match=r"somewhere, byte \d+: .*repair"):
            segment.unpack(HERE, data)
    newer = good[:8] + (2).to_bytes(4, "little") + good[12:76]
    with pytest.raises(NewerFormat, match="version 2"):
        segment.unpack(HERE, newer + crc32c_of(newer).to_bytes(4, "little"))


def test_segment_names() -> None:
    assert segment.file_name(42) == "00000000000000000042.aof"
    assert segment.first_lsn_of("00000000000000000042.aof") == 42
    for name in ("42.aof", "spare", "DURABLE", "0000000000000000004٢.aof", "0" * 20 + ".aof.new"):
        assert segment.first_lsn_of(name) is None


@given(U64, U64)
def test_durable_slots(life: int, lsn: int) -> None:
    slot = durable.pack(UUID, life, lsn)
    assert len(slot) == durable.SLOT_BYTES
    assert durable.unpack(UUID, slot) == Promise(life, lsn)
    assert durable.unpack(bytes(16), slot) is None
    assert durable.unpack(UUID, slot[:-1]) is None
    assert durable.unpack(UUID, bytes(48)) is None


def test_durable_slots_take_turns() -> None:
    disk = SimulatedDisk()
    file = durable.DurableFile(disk, Path("/"), UUID)
    for lsn in range(1, 6):
        file.write(9, lsn)
        both = sorted(promise.lsn for promise in durable.read(disk, Path("/"), UUID))
        assert both == [max(lsn - 1, 1), lsn][-2 if lsn > 1 else -1 :]
    file.close()
    again = durable.DurableFile(disk, Path("/"), UUID)
    again.write(9, 6)
    assert sorted(p.lsn for p in durable.read(disk, Path("/"), UUID)) == [5, 6]


def test_store_file() -> None:
    text = identity.render(UUID)
    assert text.startswith(b"tidelog store\nformat 1\nuuid 000102")
    found = identity.parse(ROOT / "STORE", text)
    assert (found.uuid, found.served, found.made, found.newest) == (
        UUID,
        False,
        0,
        identity.RECORDS,
    )
    found = identity.parse(ROOT / "STORE", identity.render(UUID, served=True, new=True))
    assert (found.served, found.made, found.is_earlier) == (True, identity.RECORDS, False)
    newer = text[: text.index(b"crc32c")].replace(b"format 1\n", b"format 2\nmood good\n")
    newer += b"crc32c %08x\n" % crc32c_of(newer)
    with pytest.raises(NewerFormat, match="version 2"):
        identity.parse(ROOT / "STORE", newer)
    with pytest.raises(DamagedFile, match="checksum"):
        identity.parse(ROOT / "STORE", text.replace(b"0203", b"0303"))
    with pytest.raises(DamagedFile, match="incomplete"):
        identity.parse(ROOT / "STORE", text[:-1])
    with pytest.raises(NotAStore):
        identity.parse(ROOT / "STORE", b"SQLite format 3\0")


def test_what_may_become_a_store() -> None:
    def new(*names: str) -> bool:
        tree: dict[str, bytes | None] = {"/db": None}
        for name in names:
            tree[f"/db/{name}"] = None if name == "aof" else b""
        return identity.is_new(SimulatedDisk.of(tree), ROOT)

    assert identity.is_new(SimulatedDisk(), ROOT)
    assert new() and new("LOCK") and new("LOCK", "aof") and new("LOCK", "aof", "STORE.new")
    assert not new("LOCK", "aof", "aof/00000000000000000001.aof")
    assert not new("notes.txt") and not new("STORE")
    assert new("LOCK", "aof", "aof/DURABLE.new") and new("LOCK", "aof", "aof/DURABLE")
    with pytest.raises(NotAStore, match="directory does not exist"):
        identity.read(SimulatedDisk(), ROOT)


def test_the_lock_names_its_holder() -> None:
    disk = SimulatedDisk.of({"/db": None, "/db/LOCK": b"99999\n"})
    held = lock.acquire(disk, ROOT, 12)
    with pytest.raises(StoreLocked, match="process 12") as caught:
        lock.acquire(disk, ROOT, 13)
    assert caught.value.pid == 12
    held.close()
    lock.acquire(disk, ROOT, 13).close()


def test_a_store_is_one_when_all_else_of_it_is_there() -> None:
    disk = SimulatedDisk.of({"/db": None})
    identity.create(disk, ROOT, UUID)
    renames = [path.name for name, path in disk.operations if name == "rename"]
    assert renames == ["DURABLE", "STORE"]
