"""The tools on a log whose first segments were released, since a checkpoint holds what was in them."""

import json
import random
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.made import T0, Made

import tidelog
from tidelog.aof import identity
from tidelog.aof.errors import MissingSegment, Vanished
from tidelog.engine.effects import effect as e
from tidelog.tools import exits
from tidelog.tools.logfiles import LogFiles


@pytest.fixture
def released(made: Made) -> Made:
    """The kept store without its first segment, and a file in the place of a checkpoint."""
    path = made.root / identity.CHECKPOINT / identity.DATA
    path.parent.mkdir()
    path.write_bytes(b"not looked into")
    made.path(0).unlink()
    return made


def test_without_a_checkpoint_it_is_damage(run: Run, made: Made) -> None:
    made.path(0).unlink()
    for words in (["aof", "ls"], ["aof", "dump"], ["info"], ["digest"]):
        done = run(*words, made.root)
        assert done.code == exits.DAMAGED
        assert "checkpoint/data.mdb" in done.err and "tidelog snapshot restore" in done.err
    assert run("aof", "verify", made.root).code == exits.VERIFY_SEGMENTS


def test_ls(run: Run, released: Made) -> None:
    done = run("aof", "ls", released.root, "--json")
    (row,) = map(json.loads, done.out.splitlines())
    assert done.code == 0
    assert (row["first_lsn"], row["last_lsn"], row["end"]) == (8, 13, "end")


def test_dump(run: Run, released: Made) -> None:
    done = run("aof", "dump", released.root, "--json")
    assert done.code == 0
    assert [json.loads(line)["lsn"] for line in done.out.splitlines()] == list(range(8, 14))
    done = run("aof", "dump", released.root, "--json", "--past-damage")
    assert (done.code, len(done.out.splitlines())) == (0, 6)


def test_verify(run: Run, released: Made) -> None:
    done = run("aof", "verify", released.root, "--no-replay", "--json")
    facts = json.loads(done.out)
    assert (done.code, facts["records"], facts["last_lsn"]) == (0, 6, 13)
    # With the replay what is no checkpoint is found out.
    done = run("aof", "verify", released.root, "--json")
    assert done.code == exits.VERIFY_REPLAY and json.loads(done.out)["digest"] is None


def test_verify_still_finds_damage(run: Run, released: Made) -> None:
    released.flip(released.offsets[1] + 55)
    released.promise(released.lsn - 1, incarnation=0xB2)
    assert run("aof", "verify", released.root, "--no-replay").code == exits.VERIFY_FRAMES


def test_nothing_is_said_of_a_state_that_is_not_whole(run: Run, released: Made) -> None:
    for word in ("info", "digest"):
        done = run(word, released.root)
        assert done.code != 0 and done.out == ""


def test_a_checkpoint_that_is_none_is_damage(run: Run, released: Made, tmp_path: Path) -> None:
    done = run("repair", released.root, "--to", tmp_path / "copy")
    assert (done.code, done.err) == (exits.DAMAGED, "")
    assert "damage: " in done.out and "checkpoint/data.mdb" in done.out
    assert "Nothing can be kept." in done.out
    assert not (tmp_path / "copy").exists()


def test_a_log_that_begins_behind_a_checkpoint_is_not_damaged(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    for _ in range(2):
        with tidelog.open(root, retain_bytes=0, checkpoint_bytes=0, save=()) as db:
            db.xadd("s", {"n": 0})
            db.checkpoint()
    assert not (root / "aof/00000000000000000001.aof").exists()
    done = run("repair", root)
    assert (done.code, done.err) == (0, "")
    assert "is not damaged" in done.out


@pytest.mark.parametrize("snapshot", [True, False])
def test_repair_of_a_log_that_begins_behind_a_checkpoint(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: bool
) -> None:
    """The copy is the checkpoint and the log behind it, whether there is a snapshot or not."""
    monkeypatch.chdir(tmp_path)
    with tidelog.open("db", retain_bytes=0, checkpoint_bytes=0, save=()) as db:
        db.xadd("orders", {"n": 0})
        db.checkpoint()
    for _ in range(2):  # each life begins a segment, and its checkpoint releases those before
        with tidelog.open("db", retain_bytes=0, checkpoint_bytes=0, save=()) as db:
            db.xadd("orders", {"n": 1})
            db.checkpoint()
    with tidelog.open("db", checkpoint_bytes=0, save=()) as db:
        if snapshot:
            db.snapshot()
        for n in range(5):
            db.xadd("orders", {"n": n})
    segment = max(Path("db/aof").glob("*.aof"))
    assert min(Path("db/aof").glob("*.aof")).name != "00000000000000000001.aof"
    last = [json.loads(line) for line in run("aof", "dump", "db", "--json").out.splitlines()][-1]
    data = bytearray(segment.read_bytes())
    data[last["offset"] + 60] ^= 1
    segment.write_bytes(data)

    done = run("repair", "db", "--to", "copy")
    assert (done.code, done.err) == (0, "")
    assert f"Can be kept: LSN 1 to {last['lsn'] - 1}, up to" in done.out
    assert run("verify", "copy").code == 0
    with tidelog.open("copy") as db:
        assert db.xlen("orders") == 3 + 4  # all that is whole


def test_segments_that_go_while_they_are_read(made: Made) -> None:
    files = LogFiles(made.root)
    scans = files.scans()
    first = next(scans)
    for _ in first.frames():
        pass
    made.path(1).unlink()
    with pytest.raises(Vanished, match="Start again"):
        next(scans)


def test_a_follower_of_the_log_that_was_left_behind(made: Made) -> None:
    files = LogFiles(made.root)
    following = files.new()
    assert [next(following)[1].lsn, next(following)[1].lsn] == [1, 2]
    checkpoint = made.root / identity.CHECKPOINT / identity.DATA
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"")
    made.path(0).unlink()
    with pytest.raises(Vanished):
        list(files.new())


def test_a_log_that_was_followed_may_lose_what_was_read(made: Made) -> None:
    files = LogFiles(made.root)
    assert len(list(files.new())) == 10
    made.unit(T0 + 9000, (e.SET, 0, b"k", b"1", -1))
    made.write()
    made.path(0).unlink()
    assert [frame.lsn for _, frame in files.new()] == [14]
    with pytest.raises(MissingSegment):
        list(LogFiles(made.root).new())


def test_a_store_that_folds_and_releases_all_the_time(run: Run, tmp_path: Path) -> None:
    """The tools, beside its writer, say the same as the writer."""
    root = tmp_path / "data"
    rng = random.Random(4)
    with tidelog.open(root, fsync="no", segment_bytes=8192, retain_bytes=0) as db:
        for turn in range(6):
            for _ in range(rng.randint(50, 150)):
                db.xadd("s", {"n": rng.random(), "pad": "x" * 40})
            db.set("turn", turn)
            db.checkpoint()
            for n in range(rng.randint(0, 120)):
                db.xadd("t", {"n": n})
            told = json.loads(run("info", root, "--json").out)
            lengths = {"s": db.xlen("s"), "t": db.xlen("t")}
            assert {row["key"]: row["length"] for row in told["streams"] if row["length"]} == {
                key: length for key, length in lengths.items() if length
            }
            assert run("digest", root).out == f"{db.digest()}\n"
            verified = json.loads(run("aof", "verify", root, "--json").out)
            assert (verified["failures"], verified["digest"]) == ([], db.digest())
            rows = [json.loads(line) for line in run("aof", "ls", root, "--json").out.splitlines()]
            assert all(
                row["last_lsn"] + 1 == after["first_lsn"] for row, after in zip(rows, rows[1:])
            )
            assert (
                told["records"]
                == verified["records"]
                == rows[-1]["last_lsn"] - rows[0]["first_lsn"] + 1
            )
        assert rows[0]["first_lsn"] > 1 and told["first_lsn"] == rows[0]["first_lsn"]
        assert f"replaces LSN 1 to {rows[0]['first_lsn'] - 1:,}" in run("info", root).out
        expected = db.digest()
    assert run("digest", root).out == f"{expected}\n"
