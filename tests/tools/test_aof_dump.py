"""tidelog aof dump"""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, UUID, Made, ids

import tidelog
from tidelog.aof import segment
from tidelog.disk.real import RealFile
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import is_known
from tidelog.tools import cli, exits
from tidelog.tools.aof import backwards
from tidelog.tools.aof.fields import KINDS, NAMES
from tidelog.tools.aof.wanted import LOGGED_AS


def lsns(text: str) -> list[int]:
    return [json.loads(line)["lsn"] for line in text.splitlines()]


def test_output(run: Run, made: Made) -> None:
    done = run("aof", "dump", made.root)
    assert (done.code, done.err) == (0, "")
    expect("dump.txt", done.out, made.root)


def test_json(run: Run, made: Made) -> None:
    expect("dump.json", run("aof", "dump", made.root, "--json").out, made.root)


# fmt: off
@pytest.mark.parametrize(("filters", "expected"), [
    (["--key", "orders"], [2, 3, 6, 7, 11]),
    (["--key", "jobs", "--key", "lines"], [4, 5, 12, 13]),
    (["--key", "order"], []),
    (["--key", "order*"], [2, 3, 6, 7, 11]),
    (["--key", "[jl]*"], [4, 5, 12, 13]),
    (["--key", "j?bs", "--key", "lines"], [4, 5, 12, 13]),
    (["--command", "xadd"], [2, 3, 4, 12]),
    (["--command", "XGROUP SETID"], [7]),
    (["--command", "XGROUP"], [5, 6, 7]),
    (["--command", "xack", "--command", "set"], [9, 10, 11]),
    (["--key", "orders", "--command", "XADD"], [2, 3]),
    (["--from-lsn", "11"], [11, 12, 13]),
    (["--to-lsn", "2"], [1, 2]),
    (["--from-lsn", "5", "--to-lsn", "9"], [5, 6, 7, 8, 9]),
    (["--since", str(T0 + 2001)], [9, 10, 11, 12, 13]),
    (["--until", str(T0 + 1)], [1, 2]),
    (["--since", f"{(T0 + 2001) / 1000:.3f}"], [9, 10, 11, 12, 13]),
    (["--since", "2023-11-14T22:13:23"], [12, 13]),
    (["--since", "1s"], []),
    (["--limit", "3"], [1, 2, 3]),
    (["--key", "orders", "--limit", "2"], [2, 3]),
    (["--group", "packers"], [6, 7, 11]),
    (["--group", "pack*", "--command", "XACK"], [11]),
    (["--group", "none"], []),
    (["--consumer", "anna"], [7]),
    (["--consumer", "a*"], [7]),
    (["--id", f"{T0 + 1}-0"], [2, 7, 11]),
    (["--id", f"{T0 + 1}"], [2, 7, 11]),
    (["--id", f"{T0 + 2}-0..{T0 + 3000}-1"], [3, 7, 12]),
    (["--id", f"{T0 + 3000}-2"], [12]),
    (["--id", f"{T0 + 3000}-3"], []),
    (["--id", f"..{T0 + 1}"], [2, 7, 11]),
    (["--id", f"{T0 + 1}-0", "--command", "XACK", "--unit"], [9, 10, 11]),
    (["--key", "orders", "--unit", "--from-lsn", "11"], [9, 10, 11]),
    (["--reverse"], [*range(13, 0, -1)]),
    (["--reverse", "--limit", "3"], [13, 12, 11]),
    (["--reverse", "--key", "orders"], [11, 7, 6, 3, 2]),
    (["--reverse", "--to-lsn", "9", "--from-lsn", "5"], [9, 8, 7, 6, 5]),
])
# fmt: on
def test_filters(run: Run, made: Made, filters: list[str], expected: list[int]) -> None:
    done = run("aof", "dump", made.root, "--json", *filters)
    assert (done.code, lsns(done.out)) == (0, expected)


def test_a_time_that_is_none(run: Run, made: Made) -> None:
    done = run("aof", "dump", made.root, "--since", "yesterday")
    assert done.code == exits.USAGE and "'yesterday' is not a time" in done.err


def test_past_damage(run: Run, made: Made) -> None:
    """Damaged records are named and left out; whole ones behind them, in this segment and the next, are shown."""
    made.flip(220, number=0)  # in the header of the frame of LSN 3
    stopped = run("aof", "dump", made.root, "--json")
    assert (stopped.code, lsns(stopped.out)) == (exits.DAMAGED, [1, 2])
    done = run("aof", "dump", made.root, "--json", "--past-damage")
    assert done.code == exits.DAMAGED
    assert lsns(done.out) == [1, 2, *range(4, 14)]
    assert done.err.count("\n") == 1 and "byte 215" in done.err


def test_past_a_header_that_cannot_be_read(run: Run, made: Made) -> None:
    made.flip(20, number=0)
    done = run("aof", "dump", made.root, "--json", "--past-damage")
    assert (done.code, lsns(done.out)) == (exits.DAMAGED, [*range(8, 14)])
    assert done.err.count("\n") == 1 and f"{made.path(0)}, byte 0: " in done.err


def test_past_a_beginning_that_is_missing(run: Run, made: Made) -> None:
    made.path(0).unlink()
    done = run("aof", "dump", made.root, "--json", "--past-damage")
    assert (done.code, lsns(done.out)) == (exits.DAMAGED, [*range(8, 14)])
    assert "the segments before this one are missing" in done.err


def test_a_key_that_is_also_a_pattern(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    made.unit(T0, (e.SET, 0, b"a[1]", b"x", -1), (e.SET, 0, b"a1", b"x", -1))
    root = made.write()
    assert lsns(run("aof", "dump", root, "--json", "--key", "a[1]").out) == [1, 2]
    assert lsns(run("aof", "dump", root, "--json", "--key", "a\\[1]").out) == [1]


def test_segments_without_their_store(run: Run, made: Made) -> None:
    assert lsns(run("aof", "dump", made.path(1), "--json").out) == [*range(8, 14)]
    assert lsns(run("aof", "dump", *made.paths(), "--json").out) == [*range(1, 14)]
    (made.root / "STORE").unlink()
    for place in made.root, made.root / "aof":
        done = run("aof", "dump", place, "--json")
        assert (done.code, lsns(done.out)) == (0, [*range(1, 14)])
        assert UUID.hex() in done.err


def test_a_single_segment_cannot_be_followed(run: Run, made: Made) -> None:
    done = run("aof", "dump", made.path(0), "--follow")
    assert (done.code, "--follow needs the directory" in done.err) == (exits.USAGE, True)


def test_a_torn_tail_is_left_out(run: Run, made: Made) -> None:
    made.cut(made.offsets[-1] + 10)
    done = run("aof", "dump", made.root, "--json")
    assert (done.code, lsns(done.out)[-1]) == (0, made.lsn - 2)


def test_follow_beside_a_running_writer(tmp_path: Path) -> None:
    """A reader started before the writer goes on sees every record once, in order, over segments and lives."""
    root = tmp_path / "data"
    total = 40
    with tidelog.open(root, fsync="no") as db:
        db.xadd("s", {"n": 0})
        follower = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "aof", "dump", str(root)]
            + ["--json", "--follow", "--key", "s", "--limit", str(total)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert follower.stdout is not None
        lines = [json.loads(follower.stdout.readline())]
        for n in range(1, total // 2):
            db.xadd("s", {"n": n})
    with tidelog.open(root, fsync="no") as db:
        for n in range(total // 2, total):
            db.xadd("s", {"n": n})
        lines += map(json.loads, follower.stdout)
    assert follower.wait(120) == 0
    follower.stdout.close()
    assert [int(line["commands"][0][4]) for line in lines] == list(range(total))
    assert len({line["segment"] for line in lines}) == 2


# --- forms


def test_json_with_fields(run: Run, made: Made) -> None:
    done = run("aof", "dump", made.root, "--format", "json")
    expect("dump-fields.json", done.out, made.root)


def test_frames_and_bytes(run: Run, made: Made) -> None:
    done = run("aof", "dump", made.root, "--frames", "--hex")
    expect("dump-frames.txt", done.out, made.root)


def test_text_is_the_usual_form(run: Run, made: Made) -> None:
    assert run("aof", "dump", made.root, "--format", "text") == run("aof", "dump", made.root)


def test_resp(run: Run, made: Made) -> None:
    done = run("aof", "dump", made.root, "--format", "resp", "--key", "balance", "--key", "orders")
    words = [line for line in done.out.split("\r\n") if line and line[0] not in "*$"]
    assert words[:6] == ["SELECT", "0", "XADD", "orders", f"{T0 + 1}-0", "item"]
    assert words[-7:] == ["7", "SELECT", "0", "XACK", "orders", "packers", f"{T0 + 1}-0"]


def test_msgpack(run: Run, made: Made, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert cli.run(["aof", "dump", str(made.root), "--format", "msgpack", "--limit", "3"]) == 0
    unpack = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape")
    unpack.feed(capsysbinary.readouterr().out)
    found = list(unpack)
    assert [row["lsn"] for row in found] == [1, 2, 3]
    assert found[1]["fields"]["id"] == f"{T0 + 1}-0".encode()
    assert found[1]["fields"]["row"] == [b"item", b"tea", b"n", b"2"]


def test_every_kind_of_record_has_names_for_its_fields() -> None:
    logged = {kind for kind in range(e.VOLATILE) if is_known(kind)}
    assert NAMES.keys() == KINDS.keys() == logged
    for opcode, kinds in KINDS.items():
        assert len(NAMES[opcode]) == max(map(len, kinds)), opcode


@pytest.mark.parametrize("flags", [
    ["--reverse", "--follow"], ["--reverse", "--past-damage"], ["--json", "--format", "text"],
    ["--hex", "--json"], ["--frames", "--format", "resp"], ["--id", "x"], ["--id", "1-2-3"],
])  # fmt: skip
def test_flags_that_contradict_each_other(run: Run, made: Made, flags: list[str]) -> None:
    done = run("aof", "dump", made.root, *flags)
    assert (done.code, done.out) == (exits.USAGE, "")


# --- from the end


def test_backwards_through_many_windows(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values contain whole frames of the same store, which are no frames there."""
    monkeypatch.setattr(backwards, "STRETCH_BYTES", 512)
    root = tmp_path / "data"
    with tidelog.open(root, fsync="no", segment_bytes=16384) as db:
        for n in range(100):
            db.xadd("s", {"n": n, "pad": "x" * (n * 7)})
        piece = max((root / "aof").glob("*.aof")).read_bytes().rstrip(b"\0")[-300:]
        for n in range(20):
            db.xadd("s", {"n": n, "piece": piece[n:]})
    forward = run("aof", "dump", root).out.splitlines()
    assert run("aof", "dump", root, "--reverse").out.splitlines() == forward[::-1]


def test_backwards_over_a_frame_that_ends_with_zeros(run: Run, made: Made) -> None:
    made.unit(T0 + 5000, (e.SET, 0, b"k", bytes(300), -1))
    made.write(zeros=4096)
    assert lsns(run("aof", "dump", made.root, "--json", "--reverse", "--limit", "2").out) == [14, 13]


def test_backwards_from_a_torn_tail(run: Run, made: Made) -> None:
    made.cut(made.offsets[-1] + 30)
    done = run("aof", "dump", made.root, "--json", "--reverse")
    assert (done.code, lsns(done.out)) == (0, [*range(12, 0, -1)])


def test_backwards_stops_at_damage(run: Run, made: Made) -> None:
    made.flip(220, number=0)
    done = run("aof", "dump", made.root, "--json", "--reverse")
    assert done.code == exits.DAMAGED
    assert lsns(done.out) == [*range(13, 3, -1)]
    assert f"{made.path(0)}, byte 215: " in done.err


def test_backwards_notices_promised_frames_that_are_missing(run: Run, made: Made) -> None:
    made.cut(made.offsets[-1])
    made.promise(made.lsn - 1, incarnation=0xB2)
    done = run("aof", "dump", made.root, "--json", "--reverse")
    assert (done.code, done.out) == (exits.DAMAGED, "")


def test_an_id_that_does_not_fit_a_narrow_list(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    wide, narrow = (5, 1 << 30), (T0, 7)
    made.unit(T0, (e.XADD_NODE, 0, b"s", *wide, (b"f", b"v")))
    made.unit(T0, (e.XACK, 0, b"s", b"g", ids(wide, narrow)))
    made.unit(T0, (e.XACK, 0, b"s", b"g", ids(narrow)))
    root = made.write()
    assert lsns(run("aof", "dump", root, "--json", "--id", f"5-{1 << 30}").out) == [1, 2]
    assert lsns(run("aof", "dump", root, "--json", "--id", f"{T0}-7").out) == [2, 3]


def test_reverse_with_an_end_that_lies(
    run: Run, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next header states an end far behind that of the file: nobody asks the disk for all these bytes."""
    path = made.path()
    header = segment.unpack(path, path.read_bytes()[: segment.HEADER_BYTES])
    lie = header._replace(before=header.before._replace(offset=1 << 40)).pack()
    path.write_bytes(lie + path.read_bytes()[segment.HEADER_BYTES :])
    asked: list[int] = []
    pread = RealFile.pread

    def noted(file: RealFile, length: int, offset: int) -> bytes:
        asked.append(length)
        return pread(file, length, offset)

    monkeypatch.setattr(RealFile, "pread", noted)
    done = run("aof", "dump", made.root, "--reverse")
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1), done
    assert max(asked) < 8 << 20

CALLS = """SETEX a 100 v|PSETEX a 100000 v|SETNX b v|GETSET b w|GETDEL b|SET a v|GETEX a EX 100|MSET m 1 n 2|MSETNX y 1
INCR c|INCRBY c 2|DECR c|DECRBY c 2|EXPIRE a 100|PEXPIRE a 100000|EXPIREAT a 9999999999|RENAMENX c d|UNLINK a
XADD s 1-1 a b|XADD s 1-2 a b|XGROUP CREATE s g 0|XREADGROUP GROUP g w STREAMS s >|XAUTOCLAIM s g w2 0 0
XACKDEL s g IDS 1 1-1|XDELEX s IDS 1 1-2"""


def test_a_command_that_is_logged_as_its_effects_is_said_to_be(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    seen = set()
    with tidelog.open(root) as db:
        for call in CALLS.replace("\n", "|").split("|"):
            words = call.split()
            before = db.info()["next_lsn"]
            db.execute_command(*words)
            done = run("aof", "dump", root, "--from-lsn", before, "--json")
            made = {c[0] for line in done.out.splitlines() for c in json.loads(line)["commands"]}
            instead = LOGGED_AS.get(words[0].encode())
            if instead is None:
                assert words[0] in made
                continue
            seen.add(words[0].encode())
            assert made and all(name in instead for name in made), (call, made)
            done = run("aof", "dump", root, "--command", words[0], "--from-lsn", before)
            assert (done.code, done.out) == (exits.OK, "")
            assert f"{words[0]} is logged as its effects: {instead}" in done.err
    assert seen == LOGGED_AS.keys()
