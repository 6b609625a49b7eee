"""tidelog repair: the dry run says what the copy holds, and the copy holds exactly that."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, Made, ids

import tidelog
from tidelog.engine.effects import effect as e
from tidelog.tools import exits
from tidelog.tools.repair import writing


def contents(root: Path) -> dict[Path, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "lock.mdb")
    return {path: path.read_bytes() for path in files}


@pytest.fixture
def holed(tmp_path: Path) -> Made:
    return punched(Made(tmp_path / "orders-data"))


def punched(made: Made) -> Made:
    """A store with a damaged frame, LSN 5, that added an entry; a group behind it has read that entry."""
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    made.unit(T0 + 1, (e.XADD_NODE, 0, b"orders", T0 + 1, 0, (b"n", b"1")))
    made.unit(T0 + 2, (e.XADD, 0, b"orders", T0 + 2, 0, (b"n", b"2")))
    made.unit(T0 + 3, (e.XGROUP_CREATE, 0, b"orders", b"g", 0, 0, 0))
    made.unit(T0 + 4, (e.XADD, 0, b"orders", T0 + 4, 0, (b"n", b"4")))
    damaged = made.offsets[-1]
    made.unit(T0 + 5, (e.XADD, 0, b"orders", T0 + 5, 0, (b"n", b"5")))
    four = ids((T0 + 1, 0), (T0 + 2, 0), (T0 + 4, 0), (T0 + 5, 0))
    made.unit(
        T0 + 6, (e.DELIVER, 0, b"orders", b"g", b"anna", four, T0 + 6, 1, T0 + 6, T0 + 5, 0, 4)
    )
    made.unit(T0 + 7, (e.XACK, 0, b"orders", b"g", ids((T0 + 4, 0))))
    made.unit(T0 + 8, (e.XACK, 0, b"orders", b"g", ids((T0 + 5, 0))))
    made.unit(T0 + 9, (e.XTRIM, 0, b"orders", 1, 3, 0, 3, (), b""))
    made.unit(T0 + 10, (e.SET, 0, b"k", b"v", -1))
    made.write()
    made.flip(damaged + 60)
    made.promise(made.lsn - 1)
    return made


def test_output(run: Run, holed: Made) -> None:
    done = run("repair", holed.root)
    assert (done.code, done.err) == (exits.DAMAGED, "")
    expect("repair-cut.txt", done.out, holed.root)
    done = run("repair", holed.root, "--skip-damaged")
    expect("repair-skip.txt", done.out, holed.root)


def test_entries_that_the_counters_prove(run: Run, holed: Made) -> None:
    told = json.loads(run("repair", holed.root, "--json").out)
    assert told["unreadable"] == [[5, 5]]
    assert told["missing_entries"] == [
        {"db": 0, "key": "orders", "entries": 1, "added": 2, "then": 3},
    ]


@pytest.fixture
def trimmed(tmp_path: Path) -> Made:
    """A store in whose gap two entries were added, which only a trim and deletions behind it tell."""
    made = Made(tmp_path / "orders-data")
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    made.unit(T0 + 1, (e.XADD_NODE, 0, b"orders", T0 + 1, 0, (b"n", b"1")))
    made.unit(T0 + 2, (e.XADD, 0, b"orders", T0 + 2, 0, (b"n", b"2")))
    made.unit(T0 + 3, (e.XADD, 0, b"orders", T0 + 3, 0, (b"n", b"3")))
    made.unit(T0 + 4, (e.XADD, 0, b"orders", T0 + 4, 0, (b"n", b"4")))
    made.unit(T0 + 5, (e.XADD, 0, b"orders", T0 + 5, 0, (b"n", b"5")))
    made.unit(T0 + 6, (e.XDEL, 0, b"orders", ids((T0 + 5, 0)), ()))
    return made


@pytest.mark.parametrize(
    ("behind", "missing"),
    [
        ([(e.XTRIM, 0, b"orders", 1, 3, 0, 3, (), b"")], [(2, 2, 4)]),
        # Less is proved where the gap has deletions, and a later record may prove more.
        ([(e.XTRIM, 0, b"orders", 1, 2, 0, 2, (), b"")], [(1, 2, 3)]),
        (
            [
                (e.XTRIM, 0, b"orders", 1, 2, 0, 2, (), b""),
                (e.XGROUP_SETID, 0, b"orders", b"g", T0 + 5, 0, 5),
            ],
            [(2, 2, 4)],
        ),
        ([(e.XTRIM, 0, b"orders", 1, 1, 0, 1, (), b"")], []),
        # Another stream has the name, or somebody has set the counter.
        ([(e.DEL, 0, (b"orders",)), (e.XTRIM, 0, b"orders", 1, 9, 0, 9, (), b"")], []),
        ([(e.FLUSHALL,), (e.XTRIM, 0, b"orders", 1, 9, 0, 9, (), b"")], []),
        ([(e.COPY, 0, b"x", 0, b"orders"), (e.XTRIM, 0, b"orders", 1, 9, 0, 9, (), b"")], []),
        ([(e.MOVE, 1, b"orders", 0), (e.XTRIM, 0, b"orders", 1, 9, 0, 9, (), b"")], []),
        (
            [
                (e.XSETID, 0, b"orders", T0 + 5, 0, 900, 0, 0),
                (e.XGROUP_SETID, 0, b"orders", b"g", T0 + 5, 0, 900),
            ],
            [],
        ),
    ],
)
def test_entries_that_a_trim_proves(
    run: Run, trimmed: Made, behind: list[tuple[object, ...]], missing: list[tuple[int, int, int]]
) -> None:
    for number, effect in enumerate(behind):
        trimmed.unit(T0 + 10 + number, effect)
    trimmed.write()
    for lsn in (4, 5):
        trimmed.flip(trimmed.offsets[lsn - 1] + 60)
    trimmed.promise(trimmed.lsn - 1)
    told = json.loads(run("repair", trimmed.root, "--json").out)
    rows = [(row["entries"], row["added"], row["then"]) for row in told["missing_entries"]]
    assert rows == missing
    text = run("repair", trimmed.root).out
    for entries, added, then in missing:
        verb = "1 entry of orders is" if entries == 1 else f"{entries} entries of orders are"
        assert f"{verb} missing: entries-added {added}, then {then}." in text


def test_records_behind_the_damage(run: Run, holed: Made, tmp_path: Path) -> None:
    """Those that fit are applied; the trim, whose extent is not certain, and an acknowledgement of nothing are not."""
    copy = tmp_path / "copy"
    told = json.loads(run("repair", holed.root, "--skip-damaged", "--to", copy, "--json").out)
    refused = told["salvage"]["refused"]
    assert [row["lsn"] for row in refused] == [8, 10]
    assert "its extent is not certain: it found 4 entries" in refused[1]["reason"]
    assert json.loads((copy / "SALVAGE.json").read_text()) == told["salvage"]
    with tidelog.open(copy, read_only=True) as db:
        assert db.get("k") == b"v"
        assert [n for _, fields in db.xrange("orders") for n in fields.values()] == [
            b"1",
            b"2",
            b"5",
        ]
    assert run("info", copy, "--json").out != run("info", holed.root, "--json").out
    assert json.loads(run("info", copy, "--json").out)["uuid"] != bytes(range(16)).hex()


def test_a_sound_store(run: Run, made: Made, tmp_path: Path) -> None:
    done = run("repair", made.root, "--to", tmp_path / "copy")
    assert (done.code, done.out) == (0, f"{made.root} is not damaged; there is nothing to repair\n")
    assert not (tmp_path / "copy").exists()
    assert json.loads(run("repair", made.root, "--json").out) == {"damage": []}


def test_nothing_is_left(run: Run, made: Made) -> None:
    for path in made.paths():
        path.write_bytes(b"")
    done = run("repair", made.root)
    assert (done.code, "Nothing can be kept." in done.out) == (exits.DAMAGED, True)


def test_flags(run: Run, holed: Made) -> None:
    before = contents(holed.root)
    assert run("repair", holed.root, "--cut", "--skip-damaged").code == exits.USAGE
    assert run("repair", holed.root, "--to", holed.root).code == exits.USAGE
    assert run("repair", holed.root, "--to", holed.root.parent / "new", "--in-place").code == 2
    done = run("repair", holed.root, "--skip-damaged", "--in-place")
    assert (done.code, "--to NEW-DIRECTORY" in done.err) == (exits.USAGE, True)
    assert contents(holed.root) == before


# --- in place


def aside(root: Path) -> Path:
    (found,) = (root / "quarantine").iterdir()
    return found


def test_in_place(run: Run, holed: Made) -> None:
    """The log ends before the damage, and the rest of it is kept."""
    dry = json.loads(run("repair", holed.root, "--json").out)
    whole = holed.path().read_bytes()
    done = run("repair", holed.root, "--in-place")
    assert (done.code, done.err) == (0, "")
    kept = aside(holed.root)
    last = f"Repaired {holed.root}; everything removed is in {kept}."
    assert done.out.splitlines()[-1] == last
    size = holed.path().stat().st_size
    assert (
        whole == holed.path().read_bytes() + (kept / f"{holed.path().name}.{size}.cut").read_bytes()
    )
    assert json.loads((kept / "REPAIR.json").read_text()) == dry
    assert run("digest", holed.root).out.strip() == dry["kept"]["digest"]
    assert run("verify", holed.root).code == 0
    done = run("repair", holed.root, "--in-place")
    assert (done.code, "there is nothing to repair" in done.out) == (0, True)
    with tidelog.open(holed.root) as db:
        assert db.xlen("orders") == 2
        db.xadd("orders", {"n": "new"})
    assert run("verify", holed.root).code == 0


def test_in_place_tells_where_it_keeps_what_it_removes(run: Run, holed: Made) -> None:
    done = run("repair", holed.root, "--in-place", "--json")
    assert json.loads(done.out)["quarantine"] == str(aside(holed.root))


def test_not_in_place_beside_a_writer(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        db.xadd("s", {"n": 1})
        assert run("repair", tmp_path / "db", "--in-place").code == exits.LOCKED
    assert run("repair", tmp_path / "db", "--in-place").code == 0
    assert not (tmp_path / "db/quarantine").exists()


def test_nothing_is_removed_if_nothing_can_be_kept(run: Run, made: Made) -> None:
    for path in made.paths():
        path.write_bytes(b"")
    before = contents(made.root)
    assert run("repair", made.root, "--in-place").code == exits.DAMAGED
    assert before.items() <= contents(made.root).items()
    assert not (made.root / "quarantine").exists()


def test_a_promise_of_what_is_gone_is_lowered(run: Run, made: Made) -> None:
    made.promise(made.lsn + 5, incarnation=0xC3)
    assert run("repair", made.root, "--in-place").code == 0
    assert (aside(made.root) / "DURABLE").exists()
    with tidelog.open(made.root) as db:
        assert db.info()["next_lsn"] == made.lsn


# --- damages times stores


def store(root: Path, kind: str) -> None:
    """A store of several lives and segments: `plain` has no checkpoint, `folded` one, `released` only the end of its
    log, `kept` a snapshot too."""
    pick = random.Random(7)
    for life in range(3):
        with tidelog.open(
            root, fsync="no", segment_bytes=4096, save=(), checkpoint_bytes=0,
            retain_bytes=0 if kind in ("released", "kept") else 1 << 40,
        ) as db:  # fmt: skip
            for n in range(25):
                db.xadd("s", {"n": n, "pad": "x" * pick.randrange(300)})
                if not db.exists("t"):
                    db.xgroup_create("t", "g", id="0", mkstream=True)
                db.xadd("t", {"n": n})
                if n % 5 == 0:
                    db.xreadgroup("g", "anna", {"t": ">"}, count=3)
            if kind != "plain" and life < 2:
                db.checkpoint()
                if kind == "kept":
                    db.snapshot()


def segments(root: Path) -> list[Path]:
    return sorted((root / "aof").glob("*.aof"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def middle(root: Path) -> None:
    found = segments(root)
    flip(found[len(found) // 2], 700)


def header(root: Path) -> None:
    found = segments(root)
    flip(found[len(found) // 2], 20)


def missing(root: Path) -> None:
    found = segments(root)
    found[len(found) // 2].unlink()


def swapped(root: Path) -> None:
    found = segments(root)
    first, second = found[-2].read_bytes(), found[-1].read_bytes()
    found[-2].write_bytes(second)
    found[-1].write_bytes(first)


def store_file(root: Path) -> None:
    flip(root / "STORE", 30)


def data_file(root: Path) -> None:
    path = root / "checkpoint/data.mdb"
    if path.exists():
        path.write_bytes(b"garbage " * 1024)
    else:
        middle(root)


# Every damage of every kind of store is in test_repair_combinations.py; these go through the command line as users do.
CASES = [
    pytest.param(middle, "released"),
    *(
        pytest.param(damage, kind, marks=pytest.mark.slow)
        for damage, kind in ((header, "folded"), (missing, "plain"), (swapped, "kept"))
    ),
    *(
        pytest.param(damage, kind, marks=pytest.mark.slow)
        for damage, kind in ((store_file, "released"), (data_file, "folded"), (data_file, "kept"))
    ),
]


@pytest.mark.parametrize(("damage", "kind"), CASES)
def test_the_copy_is_what_the_dry_run_said(
    run: Run, tmp_path: Path, damage: Callable[[Path], None], kind: str
) -> None:
    root = tmp_path / "db"
    store(root, kind)
    whole = run("digest", root).out
    damage(root)
    before = contents(root)
    for number, way in enumerate(("--cut", "--skip-damaged")):
        dry = run("repair", root, way, "--json")
        told: dict[str, Any] = json.loads(dry.out)
        assert (dry.code, bool(told["damage"])) == (exits.DAMAGED, True)
        if told["kept"] is None:
            assert kind == "released" and damage is data_file
            continue
        copy = tmp_path / f"copy-{number}"
        done = run("repair", root, way, "--to", copy, "--json")
        assert (done.code, json.loads(done.out)) == (0, told)
        assert run("digest", copy).out.strip() == told["kept"]["digest"]
        assert run("verify", copy).code == 0
        if damage is store_file:
            assert told["kept"]["digest"] == whole.strip()
        with tidelog.open(copy) as db:
            db.xadd("s", {"n": "new"})
        assert run("verify", copy).code == 0
    assert contents(root) == before


def test_a_full_disk_leaves_no_half_copy(
    run: Run, holed: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing, "_copy_segment", full)
    for name in ("missing", "there"):
        copy = tmp_path / name
        if name == "there":
            copy.mkdir()
        done = run("repair", holed.root, "--to", copy)
        assert (done.code, "no space left on " in done.err) == (exits.SYSTEM, True)
        assert copy.exists() == (name == "there") and not (copy.exists() and [*copy.iterdir()])


def test_the_folder_of_the_log_without_a_store_file(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        db.xadd("s", {"n": 1})
    (tmp_path / "db/STORE").unlink()
    done = run("repair", tmp_path / "db/aof", "--in-place")
    assert (done.code, "Nothing is lost." in done.out) == (0, True)
    with tidelog.open(tmp_path / "db") as db:
        assert db.xlen("s") == 1


def test_history_and_state_are_two_losses(run: Run, tmp_path: Path) -> None:
    """Damage before the checkpoint takes no state. The records that leave the log with it are named."""
    root = tmp_path / "orders-data"
    with tidelog.open(root, segment_bytes=4096, checkpoint_bytes=0, save=()) as db:
        for n in range(100):
            db.xadd("orders", {"n": n, "pad": "x" * 100})
        db.checkpoint()
        db.xadd("orders", {"n": 100})
        state = db.digest()
    first, second, *_ = sorted(root.glob("aof/*.aof"))
    assert int(first.stem) == 1
    data = bytearray(first.read_bytes())
    data[1000] ^= 1
    first.write_bytes(data)
    done = run("repair", root)
    assert done.code == exits.DAMAGED
    behind = int(second.stem)
    lines = done.out.splitlines()
    assert "No state is lost." in lines
    assert f"History is lost: LSN 1 to {behind - 1} leave the log, the state has them." in lines
    told = json.loads(run("repair", root, "--json").out)
    assert (told["state_lost"], told["history_lost"]) == (False, [1, behind - 1])
    assert (told["kept"]["digest"], told["kept"]["log_from_lsn"]) == (state, behind)
    assert run("repair", root, "--in-place").code == 0
    assert int(min(root.glob("aof/*.aof")).stem) == behind


def test_a_cut_loses_state_and_no_history(run: Run, holed: Made) -> None:
    told = json.loads(run("repair", holed.root, "--json").out)
    assert (told["state_lost"], told["history_lost"]) == (True, None)
    told = json.loads(run("repair", holed.root, "--skip-damaged", "--json").out)
    assert (told["state_lost"], told["history_lost"]) == (True, [1, 4])
