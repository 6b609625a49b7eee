"""tidelog repair: the copy opens and holds a prefix; the damaged store is never touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.damaged import header, missing_last, promised_frame, store_file
from tests.tools.made import Made, orders

import tidelog
from tidelog.tools import exits


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def damaged_middle(made: Made) -> None:
    made.flip(220, number=0)  # LSN 3


def undecodable(made: Made) -> None:
    made.raw(1_700_000_009_000, b"\xc1", 1)
    made.write()


def missing_middle(made: Made) -> None:
    made.cut(374, number=0)  # LSN 6 and 7 are gone


# fmt: off
@pytest.mark.parametrize(("damage", "last_lsn"), [
    (damaged_middle, 2),
    (promised_frame, 12),
    (undecodable, 13),
    (missing_middle, 5),
    (header, 13),
    (missing_last, 7),
    (store_file, 13),
])
# fmt: on
def test_a_copy_with_everything_before_the_damage(
    run: Run, made: Made, tmp_path: Path, damage: Callable[[Made], None], last_lsn: int
) -> None:
    """A header that its neighbours prove, and STORE, lose nothing."""
    damage(made)
    before = contents(made.root)
    shown = run("repair", made.root)
    assert shown.code == exits.DAMAGED
    assert f"Can be kept: LSN 1 to {last_lsn}, " in shown.out and "Nothing was written" in shown.out

    copy = tmp_path / "copy"
    done = run("repair", made.root, "--to", copy)
    assert (done.code, done.err) == (0, "")
    assert contents(made.root) == before
    assert run("aof", "verify", copy).code == 0
    with tidelog.open(copy) as db:
        assert db.info()["next_lsn"] == last_lsn + 1
        db.xadd("orders", {"item": "rice"})
    assert run("aof", "verify", copy).code == 0


def test_output(run: Run, made: Made) -> None:
    damaged_middle(made)
    expect("repair.txt", run("repair", made.root).out, made.root)


def test_the_folder_that_an_error_names_will_do(run: Run, made: Made) -> None:
    damaged_middle(made)
    assert run("repair", made.root / "aof") == run("repair", made.root)


def test_a_torn_tail_is_nothing_to_repair(run: Run, made: Made, tmp_path: Path) -> None:
    made.cut(made.offsets[-1] + 20)
    done = run("repair", made.root, "--to", tmp_path / "copy")
    assert (done.code, "nothing to repair" in done.out) == (0, True)
    assert not (tmp_path / "copy").exists()


def test_a_checkpoint_that_is_garbage_beside_a_whole_log(
    run: Run, made: Made, tmp_path: Path
) -> None:
    (made.root / "checkpoint").mkdir()
    (made.root / "checkpoint/data.mdb").write_bytes(b"garbage " * 1024)
    shown = run("repair", made.root)
    assert shown.code == exits.DAMAGED
    assert "checkpoint/data.mdb" in shown.out and "Can be kept: LSN 1 to 13, " in shown.out
    copy = tmp_path / "copy"
    assert run("repair", made.root, "--to", copy).code == 0
    assert run("digest", copy).out == run("digest", orders(tmp_path / "same").root).out


def test_nothing_can_be_kept(run: Run, made: Made, tmp_path: Path) -> None:
    made.path(0).unlink()
    done = run("repair", made.root, "--to", tmp_path / "copy")
    assert (done.code, "can be kept" in done.out) == (exits.DAMAGED, True)
    assert not (tmp_path / "copy").exists()


def test_never_into_a_directory_that_holds_something(run: Run, made: Made) -> None:
    damaged_middle(made)
    before = contents(made.root)
    done = run("repair", made.root, "--to", made.root)
    assert (done.code, "is not empty" in done.err) == (exits.USAGE, True)
    assert contents(made.root) == before


def test_damage_that_the_checkpoint_holds_loses_history_only(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part before the damage would be less than the store has: the copy is made over the checkpoint."""
    monkeypatch.chdir(tmp_path)
    with tidelog.open("db") as db:
        for n in range(5):
            db.xadd("orders", {"n": n})
        db.checkpoint()
        db.xadd("orders", {"n": 5})
    segment = Path("db/aof/00000000000000000001.aof")
    data = bytearray(segment.read_bytes())
    data[300] ^= 1
    segment.write_bytes(data)

    done = run("repair", "db", "--to", "copy")
    assert (done.code, done.err) == (0, "")
    assert "Can be kept: LSN 1 to 7, " in done.out and "No state is lost." in done.out
    assert "History is lost: LSN 1 to 7 leave the log, the state has them." in done.out
    assert run("verify", "copy").code == 0
    with tidelog.open("copy") as db:
        assert db.xlen("orders") == 6


def test_a_damaged_checkpoint_does_not_stand_for_the_log(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with tidelog.open("db") as db:
        for n in range(5):
            db.xadd("orders", {"n": n})
        db.checkpoint()
    for name, where in ("aof/00000000000000000001.aof", 300), ("checkpoint/data.mdb", b"orders"):
        data = bytearray(Path("db", name).read_bytes())
        data[where if isinstance(where, int) else data.find(where)] ^= 1
        Path("db", name).write_bytes(data)
    done = run("repair", "db", "--to", "copy")
    assert (done.code, done.err) == (0, "")
    assert "Can be kept: LSN 1 to 3," in done.out
