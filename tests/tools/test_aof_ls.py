"""tidelog aof ls"""

import json
from pathlib import Path
from typing import Any

from tests.tools.conftest import Run, expect
from tests.tools.damaged import missing_last
from tests.tools.made import T0, UUID, Made

import tidelog
from tidelog.engine.effects import effect as e
from tidelog.tools import exits


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_output_from_the_headers(run: Run, made: Made) -> None:
    done = run("aof", "ls", made.root)
    assert (done.code, done.err) == (0, "")
    expect("ls-headers.txt", done.out, made.root)


def test_json_from_the_headers(run: Run, made: Made) -> None:
    expect("ls-headers.json", run("aof", "ls", made.root, "--json").out, made.root)


def test_output_of_a_scan(run: Run, made: Made) -> None:
    done = run("aof", "ls", made.root, "--scan")
    assert (done.code, done.err) == (0, "")
    expect("ls.txt", done.out, made.root)


def test_json_of_a_scan(run: Run, made: Made) -> None:
    expect("ls.json", run("aof", "ls", made.root, "--scan", "--json").out, made.root)


def test_frames_are_read_of_the_last_segment_only(run: Run, made: Made) -> None:
    """The damage of an earlier segment, which its header does not show, is left to --scan."""
    made.flip(300, number=0)
    assert run("aof", "ls", made.root).code == 0
    assert run("aof", "ls", made.root, "--scan").code == exits.DAMAGED


def test_a_header_that_cannot_be_read_hides_no_other(run: Run, made: Made) -> None:
    made.roll(T0 + 5000, incarnation=0xB2)
    made.unit(T0 + 5000, (e.SET, 0, b"k", b"1", -1))
    made.write()
    made.flip(20, number=1)
    for flags in [], ["--scan"]:
        done = run("aof", "ls", made.root, "--json", *flags)
        assert done.code == exits.DAMAGED
        first, second, third = rows(done.out)
        assert (first["first_lsn"], first["last_lsn"], first["end"]) == (1, 7, "end")
        assert (second["first_lsn"], second["end"]) == (8, "unreadable")
        assert second["reason"] == "the segment's header does not match its checksum"
        assert (third["first_lsn"], third["last_lsn"], third["end"]) == (14, 14, "end")
    assert "unreadable: the segment's header" in run("aof", "ls", made.root).out


def test_a_segment_that_was_cut_off(run: Run, made: Made) -> None:
    made.cut(400, number=0)
    done = run("aof", "ls", made.root, "--json")
    first, _ = rows(done.out)
    assert (done.code, first["state"], first["file_bytes"]) == (exits.DAMAGED, "damaged", 400)
    assert "says that this one has 561 bytes, but it has 400" in first["reason"]


def test_a_promised_segment_that_is_missing(run: Run, made: Made) -> None:
    missing_last(made)
    done = run("aof", "ls", made.root, "--json")
    assert (done.code, len(rows(done.out))) == (exits.DAMAGED, 1)
    assert "records through LSN 13 existed" in done.err


def test_states_of_the_last_segment(run: Run, made: Made) -> None:
    assert rows(run("aof", "ls", made.root, "--json").out)[-1]["state"] == "open"
    made.flip(made.offsets[-1] + 3)
    assert rows(run("aof", "ls", made.root, "--json").out)[-1]["state"] == "torn"
    made.promise(made.lsn - 1, incarnation=0xB2)
    done = run("aof", "ls", made.root, "--json")
    assert (done.code, rows(done.out)[-1]["state"]) == (exits.DAMAGED, "damaged")


def test_where_everything_stands(run: Run, tmp_path: Path) -> None:
    """The checkpoint, DURABLE, snapshots, quarantined bytes and the released segments."""
    root = tmp_path / "db"
    for _ in range(3):  # each life begins a segment, and its checkpoint releases those before
        with tidelog.open(root, retain_bytes=0, checkpoint_bytes=0, save=()) as db:
            db.xadd("s", {"n": 0})
            db.checkpoint()
    with tidelog.open(root, checkpoint_bytes=0, save=()) as db:
        db.snapshot()
    path = max((root / "aof").glob("*.aof"))
    with path.open("ab") as file:
        file.write(b"torn")
    tidelog.open(root).close()
    done = run("aof", "ls", root, "--json")
    found = rows(done.out)
    first = found[0]["first_lsn"]
    assert (done.code, first > 1) == (0, True)
    kinds = {mark["kind"]: mark["lsn"] for row in found for mark in row["marks"]}
    assert {"durable", "snapshot"} <= kinds.keys()
    text = run("aof", "ls", root).out
    assert f"released     LSN 1 to {first - 1} are in no segment" in text
    for name in "checkpoint", "durable", "snapshot", "quarantine":
        assert f"\n{name} " in text


def test_a_checkpoint_that_is_none(run: Run, made: Made) -> None:
    (made.root / "checkpoint").mkdir()
    (made.root / "checkpoint/data.mdb").write_bytes(b"garbage" * 1000)
    done = run("aof", "ls", made.root)
    assert (done.code, "checkpoint   cannot be read: " in done.out) == (0, True)


def test_segments_one_by_one(run: Run, made: Made, tmp_path: Path) -> None:
    done = run("aof", "ls", made.path(0), "--json")
    assert (done.code, [row["last_lsn"] for row in rows(done.out)]) == (0, [7])
    assert done.err == (
        "tidelog: the segments are read without a file STORE; their headers name the store "
        f"{UUID.hex()}\n"
    )
    both = run("aof", "ls", made.path(1), made.path(0), "--json")
    assert [row["first_lsn"] for row in rows(both.out)] == [1, 8]
    other = made.path(1).rename(tmp_path / "copy of a segment")
    moved = run("aof", "ls", other, "--json")
    assert [row["first_lsn"] for row in rows(moved.out)] == [8]


def test_a_segment_in_the_middle_of_a_life(run: Run, tmp_path: Path) -> None:
    """DURABLE beside it speaks of the end of the log, and does not prove that this segment lost records."""
    root = tmp_path / "db"
    with tidelog.open(root, segment_bytes=4096) as db:
        for n in range(20):
            db.xadd("s", {"n": n, "pad": "x" * 400})
    first, *_, last = sorted((root / "aof").glob("*.aof"))
    done = run("aof", "ls", first, last, "--json")
    assert (done.code, [row["state"] for row in rows(done.out)]) == (
        0,
        ["sealed", "open or sealed"],
    )
    assert run("aof", "dump", first).code == 0
    first.write_bytes(first.read_bytes()[:-200])
    done = run("aof", "ls", first, "--json")
    assert (done.code, [row["state"] for row in rows(done.out)]) == (exits.DAMAGED, ["damaged"])


def test_a_file_is_not_called_sealed_if_the_store_calls_it_open(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"

    def states(path: Path) -> list[str]:
        return [row["state"] for row in rows(run("aof", "ls", path, "--json").out)]

    with tidelog.open(root, segment_bytes=4096) as db:
        for n in range(20):
            db.xadd("s", {"n": n, "pad": "x" * 400})
        *_, before, last = sorted((root / "aof").glob("*.aof"))
        assert states(root)[-2:] == ["sealed", "open"]
        assert states(last) == ["open"]  # there is room behind the records
    assert states(root)[-2:] == ["sealed", "open"]
    assert states(last) == ["open or sealed"]
    assert states(before) == ["sealed"]  # the segment that follows stands beside it


def test_several_paths_are_segments(run: Run, made: Made) -> None:
    done = run("aof", "ls", made.path(0), made.root)
    assert (done.code, done.out) == (exits.USAGE, "")


def test_segments_of_two_stores(run: Run, made: Made, tmp_path: Path) -> None:
    tidelog.open(tmp_path / "b").close()
    with tidelog.open(tmp_path / "b") as db:
        db.xadd("s", {"n": 1})
    (other,) = (tmp_path / "b/aof").glob("*.aof")
    done = run("aof", "ls", made.path(0), other)
    assert (done.code, "belongs to another store" in done.err) == (exits.DAMAGED, True)


def test_an_aof_without_its_store(run: Run, made: Made, tmp_path: Path) -> None:
    (made.root / "STORE").unlink()
    for place in made.root, made.root / "aof":
        done = run("aof", "ls", place, "--json")
        assert (done.code, [row["first_lsn"] for row in rows(done.out)]) == (0, [1, 8])
        assert UUID.hex() in done.err
    moved = (made.root / "aof").rename(tmp_path / "segments")
    assert run("aof", "ls", moved, "--json").out == done.out


def test_a_torn_tail_is_no_failure(run: Run, made: Made) -> None:
    made.cut(made.offsets[-1] + 50)
    done = run("aof", "ls", made.root, "--json")
    last = json.loads(done.out.splitlines()[-1])
    assert done.code == 0
    assert (last["end"], last["bytes"], last["last_lsn"]) == (
        "torn",
        made.offsets[-1],
        made.lsn - 2,
    )


def test_damage_is_shown_in_its_row(run: Run, made: Made) -> None:
    made.flip(300, number=0)
    done = run("aof", "ls", made.root, "--scan")
    assert done.code == exits.DAMAGED
    first, second = done.out.splitlines()[1:]
    assert "corrupt at byte 215: " in first
    assert second.endswith("clean")


def test_an_empty_store(run: Run, tmp_path: Path) -> None:
    tidelog.open(tmp_path / "new").close()
    done = run("aof", "ls", tmp_path / "new")
    assert (done.code, done.out.count("\n")) == (0, 1)


def test_a_store_that_was_emptied(run: Run, made: Made) -> None:
    for path in (made.root / "aof").iterdir():
        path.unlink()
    done = run("aof", "ls", made.root)
    assert (done.code, done.out) == (6, "")
    assert "all segments and the file DURABLE are missing" in done.err
