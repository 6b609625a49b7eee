"""Tests of the reader that needs no LMDB: the same answers as LMDB's, and no answer at all from a damaged page."""

from __future__ import annotations

import os
import random
from bisect import bisect_left, bisect_right
from pathlib import Path

import lmdb
import pytest
from tests.snapshot.world import DISK, environment, write

from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.rows import datafile
from tidelog.snapshot.rows.rowfile import RowFile
from tidelog.snapshot.rows.seal import opened, sealed
from tidelog.snapshot.rows.structure import Structure
from tidelog.snapshot.rows.sums import Sums

Model = dict[bytes, bytes]


def history(folder: Path, seed: int) -> Model:
    """Some commits of puts and deletions, with readers that keep pages; the rows at the end."""
    rng = random.Random(seed)
    model: Model = {}
    most, many, space = rng.choice((50, 300, 3000, 30000)), rng.choice((5, 50, 500)), 2000
    with lmdb.Environment(str(folder), map_size=1 << 30, sync=False) as env:
        reader = None
        for _ in range(rng.choice((3, 10, 20))):
            if reader is not None and rng.random() < 0.3:
                reader.abort()
                reader = None
            elif reader is None and rng.random() < 0.3:
                reader = env.begin()
            after = dict(model)
            txn = env.begin(write=True)
            for _ in range(rng.randrange(many)):
                key = b"p%06d" % rng.randrange(space) + b"x" * rng.choice((0, 0, 5, 20))
                if rng.random() < 0.4:
                    txn.delete(key)
                    after.pop(key, None)
                else:
                    value = sealed(key, os.urandom(8) * (rng.randrange(most) // 8))
                    txn.put(key, value)
                    after[key] = value
            if rng.random() < 0.1:
                txn.abort()
            else:
                txn.commit()
                model = after
        if reader is not None:
            reader.abort()
    return model


def reading(path: Path) -> tuple[RowFile, Structure]:
    data = path.read_bytes()
    file = DISK.open(path)
    head = datafile.read_head(file)
    file.close()
    assert head is not None

    def read_at(offset: int, nbytes: int) -> bytes:
        assert nbytes <= len(data), "a bounded read"
        return data[offset : offset + nbytes]

    return RowFile(path, read_at, head), Structure(path, read_at, head)


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_it_reads_what_lmdb_wrote(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 10):
        print("seed", seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        model = history(folder, seed)
        path = folder / "data.mdb"
        rows, structure = reading(path)
        wanted = {key: opened(path, key, value) for key, value in model.items()}
        assert dict(rows.rows(b"")) == wanted
        keys = sorted(wanted)
        rng = random.Random(seed)
        for _ in range(100):
            key = b"p%06d" % rng.randrange(2100)
            assert rows.get(key) == wanted.get(key)
            at = bisect_right(keys, key)
            assert rows.before(key, b"p") == ((keys[at - 1], wanted[keys[at - 1]]) if at else None)
            at = bisect_left(keys, key)
            found = (keys[at], wanted[keys[at]]) if at < len(keys) else None
            assert rows.after(key, b"p") == found
        for prefix in (b"", b"p", b"p0001", key, b"z"):
            assert_leaves(rows, prefix, [each for each in keys if each.startswith(prefix)])
        last = (keys[-1], wanted[keys[-1]]) if keys else None
        assert rows.before(b"zz", b"p") == last
        assert rows.before(b"zz", b"z") is None and rows.after(b"zz", b"z") is None
        for _ in structure.run():
            pass
        assert structure.faults == []
        sums = Sums()
        for key, value in model.items():
            sums.add(key, value)
        assert structure.sums.pack() == sums.pack()


def assert_leaves(rows: RowFile, prefix: bytes, keys: list[bytes]) -> None:
    """No key lies before the first leaf, and no leaf but the first begins behind all keys."""
    lows = [low for low, _ in rows.leaves(prefix)]
    assert lows == sorted(set(lows))
    assert all(nbytes > 0 for _, nbytes in rows.leaves(prefix))
    if keys:
        assert lows[0] <= keys[0]
        assert all(low[: len(prefix)] <= prefix for low in lows)
    assert len(lows) <= rows.head.rows.leaves


def test_sizes_of_leaves_are_about_those_of_their_rows(tmp_path: Path) -> None:
    with lmdb.Environment(str(tmp_path / "a"), map_size=1 << 30, sync=False) as env:
        with env.begin(write=True) as txn:
            for number in range(3_000):
                key = b"ps"[number % 2 :][:1] + b"%06d" % number
                txn.put(key, sealed(key, bytes(900 if number % 2 else 9_000)))
        (tmp_path / "b").mkdir()
        env.copy(str(tmp_path / "b"), compact=True)
    rows, _ = reading(tmp_path / "b" / "data.mdb")
    for prefix in (b"p", b"s", b""):
        exact = sum(size for _, size in rows.sizes(prefix))
        assert exact / 1.5 <= sum(size for _, size in rows.leaves(prefix)) <= 1.5 * exact


def test_a_changed_byte_is_never_another_answer(tmp_path: Path) -> None:
    """Of every byte that a tree goes by: the row, or an error that names page and byte."""
    model = history(tmp_path, 3)
    path = tmp_path / "data.mdb"
    whole = path.read_bytes()
    rng = random.Random(5)
    named = 0
    for _ in range(150):
        data = bytearray(whole)
        at = rng.randrange(2 * 4096, len(data))
        if rng.random() < 0.7:
            at -= at % 4096 - rng.randrange(64)
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        rows, _ = reading(path)
        try:
            assert all(payload == opened(path, key, model[key]) for key, payload in rows.rows(b""))
        except CorruptBlock as error:
            assert str(path) in str(error)
        for key in rng.sample(sorted(model), min(20, len(model))):
            try:
                assert rows.get(key) == opened(path, key, model[key])
            except CorruptBlock as error:
                named += 1
                assert str(path) in str(error)
                assert "byte" in str(error) or "checksum" in str(error)
    assert named


def test_rows_of_parts_that_are_suspect_are_refused(tmp_path: Path) -> None:
    key = b"d" + (5).to_bytes(8, "big") + bytes(16)
    other = b"d" + (6).to_bytes(8, "big") + bytes(16)
    with lmdb.Environment(str(tmp_path), map_size=1 << 30) as env, env.begin(write=True) as txn:
        for each in (key, other):
            txn.put(each, sealed(each, b"x"))
    rows, _ = reading(tmp_path / "data.mdb")
    rows.suspects = frozenset({512 + 5})
    with pytest.raises(CorruptBlock, match="stream 5.*not those of the last commit"):
        rows.get(key)
    with pytest.raises(CorruptBlock):
        rows.after(b"d", b"d")
    assert rows.get(other) == b"x"
    assert rows.after(b"k", b"k") is None, "no key is concerned"


def test_parts_of_a_value_are_read_alone(tmp_path: Path) -> None:
    model = {b"d%d" % at: bytes([at]) * size for at, size in enumerate((10, 300, 5000, 60_000))}
    with environment(tmp_path) as env:
        write(env, model)
    rows, _ = reading(tmp_path / "data.mdb")
    read: list[int] = []

    def peek(offset: int, nbytes: int) -> bytes:
        read.append(nbytes)
        return rows._read_at(offset, nbytes)

    peeking = RowFile(rows.path, rows._read_at, rows.head, peek=peek)
    for key, payload in model.items():
        spans = [(0, 4), (len(payload) - 4, 4), (3, 5), (len(payload) - 2, 9)]
        wanted = [payload[start : start + nbytes] for start, nbytes in spans]
        assert rows.pieces(key, spans) == peeking.pieces(key, spans) == wanted
        assert rows.pieces(key + b"x", spans) is None
    assert read and sum(read) < 200, "no value was read whole"
