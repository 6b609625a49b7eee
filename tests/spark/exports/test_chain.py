"""Chains of incremental exports over random histories combine to the store; a forked one is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests import inside
from tests.rounds import rest_slow
from tests.spark.exports.test_export import exported
from tests.spark.histories import Life, Told
from tests.spark.test_tables import assert_same

import tidelog
from tidelog import testing
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.combine import combined

LINKS = 5


def change(life: Life) -> None:
    """Some of everything that changes which entries a snapshot has."""
    r, run = life.r, life.run
    keys = (b"s", b"t", b"u", b"\xff\x00 odd")
    for _ in range(r.choice((2, 6, 12))):
        key, other = r.sample(keys, 2)
        entries = run(b"XRANGE", key, b"-", b"+")
        ids = [entry_id for entry_id, _ in entries] if isinstance(entries, list) else []
        way = r.random()
        if way < 0.4:
            for _ in range(r.choice((1, 8, 60))):
                run(b"XADD", key, b"*", b"f", b"%d" % r.randrange(1000))
        elif way < 0.6:
            for entry_id in r.sample(ids, min(len(ids), 5)):
                run(b"XDEL", key, entry_id)
        elif way < 0.7:
            run(b"XTRIM", key, b"MAXLEN", r.choice((b"=", b"~")), b"%d" % r.randrange(60))
        elif way < 0.85 and ids:  # the newest go, and their IDs come again
            at = r.randrange(max(len(ids) - 30, 0), len(ids))
            run(b"XDEL", key, *ids[at:])
            run(b"XSETID", key, ids[-1], b"MAXDELETEDID", b"0-1")
            run(b"XSETID", key, ids[at - 1] if at else b"0-1")
            for entry_id in ids[at + r.randrange(2) :]:
                run(b"XADD", key, entry_id, b"f", b"again")
        elif way < 0.9:
            run(b"RENAME", key, other)
        elif way < 0.95:
            run(b"COPY", key, other, b"REPLACE")
        elif way < 0.97:
            run(b"DEL", key)
        elif way < 0.98:
            run(b"FLUSHALL")
        else:
            run(b"SWAPDB", b"0", b"1")
        life.clock.advance(r.choice((0, 0.001, 1)))
    if r.random() < 0.5:
        life.db.checkpoint()


def restored(life: Life, snapshot: Path, root: Path) -> Life:
    """The store as it was at a snapshot, in another directory, going on from there."""
    restore(RealDisk(), snapshot, root, aof=None, until_lsn=int(snapshot.name))
    life.close()
    again = object.__new__(Life)
    again.r, again.clock, again.number = life.r, testing.Clock(), 0
    again.db = tidelog.open(root, fsync="no", clock=again.clock, checkpoint_bytes=0, save=())
    again.core = inside.core(again.db)
    return again


def state(exports: list[str]) -> list[dict[str, Any]]:
    return [row for batch in combined(exports) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", rest_slow(range(40), 1))
def test_a_chain_is_the_store(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    life = Life(tmp_path / "store", seed)
    try:
        life.play(40)
        chain: list[str] = []
        tolds: list[Told] = []
        for link in range(LINKS + 1):
            told = life.told()
            to = tmp_path / f"export{link}"
            exported(told, to, since=chain[-1] if chain else None)
            chain.append(str(to))
            tolds.append(told)
            assert_same(state(chain), told.tables["entries"])
            if link == 2 and seed % 3 == 0:
                life = restored(life, told.path, tmp_path / "restored")
            change(life)
    finally:
        life.close()


def test_a_forked_base_is_refused(tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 1)
    try:
        life.play(20)
        early = life.told()
        change(life)
        late = life.told()
        exported(early, tmp_path / "early")
        exported(late, tmp_path / "late")
        life = restored(life, early.path, tmp_path / "restored")
        for _ in range(30):
            change(life)
        forked = life.told()
        assert int(forked.path.name) > int(late.path.name)
        with pytest.raises(TidelogSparkError, match="of another history: at LSN"):
            exported(forked, tmp_path / "to", since=str(tmp_path / "late"))
        assert not (tmp_path / "to").exists()
        exported(forked, tmp_path / "to", since=str(tmp_path / "early"))
        found = state([str(tmp_path / "early"), str(tmp_path / "to")])
        assert_same(found, forked.tables["entries"])
        with pytest.raises(TidelogSparkError, match="and the snapshot only through LSN"):
            exported(early, tmp_path / "back", since=str(tmp_path / "late"))
    finally:
        life.close()


@pytest.fixture
def two(tmp_path: Path) -> tuple[Told, Path]:
    """A newer snapshot, and an export of an older one."""
    life = Life(tmp_path / "store", 2)
    life.play(30)
    exported(life.told(), tmp_path / "base")
    for _ in range(5):
        change(life)
    told = life.told()
    life.close()
    return told, tmp_path / "base"


def refusal(told: Told, base: Path, **more: Any) -> str:
    with pytest.raises(TidelogSparkError) as failed:
        exported(told, base.parent / "to", since=str(base), **more)
    assert not (base.parent / "to").exists()
    return str(failed.value)


def test_bases_that_cannot_be_continued(two: tuple[Told, Path], tmp_path: Path) -> None:
    told, base = two
    other = Life(tmp_path / "other", 3)
    other.play(10)
    foreign = other.told()
    other.close()
    assert "and the snapshot is of store" in refusal(foreign, base)
    assert "is not an export: it does not exist" in refusal(told, tmp_path / "nothing")
    assert "it contains no file _manifest.json" in refusal(told, tmp_path / "store")
    assert "other filters" in refusal(told, base, options={"db": "1"})
    assert "takes whole streams" in refusal(told, base, options={"startId": "5"})
    assert "writes its own table keys" in refusal(told, base, tables=("entries", "keys"))
    exported(told, tmp_path / "groups", tables=("groups",))
    assert "has no index" in refusal(told, tmp_path / "groups")
    (base / "_manifest.json").rename(base / "aside")
    (base / "_plan.json").write_text("{}")
    assert "begun there and not completed" in refusal(told, base)


def test_a_directory_that_looks_sealed_and_is_not(two: tuple[Told, Path]) -> None:
    told, base = two
    seal = json.loads((base / "_manifest.json").read_text())
    name = next(file["name"] for file in seal["files"] if file["table"] == "entries")
    whole = (base / name).read_bytes()
    (base / name).unlink()
    assert f"looks like a complete export, but its file {name} is missing" in refusal(told, base)
    (base / name).write_bytes(whole[:-1])
    assert f"its file {name} has {len(whole) - 1} bytes, but the manifest says" in refusal(told, base)  # fmt: skip
    (base / name).write_bytes(whole)
    index = bytearray((base / "_index.parquet").read_bytes())
    index[len(index) // 2] ^= 1
    (base / "_index.parquet").write_bytes(index)
    assert "its file _index.parquet does not match its checksum" in refusal(told, base)


def test_every_flipped_byte_of_a_seal_is_noticed(two: tuple[Told, Path]) -> None:
    told, base = two
    text = (base / "_manifest.json").read_bytes()
    for at in range(0, len(text), 41):
        (base / "_manifest.json").write_bytes(text[:at] + bytes((text[at] ^ 1,)) + text[at + 1 :])
        refusal(told, base)
    for cut in (0, 1, len(text) // 2, len(text) - 3):
        (base / "_manifest.json").write_bytes(text[:cut])
        refusal(told, base)
    newer = json.loads(text) | {"format": 2}
    (base / "_manifest.json").write_text(json.dumps(newer))
    assert "a newer version of tidelog wrote this export in format 2" in refusal(told, base)


def test_a_flipped_byte_of_entries_is_noticed(two: tuple[Told, Path]) -> None:
    _, base = two
    name = "entries/part-00000.parquet"
    file = base / name
    data = file.read_bytes()
    for at in range(0, len(data), 97):
        file.write_bytes(data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :])
        with pytest.raises(TidelogSparkError, match=f"its file {name} does not match its checksum"):
            state([str(base)])


def test_chains_in_the_wrong_order(two: tuple[Told, Path], tmp_path: Path) -> None:
    told, base = two
    exported(told, tmp_path / "next", since=str(base))
    exported(told, tmp_path / "whole")
    for wrong, message in (
        ([], "at least one"),
        ([tmp_path / "next"], "begin with a whole export"),
        ([base, tmp_path / "whole"], "is a whole export"),
        ([base, tmp_path / "next", tmp_path / "next"], "Name the exports in the order"),
    ):
        with pytest.raises(TidelogSparkError, match=message):
            state([str(each) for each in wrong])


def test_removals_are_told_as_ids_and_ranges(tmp_path: Path) -> None:
    clock = testing.Clock()
    db = tidelog.open(tmp_path / "store", fsync="no", clock=clock, checkpoint_bytes=0, save=())
    for at in range(1, 1001):
        db.xadd("orders", {"n": at}, id=f"{at}-0")
    db.xadd("gone", {"n": 1}, id="5-0")
    first = Told(db.snapshot().path, {})
    exported(first, tmp_path / "first")
    db.xtrim("orders", maxlen=600, approximate=False)
    db.xdel("orders", "700-0")
    db.delete("gone")
    db.rename("orders", "bills")
    db.xadd("bills", {"n": 0}, id="1001-0")
    done = exported(Told(db.snapshot().path, {}), tmp_path / "second", since=str(tmp_path / "first"))  # fmt: skip
    db.close()

    def table(name: str) -> list[dict[str, Any]]:
        files = [tmp_path / "second" / file.name for file in done.seal.of_table(name)]
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    removed = table("removed")
    assert sum(row["count"] for row in removed) == 400 + 1 + 1
    assert [row["first_id"] for row in removed if row["id"] is None] == ["1-0"]
    assert {"700-0", "5-0"} <= {row["id"] for row in removed}
    assert [(row["event"], row["stream"], row["was_stream"]) for row in table("keys")] == [
        ("renamed", b"bills", b"orders"),
        ("ended", b"gone", b"gone"),
    ]
    assert [(row["stream"], row["id"]) for row in table("entries")] == [(b"bills", "1001-0")]
    assert done.seal.since is not None and done.seal.since.lsn == int(first.path.name)


@pytest.mark.parametrize("first", (6, 1))
def test_an_open_node_with_the_same_ids_and_other_values(tmp_path: Path, first: int) -> None:
    """It has the first ID and the IDs of all slots of the one before, and more behind them."""
    life = Life(tmp_path / "store", 1)
    life.core.settings.stream_node_max_entries = 5
    try:
        for at in range(1, 8):
            life.run(b"XADD", b"s", b"%d-0" % at, b"f", b"a%d" % at)
        exported(life.told(), tmp_path / "first")
        life.number = 0
        life.run(b"XDEL", b"s", *(b"%d-0" % at for at in range(first, 8)))
        life.run(b"XSETID", b"s", b"7-0", b"MAXDELETEDID", b"0-1")
        life.run(b"XSETID", b"s", b"%d-1" % (first - 1))
        for at in range(first, 10):
            life.run(b"XADD", b"s", b"%d-0" % at, b"f", b"b%d" % at)
        told = life.told()
        done = exported(told, tmp_path / "second", since=str(tmp_path / "first"))
        assert done.seal.tables["entries"] == 10 - first
        assert_same(state([str(tmp_path / "first"), str(tmp_path / "second")]), told.tables["entries"])  # fmt: skip
    finally:
        life.close()
