"""tidelog rdb export: dump files of a store, and what is told to be lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.rdb.loaded import read
from tests.tools.conftest import Run

import tidelog
from tidelog.engine.effects.digest import digest
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.write import RdbTarget
from tidelog.tools import exits


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "orders-data"
    with tidelog.open(root) as db:
        db.xgroup_create("orders", "g", "0", mkstream=True)
        for n in range(10):
            db.xadd("orders", {"n": n}, id=f"{n + 1}-0")
        db.xreadgroup("g", "ann", {"orders": ">"}, count=5)
        db.xdel("orders", "2-0")
        db.execute_command("XNACK", "orders", "g", "FAIL", "IDS", "2", "4-0", "3-0")
        db.execute_command("XADD", "orders", "IDMP", "p", "i", "*", "f", "v")
        db.set("x", "1")
    return root


def digest_in(path: Path) -> str:
    return digest(read(Source.of(path.read_bytes())))


@pytest.mark.parametrize("target", RdbTarget)
def test_targets(run: Run, store: Path, tmp_path: Path, target: RdbTarget) -> None:
    path = tmp_path / "dump.rdb"
    done = run("rdb", "export", store, path, "--target", target.value)
    assert done.code == 0
    assert path.read_bytes()[:9] == b"REDIS%04d" % target.version
    lines = done.err.splitlines()
    released = "    2  entries released by XNACK; they become pending of the consumer '' with delivery time 0  orders"
    dedup = "    1  idempotency IDs and their settings; the target has none                                 orders"
    counters = "    1  streams whose iids-added and iids-duplicates start again                                orders"
    wanted = {
        RdbTarget.REDIS_7_0: [released, dedup, counters],
        RdbTarget.REDIS_7_2: [released, dedup, counters],
        RdbTarget.REDIS_8_6: [released],
        RdbTarget.REDIS_8_8: [],
    }[target]
    assert lines[2:] == wanted
    if wanted:
        assert lines[0] == f"Not exported, because Redis {target.value} has no place for it:"
    else:
        assert digest_in(path) == run("digest", store).out.strip()


def test_json(run: Run, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    done = run("rdb", "export", store, path, "--target", "8.6", "--json")
    facts = json.loads(done.out)
    assert facts == {
        "path": str(path),
        "lsn": facts["lsn"],
        "target": "8.6",
        "bytes": path.stat().st_size,
        "lost": [
            {
                "kind": "nacked",
                "db": 0,
                "key": "orders",
                "count": 2,
                "what": "entries released by XNACK; they become pending of the consumer '' with delivery time 0",
            }
        ],
    }
    assert done.err == ""


def test_any_moment(run: Run, tmp_path: Path) -> None:
    """From LSN 1, from a snapshot, from the checkpoint: the digest at the end of each unit is the live one then."""
    root = tmp_path / "orders-data"
    digests: dict[int, str] = {}
    with tidelog.open(root, segment_bytes=4096, retain_bytes=0, save=()) as db:
        for n in range(60):
            db.xadd("s", {"n": n, "pad": "x" * 300})
            digests[db._core.log.next_lsn - 1] = db.digest()
            if n == 20:
                db.snapshot()
            if n == 30:
                db.checkpoint()
    first = next(iter(digests))
    reached = 0
    for lsn, wanted in digests.items():
        path = tmp_path / f"{lsn}.rdb"
        done = run("rdb", "export", root, path, "--at-lsn", lsn)
        if done.code:
            assert done.code == exits.REFUSED and not path.exists()
            continue
        reached += 1
        assert f"everything through LSN {lsn}," in done.out
        assert digest_in(path) == wanted, lsn
    assert reached >= len(digests) - 31
    assert first <= 2
    last = max(digests)
    done = run("rdb", "export", root, tmp_path / "x.rdb", "--at-lsn", last + 1)
    assert (done.code, "is behind the end of the log" in done.err) == (exits.REFUSED, True)
    assert not (tmp_path / "x.rdb").exists()


def test_a_snapshot(run: Run, store: Path, tmp_path: Path) -> None:
    run("snapshot", "create", store)
    (snapshot,) = (each for each in (store / "snapshots").iterdir() if each.name.isdigit())
    assert run("rdb", "export", snapshot, tmp_path / "a").code == 0
    assert digest_in(tmp_path / "a") == run("digest", store).out.strip()
    lsn = int(snapshot.name)
    assert run("rdb", "export", snapshot, tmp_path / "b", "--at-lsn", lsn).code == 0
    assert run("rdb", "export", snapshot, tmp_path / "c", "--at-lsn", lsn - 1).code == exits.REFUSED
    assert run("rdb", "export", snapshot, tmp_path / "c", "--at-lsn", lsn + 1).code == exits.REFUSED
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_files_are_not_overwritten(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").write_text("mine")
    assert run("rdb", "export", store, tmp_path / "dump.rdb").code == exits.SYSTEM
    assert (tmp_path / "dump.rdb").read_text() == "mine"
    assert (
        run("rdb", "export", tmp_path / "nothing", tmp_path / "new.rdb").code == exits.NOT_A_STORE
    )
    assert not (tmp_path / "new.rdb").exists()


def test_there_and_back(run: Run, store: Path, tmp_path: Path) -> None:
    assert run("rdb", "export", store, tmp_path / "a.rdb").code == 0
    assert run("import", tmp_path / "again", tmp_path / "a.rdb").code == 0
    assert run("digest", tmp_path / "again").out == run("digest", store).out
