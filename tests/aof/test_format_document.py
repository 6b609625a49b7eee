"""docs/FORMAT.md against the bytes of a real store: its tables say where each field lies, and nothing is left over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgpack

import tidelog

PAGE: Final = (Path(__file__).parents[2] / "docs/FORMAT.md").read_text()


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, so that nothing of tidelog's checks itself."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def layout(heading: str) -> list[tuple[int, int, str]]:
    """(offset, size, text) of the rows of the table under a heading, which must follow each other without a gap."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| (u32|u64|\d+) \| (.*) \|$", section, re.M)
    found = [
        (int(at), {"u32": 4, "u64": 8}.get(size) or int(size), text) for at, size, text in rows
    ]
    for (at, size, _), (next_at, _, _) in zip(found, found[1:]):
        assert at + size == next_at
    return found


def take(heading: str, data: bytes) -> list[Any]:
    """The fields of `data` as the table under `heading` has them: numbers of 4 and 8 bytes, else bytes."""
    fields: list[Any] = []
    for at, size, text in layout(heading):
        piece = data[at : at + size]
        number = size in (4, 8) and "tide" not in text
        fields.append(int.from_bytes(piece, "little") if number else piece)
    return fields


def length(heading: str) -> int:
    at, size, _ = layout(heading)[-1]
    return at + size


def test_every_byte_of_a_small_store(tmp_path: Path) -> None:
    root = tmp_path / "s"
    for life in range(2):
        with tidelog.open(root) as db:
            db.xadd("k", {"f": f"v{life}"}, id=f"5-{life}")
            with db.pipeline() as pipe:
                pipe.set("a", 1).set("b", 2).execute()

    # STORE
    text = (root / "STORE").read_bytes()
    lines = text.decode().splitlines()
    assert lines[:2] == ["tidelog store", "format 1"] and len(lines) == 5
    uuid = bytes.fromhex(lines[2].removeprefix("uuid "))
    assert lines[3] == "made 2"
    assert lines[4] == f"crc32c {crc32c(text[: text.index(b'crc32c ')]):08x}"
    assert sorted(p.name for p in root.iterdir()) == ["LOCK", "STORE", "aof"]
    assert (root / "LOCK").read_text().strip().isdigit()

    # Segments and frames
    paths = sorted((root / "aof").glob("*.aof"))
    assert len(paths) == 2
    lsn, before, opcodes, end = 1, 0, [], (0, 0, 0)
    lives: list[int] = []
    for path in paths:
        data = path.read_bytes()
        magic, version, role, owner, life, first, _, *end_before, header_crc = take(
            "Segments", data
        )
        assert (magic, version, role, owner) == (b"tidelog\n", 1, 1, uuid)
        assert (path.name, first, tuple(end_before)) == (f"{lsn:020}.aof", lsn, end)
        assert header_crc == crc32c(data[:76])
        lives.append(life)
        at = length("Segments")
        while any(data[at:]):
            magic, nbytes, first, count, _, durable, chain, body_crc, crc = take(
                "Frames", data[at:]
            )
            assert (magic, first, chain) == (0xA1F4D71E, lsn, before) and durable < lsn
            body = data[at + 48 : at + 48 + nbytes]
            assert body_crc == crc32c(body)
            assert crc == crc32c(uuid + data[at : at + 44])
            unpacker = msgpack.Unpacker(raw=True)
            unpacker.feed(body)
            records = list(unpacker)
            assert len(records) == count
            opcodes += [(record[0] & 63, record[0] >> 6) for record in records]
            if records[0][0] & 63 == 1:
                assert records[0][1:] == [len(lives), life]
            at, lsn, before = at + 48 + nbytes, lsn + count, crc
        end = (lsn - 1, at, before)
    # EPOCH; XADD, in a new node the first time; two SETs, of which the second ends the unit
    assert opcodes == [(1, 1), (3, 1), (25, 0), (25, 1), (1, 1), (2, 1), (25, 0), (25, 1)]

    # DURABLE
    data = (root / "aof/DURABLE").read_bytes()
    assert len(data) == 8192
    promised = []
    for at in (0, 4096):
        slot = data[at : at + 48]
        magic, owner, life, durable, reserved, slot_crc = take("aof/DURABLE", slot)
        assert (magic, owner, reserved) == (b"tide-syn", uuid, 0)
        assert slot_crc == crc32c(slot[:44]) and life in lives
        promised.append(durable)
    assert max(promised) <= lsn - 1
    assert not any(data[48:4096]) and not any(data[4144:])


def test_the_check_value_of_the_page() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert "E3069283" in PAGE
