"""Tests of the row that describes a checkpoint."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest
from tests.snapshot.world import cold, environment, write

from tidelog.aof.errors import NewerFormat
from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.snapshot.errors import DamagedCheckpoint
from tidelog.snapshot.rows.meta import Meta, read_meta

META = Meta(
    uuid=bytes(range(16)),
    position=Position(2**63, 0xFFFFFFFF, 5, 2**40, 2**64 - 1),
    epochs=(Epoch(1, 2**64 - 1, 1), Epoch(2, 7, 900)),
    now=1_700_000_000_000,
    number=3,
    taken=1_700_000_000_123,
    tables={"tables": [[0, 5, 1]], "next": 9},
)
PATH = Path("data.mdb")


def test_round_trip() -> None:
    meta = Meta.unpack(PATH, META.pack())
    assert meta == META
    assert meta.start.position == META.position and meta.start.now == META.now
    assert meta.start.epochs == META.epochs


def test_fields_of_a_later_version_are_passed_over() -> None:
    fields = msgpack.unpackb(META.pack())
    assert Meta.unpack(PATH, msgpack.packb({**fields, "later": 1})) == META
    with pytest.raises(NewerFormat):
        Meta.unpack(PATH, msgpack.packb({**fields, "format": 2}))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x01", msgpack.packb({"format": 1})])
def test_what_cannot_be_read(payload: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        Meta.unpack(PATH, payload)


def test_in_a_file(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env, cold(env) as rows:
        assert read_meta(rows, env.path) is None
        write(env, {b"!": META.pack()})
        rows.renew()
        assert read_meta(rows, env.path) == META
    path = tmp_path / "c" / "data.mdb"
    path.write_bytes(path.read_bytes().replace(META.uuid, bytes(16)))
    with environment(tmp_path / "c") as env, cold(env) as rows:
        with pytest.raises(DamagedCheckpoint, match="describes the checkpoint"):
            read_meta(rows, env.path)


def test_rows_without_it(tmp_path: Path) -> None:
    with environment(tmp_path / "c") as env, cold(env) as rows:
        write(env, {b"x": b""})
        rows.renew()
        with pytest.raises(
            DamagedCheckpoint, match="the row that describes the checkpoint is missing"
        ):
            read_meta(rows, env.path)
