"""tidelog verify: sound stores have no findings; each kind of damage has its exit code."""

import json
import random
import shutil
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.snapshot.portable.portable_store import opened, work
from tests.tools.conftest import Run
from tests.tools.made import Made

from tidelog.tools import exits, verify
from tidelog.tools.aof import verify as aof_verify


def test_output(run: Run, made: Made) -> None:
    done = run("verify", made.root)
    assert (done.code, done.err) == (0, "")
    head, *rows = done.out.splitlines()
    assert head.split() == ["CHECK", "RESULT", "FINDINGS"]
    assert [row.split()[0] for row in rows] == list(reversed(verify.CHECKS))
    assert {" ".join(row.split()[1:]) for row in rows} == {"ok", "left out"}


def test_codes_of_the_log_are_those_of_aof_verify() -> None:
    for check, code in verify.CHECKS.items():
        assert aof_verify.CHECKS.get(check, code) == code
    assert len(set(verify.CHECKS.values())) == len(verify.CHECKS)
    assert sorted(verify.CHECKS.values()) == list(verify.CHECKS.values()), "the graver, the higher"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a checkpoint and a log behind it in several segments."""
    with opened(tmp_path / "db", segment_bytes=4096) as db:
        work(db, random.Random(1), 200)
        db.checkpoint()
        work(db, random.Random(2), 100)
    return tmp_path / "db"


def test_sound(run: Run, root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != "lock.mdb"}
    assert run("verify", root).code == 0
    assert json.loads(run("verify", root, "--json").out) == {"findings": [], "snapshots": False}
    after = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != "lock.mdb"}
    assert before == after


def segments(root: Path) -> list[Path]:
    return sorted((root / "aof").glob("*.aof"))


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 4
    path.write_bytes(data)


def test_a_frame(run: Run, root: Path) -> None:
    flip(segments(root)[1], 0.5)
    done = run("verify", root)
    assert done.code == exits.VERIFY_FRAMES and segments(root)[1].name in done.out


def test_a_missing_segment(run: Run, root: Path) -> None:
    segments(root)[-2].unlink()
    done = run("verify", root)
    assert done.code in (exits.VERIFY_SEGMENTS, 32)


def test_released_segments_are_not_missing(run: Run, root: Path) -> None:
    segments(root)[0].unlink()
    assert run("verify", root).code == 0


def test_a_missing_checkpoint(run: Run, root: Path) -> None:
    segments(root)[0].unlink()
    shutil.rmtree(root / "checkpoint")
    done = run("verify", root)
    assert done.code == exits.VERIFY_SEGMENTS and "checkpoint" in done.out


def test_an_older_log(run: Run, root: Path, tmp_path: Path) -> None:
    older = shutil.copytree(root / "aof", tmp_path / "older")
    with opened(root) as db:
        work(db, random.Random(3), 100)
        db.checkpoint()
    shutil.rmtree(root / "aof")
    shutil.copytree(older, root / "aof")
    done = run("verify", root)
    assert done.code == 32 and "agreement: " in done.out and "older copy" in done.out


def test_an_older_checkpoint_is_caught_up_with(run: Run, root: Path, tmp_path: Path) -> None:
    older = shutil.copytree(root / "checkpoint", tmp_path / "older")
    with opened(root) as db:
        work(db, random.Random(3), 100)
        db.checkpoint()
    shutil.rmtree(root / "checkpoint")
    shutil.copytree(older, root / "checkpoint")
    assert run("verify", root).code == 0, "all of the log behind it is still there"


def test_another_stores_checkpoint(run: Run, root: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "other") as db:
        work(db, random.Random(3), 100)
        db.checkpoint()
    shutil.copy(tmp_path / "other/checkpoint/data.mdb", root / "checkpoint/data.mdb")
    done = run("verify", root)
    assert done.code == 32 and "is the checkpoint of another store" in done.out


def test_no_log(run: Run, root: Path) -> None:
    for path in segments(root):
        path.unlink()
    assert run("verify", root).code == 32


@pytest.mark.parametrize("seed", rest_slow(range(8), 2))
def test_a_bit_of_the_checkpoint(run: Run, root: Path, seed: int) -> None:
    """Whatever bit of the file: no traceback, and if the rows read otherwise, it is said."""
    rng = random.Random(seed)
    flip(root / "checkpoint" / "data.mdb", rng.random())
    done = run("verify", root)
    assert done.code in (0, 31)
    if done.code:
        assert "checkpoint: " in done.out and "data.mdb" in done.out


def test_a_cut_checkpoint(run: Run, root: Path) -> None:
    path = root / "checkpoint" / "data.mdb"
    for size in (0, 10, 4096, 8192, path.stat().st_size // 2):
        path.write_bytes(path.read_bytes()[:size])
        done = run("verify", root)
        assert done.code in (0, 31) and done.err == "", (size, done)
