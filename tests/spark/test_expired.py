"""Keys that had expired by a snapshot's own time are in none of its tables, exports and counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.spark.exports.test_chain import state
from tests.spark.exports.test_export import in_this_process
from tests.spark.rows import rows
from tests.tools.conftest import Run, run

import tidelog
from tidelog import testing
from tidelog.disk.real import RealDisk
from tidelog.snapshot import content, manifest
from tidelog.snapshot.place import place_of
from tidelog.snapshot.scrub import verify_place, verify_snapshot
from tidelog.spark.exports.export import export
from tidelog.spark.source import schemas

__all__ = ["run"]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Two keys have expired since the last write, one expires at the very moment, and one later."""
    clock = testing.Clock()
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        for name, ms in (("gone", 5), ("now", 1000), ("later", 1001)):
            db.xadd(name, {"a": 1})
            db.xgroup_create(name, "g", id="0")
            db.xreadgroup("g", "c", {name: ">"})
            db.pexpire(name, ms)
        db.set("text", "b", px=999)
        clock.advance(1)
        return db.snapshot().path


def test_tables_have_no_expired_keys(snapshot: Path, tmp_path: Path) -> None:
    for table in schemas.TABLES:
        name = "key" if table == "keys" else "stream"
        found = {row[name] for row in rows(str(snapshot), table=table)}
        assert found == {b"now", b"later"}, table
    export(str(snapshot), str(tmp_path / "to"), runner=in_this_process)
    assert {row["stream"] for row in state([str(tmp_path / "to")])} == {b"now", b"later"}


def test_iids_that_had_expired_are_not_tracked(tmp_path: Path) -> None:
    """Two producers: of one, all iids have expired since the last write; of the other, one of two."""
    clock = testing.Clock()
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        for pid, iid in (("p", "a"), ("q", "b"), ("q", "c")):
            clock.advance(40 if iid == "c" else 1)
            db.execute_command("XADD", "s", "IDMP", pid, iid, "*", "f", "v")
        clock.advance(61)
        snapshot = db.snapshot().path
        told = db.xinfo_stream("s")
        (row,) = rows(str(snapshot), table="streams")
    tracked = {name.replace("-", "_"): told[name] for name in ("pids-tracked", "iids-tracked")}
    assert (
        {name: row[name] for name in tracked} == tracked == {"pids_tracked": 1, "iids_tracked": 1}
    )
    assert (row["iids_added"], row["iids_duplicates"]) == (3, 0)


def test_counts_have_no_expired_keys(
    run: Run, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = json.loads(run("snapshot", "show", snapshot, "--json").out)
    assert (facts["keys"], facts["streams"], facts["entries"]) == ({"0": 2}, 2, 2)
    assert (facts["groups"], facts["pending"]) == (2, 2)
    assert [row["key"] for row in facts["largest"]] == ["later", "now"]


def test_a_manifest_that_counts_them_is_sound(snapshot: Path) -> None:
    """Earlier versions wrote such ones."""
    disk = RealDisk()
    for keys, findings in ((2, 0), (4, 0), (3, 1)):
        told = manifest.read(disk, snapshot)
        place = place_of(str(snapshot))
        try:
            if keys == 4:
                with tidelog.open(snapshot, read_only=True) as db:
                    counts = content.count(db._core.state, 0)
            else:
                (row,) = told.counts.databases
                counts = told.counts._replace(databases=(row._replace(keys=keys),))
            path = snapshot / manifest.NAME
            path.write_bytes(manifest.render(told._replace(counts=counts)))
            assert len(verify_place(place)) == len(verify_snapshot(disk, snapshot)) == findings, (
                keys
            )
        finally:
            place.close()
            (snapshot / manifest.NAME).write_bytes(manifest.render(told))
