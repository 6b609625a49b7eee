"""A log with a record of a kind that only a newer tidelog knows: who reads it is told which, where, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.made import T0, UUID, Made, packed

import tidelog
from tidelog.aof import segment
from tidelog.aof.errors import NewerRecord
from tidelog.aof.identity import AOF
from tidelog.aof.start import Start
from tidelog.disk.real import RealDisk
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import applier, is_known
from tidelog.engine.keys.state import State
from tidelog.snapshot.tail import Bound, follow
from tidelog.tools import exits

KIND = 23
SET = (e.SET, 0, b"k", b"v", -1)


@pytest.fixture
def newer(made: Made) -> Made:
    """A few whole frames, in one of them a unit whose second record is of that kind, and one more frame."""
    made.unit(T0 + 5000, SET)
    made.unit(T0 + 5001, SET, (KIND, 0, b"k", b"what"), SET)
    made.unit(T0 + 5002, SET)
    made.write()
    return made


def said(made: Made) -> str:
    """The message about it, wherever it is found."""
    return (
        f"{made.path()}, byte {made.offsets[-2]}: the record with LSN {made.lsn - 3} has kind {KIND}, "
        "which only a newer tidelog knows. Open the store with the version that wrote it or a newer one"
    )


def files(root: Path) -> dict[str, bytes]:
    """All there is in a directory, but for who locks it."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "LOCK"
    }


def test_no_such_kind_is_known() -> None:
    known = [opcode for opcode in range(-70, 300) if is_known(opcode)]
    named = {n for name, n in vars(e).items() if name.isupper() and isinstance(n, int)}
    assert {opcode & e.OPCODE for opcode in known} == named - {e.END, e.OPCODE}
    assert min(known) > 0 and max(known) < 128


@pytest.mark.parametrize("read_only", [False, True])
def test_an_open_is_refused_and_changes_nothing(newer: Made, read_only: bool) -> None:
    before = files(newer.root)
    for _ in range(2):
        with pytest.raises(tidelog.NewerFormat) as caught:
            tidelog.open(newer.root, read_only=read_only)
        assert str(caught.value) == said(newer)
    assert files(newer.root) == before


def test_a_torn_tail_behind_it_stays_where_it_is(newer: Made) -> None:
    newer.cut(newer.offsets[-1] + 20)
    before = files(newer.root)
    with pytest.raises(tidelog.NewerFormat):
        tidelog.open(newer.root)
    assert files(newer.root) == before


def test_where_it_is_in_a_long_log(made: Made) -> None:
    """Many frames are decoded together, and the place is still that of the frame."""
    for n in range(3000):
        made.unit(T0 + 5000, (*SET[:3], b"%040d" % n, -1))
    made.unit(T0 + 5001, SET, (KIND, 0, b"k", b"what"), SET)
    for _ in range(30):
        made.unit(T0 + 5002, SET)
    offset, lsn = made.offsets[-31], made.lsn - 32
    made.write()
    with pytest.raises(
        tidelog.NewerFormat, match=rf"byte {offset}: the record with LSN {lsn} has kind"
    ):
        tidelog.open(made.root)


def test_a_reader_beside_a_newer_writer_is_told(made: Made) -> None:
    with tidelog.open(made.root, read_only=True) as db:
        made.unit(T0 + 5000, SET)
        made.unit(T0 + 5001, SET, (KIND, 0, b"k", b"what"), SET)
        made.unit(T0 + 5002, SET)
        made.write()
        with pytest.raises(tidelog.NewerFormat) as caught:
            db.refresh()
        assert str(caught.value) == said(made)


@pytest.mark.parametrize(
    "command",
    [
        ("aof", "export", "--resp"),
        ("aof", "dump"),
        ("aof", "dump", "--json"),
        ("repair",),
        ("digest",),
    ],
)
def test_tools_stop_with_one_line(run: Run, newer: Made, command: tuple[str, ...]) -> None:
    before = files(newer.root)
    done = run(*command, newer.root)
    assert (done.code, done.err) == (exits.NEWER, f"tidelog: {said(newer)}\n")
    assert files(newer.root) == before


def test_dump_shows_what_comes_before_and_behind(run: Run, newer: Made) -> None:
    last = newer.lsn - 1
    shown = run("aof", "dump", newer.root).out
    assert [int(line.split()[0]) for line in shown.splitlines()][-1] == last - 3
    behind = run("aof", "dump", newer.root, "--from-lsn", last)
    assert (behind.code, behind.err) == (0, "")
    assert "SET k v" in behind.out


def test_verify_names_it_and_goes_on(run: Run, newer: Made) -> None:
    done = run("aof", "verify", newer.root, "--json")
    facts = json.loads(done.out)
    assert facts["failures"] == [{"check": "records", "text": said(newer)}]
    assert facts["last_lsn"] == newer.lsn - 1
    assert (done.code, done.err) == (exits.VERIFY_RECORDS, "")
    assert said(newer) in run("verify", newer.root).out


def test_a_repair_leaves_out_what_it_does_not_know(run: Run, newer: Made, tmp_path: Path) -> None:
    newer.flip(300, number=0)  # damage in the life before it
    done = run("repair", newer.root, "--to", tmp_path / "repaired")
    assert (done.code, done.err) == (0, "")
    tidelog.open(tmp_path / "repaired").close()


def test_a_part_of_a_frame_up_to_a_bound(made: Made) -> None:
    made.raw(T0 + 5000, packed((KIND | e.END, 0, b"k")) + packed((e.PERSIST | e.END, 0, b"k")), 2)
    made.write()
    begin = Start(0, 0, 1, segment.HEADER_BYTES, 0xA1)
    with pytest.raises(NewerRecord, match=rf"byte {made.offsets[-1]}: .* LSN {made.lsn - 2} "):
        bound = Bound(made.lsn - 2)
        follow(RealDisk(), made.root / AOF, UUID, begin, applier(State()), bound)
