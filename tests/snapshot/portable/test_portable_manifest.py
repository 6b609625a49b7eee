"""The manifest: what is written is read back, and what lies is told apart from what is newer."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.snapshot.portable.portable_world import manifest

from tidelog.disk.simulated import SimulatedDisk
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot.errors import NewerSnapshot, NotASnapshot, SnapshotDamaged
from tidelog.snapshot.manifest import StreamCount, parse, read, render

PATH = Path("/db/snapshots/00000000000000004711/manifest.json")


def test_what_is_written_is_read() -> None:
    made = manifest()
    assert parse(PATH, render(made)) == made


@pytest.mark.parametrize("key", [b"", b"orders", "日本".encode(), b"\xff\x00\xfe", b'"\\\n'])
def test_any_key(key: bytes) -> None:
    made = manifest()
    counts = made.counts._replace(largest=(StreamCount(3, key, 1, 2, 3),))
    made = made._replace(counts=counts)
    assert parse(PATH, render(made)) == made


ODD: list[Any] = [
    0,
    -1,
    1 << 63,
    1 << 64,
    True,
    None,
    1.0,
    "7",
    "\udc80",
    [],
    {},
    {"base64": "/w=="},
]


def test_plain_counts_of_streams_are_those_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = StreamCount(3, b"orders", 1, 2, 3)._asdict() | {"key": "orders"}
    items = [[], plain, plain | {"more": 1}]
    items += [plain | {name: odd} for name in plain for odd in ODD]
    items += [{name: plain[name] for name in plain if name != missing} for missing in plain]

    def read_all() -> list[Any]:
        found: list[Any] = []
        for item in items:
            try:
                found.append(parse(PATH, changed(counts__largest=[plain, item])).counts.largest)
            except SnapshotDamaged as fault:
                found.append(str(fault))
        return found

    both_ways = read_all()
    monkeypatch.setattr(manifests, "_plain_stream", lambda item: None)
    assert both_ways == read_all()
    assert sum(type(each) is tuple for each in both_ways) == 12, both_ways


def test_every_flipped_bit_is_noticed() -> None:
    data = render(manifest())
    for at in range(len(data)):
        for bit in (0, 3, 6):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                read_back = parse(PATH, bytes(changed))
            except (SnapshotDamaged, NotASnapshot, NewerSnapshot):
                continue
            # Blanks between the words, and the case of an escape, say nothing.
            assert read_back == manifest(), (at, bit)


def test_every_length_is_noticed() -> None:
    data = render(manifest())
    for length in range(len(data) - 1):
        with pytest.raises((SnapshotDamaged, NotASnapshot)):
            parse(PATH, data[:length])


def changed(**changes: Any) -> bytes:
    """A manifest with other fields (None: without it) whose checksum holds."""
    facts = json.loads(render(manifest()))
    del facts["check"]
    for name, value in changes.items():
        *way, last = name.split("__")
        place = facts
        for step in way:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    facts["check"] = manifests.check_of(facts)
    return json.dumps(facts).encode()


# fmt: off
@pytest.mark.parametrize(("changes", "reason"), [
    ({"uuid": "00"}, "uuid is not 32 hex digits"),
    ({"uuid": " 0" * 16}, "uuid is not 32 hex digits"),
    ({"uuid": 7}, "uuid is not 32 hex digits"),
    ({"position__lsn": -1}, "position.lsn is -1"),
    ({"position__lsn": True}, "position.lsn is True"),
    ({"position__lsn": 1 << 64}, "position.lsn is 18446744073709551616"),
    ({"position__crc": None}, "the field position.crc is missing"),
    ({"position": []}, "position is not a JSON object"),
    ({"epochs": {}}, "epochs is not a list"),
    ({"epochs": [7]}, "epochs[0] is not a JSON object"),
    ({"epochs": [{"number": 1, "incarnation": "zz" * 8, "lsn": 1}]}, "epochs[0].incarnation is not 16 hex"),
    ({"data__bytes": "8192"}, "data.bytes is '8192'"),
    ({"data__more": 1}, "the field data.more is unknown"),
    ({"more": 1}, "the field more is unknown"),
    ({"counts__largest": [{"db": 0, "key": 5, "entries": 1, "groups": 0, "pending": 0}]}, "[0].key is not a key"),
    ({"counts__largest": [{"db": 0, "key": {"base64": "?"}, "entries": 1, "groups": 0, "pending": 0}]}, "is not a key"),
    ({"format": 0}, "the field 'format' is 0"),
    ({"format": "1"}, "the field 'format' is '1'"),
])
# fmt: on
def test_a_field_that_cannot_be(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(SnapshotDamaged) as raised:
        parse(PATH, changed(**changes))
    assert reason in str(raised.value) and str(PATH) in str(raised.value)


def test_a_newer_format_is_said_by_number() -> None:
    with pytest.raises(NewerSnapshot, match="format version 2, but this tidelog reads only up to version 1"):
        parse(PATH, changed(format=2))


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"9" * 5000])
def test_no_json(data: bytes) -> None:
    with pytest.raises(SnapshotDamaged, match="not valid JSON"):
        parse(PATH, data)


@pytest.mark.parametrize("data", [b"7", b"[]", b"{}", b'{"tidelog": "store"}'])
def test_something_else(data: bytes) -> None:
    with pytest.raises(NotASnapshot):
        parse(PATH, data)


def test_where_there_is_none() -> None:
    disk = SimulatedDisk.of({"/empty": None, "/file": b"", "/db": None, "/db/snapshots": None})
    for name, reason in (
        ("missing", "the directory does not exist"),
        ("empty", "it is empty"),
        ("file", "it is not a directory"),
        ("db", "it is a store; its snapshots are in its folder snapshots/"),
    ):
        with pytest.raises(NotASnapshot, match=reason):
            read(disk, Path("/") / name)
