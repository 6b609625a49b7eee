"""tidelog info and tidelog digest"""

import json
from pathlib import Path

from tests.tools.conftest import Run, expect
from tests.tools.made import Made

import tidelog


def test_output(run: Run, made: Made) -> None:
    done = run("info", made.root)
    assert (done.code, done.err) == (0, "")
    expect("info.txt", done.out, made.root)


def test_json(run: Run, made: Made) -> None:
    expect("info.json", run("info", made.root, "--json").out, made.root)


def test_a_store_without_a_record(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "data"
    tidelog.open(root).close()
    done = run("info", root)
    assert done.code == 0
    assert "0 records" in done.out and "last write   never" in done.out


def test_what_was_quarantined_is_counted(run: Run, made: Made) -> None:
    made.cut(made.offsets[-1] + 20)
    with tidelog.open(made.root) as db:
        db.set("k", "v")
    facts = json.loads(run("info", made.root, "--json").out)
    assert facts["quarantined"] == 1


def test_who_keeps_the_log(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "data"
    with tidelog.open(root, fsync="no", segment_bytes=4096, retain_bytes=0) as db:
        db.set("k", "v")
        made = db.snapshot()
        for _ in range(20):
            db.set("k", "x" * 1000)
        db.checkpoint()
    facts = json.loads(run("info", root, "--json").out)
    (pin,) = facts["log_pins"]
    assert (pin["kind"], pin["name"], pin["lsn"]) == ("snapshot", made.path.name, made.lsn)
    assert 0 < pin["bytes"] < facts["bytes"] and pin["since"] * 1000 <= facts["last_write_ms"]
    assert f"kept by      the snapshot {made.path.name}: " in run("info", root).out


def test_the_digest_is_the_store_s_own(run: Run, made: Made) -> None:
    with tidelog.open(made.root, read_only=True) as db:
        expected = db.digest()
    assert run("digest", made.root).out == f"{expected}\n"
    assert json.loads(run("aof", "verify", made.root, "--json").out)["digest"] == expected


def test_beside_a_running_writer(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "data"
    with tidelog.open(root, fsync="no") as db:
        for n in range(10):
            db.xadd("s", {"n": n})
        facts = json.loads(run("info", root, "--json").out)
        assert facts["streams"] == [{"db": 0, "key": "s", "length": 10, "groups": {}}]
        assert run("digest", root).out == f"{db.digest()}\n"
        assert run("aof", "verify", root).code == 0
