"""The directory of records that a follower gave up: `tidelog aof ls` and `dump` show it."""

import json
from pathlib import Path

import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.aof import identity
from tidelog.aof.rewind import rewind
from tidelog.aof.seek import position_after
from tidelog.aof.surplus import REPORT, surplus_behind
from tidelog.disk.real import RealDisk
from tidelog.tools import exits


@pytest.fixture
def surplus(tmp_path: Path) -> Path:
    """LSN 4 to 21 of a store, in several segments."""
    root = tmp_path / "orders"
    with tidelog.open(root, segment_bytes=4096) as db:
        for n in range(20):
            db.xadd("s", {"n": n, "pad": "x" * 400})
    disk = RealDisk()
    uuid, log = identity.read(disk, root), root / identity.AOF
    at = position_after(disk, log, uuid, 3)
    assert at is not None
    aside = root / identity.QUARANTINE / "00000000000000000004.0123456789abcdef"
    aside.mkdir(parents=True)
    (aside / REPORT).write_bytes(surplus_behind(disk, log, uuid, at).report(at, "10.0.0.1 6379"))
    rewind(disk, root, uuid, at, aside)
    return aside


def test_its_segments_are_listed(run: Run, surplus: Path) -> None:
    rows = [json.loads(line) for line in run("aof", "ls", surplus, "--json").out.splitlines()]
    assert len(rows) > 1
    assert (rows[0]["first_lsn"], rows[-1]["last_lsn"]) == (4, 21)


def test_its_records_are_dumped(run: Run, surplus: Path) -> None:
    done = run("aof", "dump", surplus, "--json")
    assert done.code == exits.OK
    assert [json.loads(line)["lsn"] for line in done.out.splitlines()] == [*range(4, 22)]
    some = run("aof", "dump", surplus, "--from-lsn", "20")
    assert [line.split()[0] for line in some.out.splitlines()] == ["20", "21"]


def test_other_commands_ask_for_a_store(run: Run, surplus: Path) -> None:
    done = run("aof", "verify", surplus)
    assert (done.code, "is not a tidelog store" in done.err) == (exits.NOT_A_STORE, True)


def test_its_records_are_exported(run: Run, surplus: Path) -> None:
    done = run("aof", "export", "--resp", surplus)
    assert (done.code, done.out.count("XADD")) == (exits.OK, 18)
