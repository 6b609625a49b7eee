"""tidelog diff: where two logs part, and every difference of two states."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run, expect
from tests.tools.made import T0, Made, ids, orders

import tidelog
from tidelog.engine.effects import effect as e
from tidelog.tools import exits


def objects(run: Run, *args: object) -> list[dict[str, Any]]:
    done = run("diff", *args, "--state", "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == (exits.DIFFERS if rows else exits.OK), done.err
    return rows


# --- logs


def parted(place: Path) -> tuple[Made, Made]:
    """Two copies of the store whose outputs are kept; each goes on in a life of its own."""
    one, two = orders(place / "one"), orders(place / "two")
    for made, incarnation, count in ((one, 0xC3, 2), (two, 0xD4, 1)):
        now = T0 + 5000
        made.roll(now, incarnation)
        made.unit(now, (e.EPOCH, 3, incarnation))
        for n in range(count):
            made.unit(now + n, (e.XADD, 0, b"orders", now + n, 0, (b"item", b"milk")))
        at = now + 10
        made.unit(at, (e.DELIVER, 0, b"orders", b"packers", b"ben", ids((now, 0)), at, 1, at))
        made.unit(at, (e.SET, 0, b"k", b"1", -1))
        made.write()
    return one, two


def test_output_of_logs(run: Run, tmp_path: Path) -> None:
    one, two = parted(tmp_path)
    done = run("diff", one.root, two.root)
    assert (done.code, done.err) == (exits.DIFFERS, "")
    expect("diff.txt", done.out, one.root)


def test_json_of_logs(run: Run, tmp_path: Path) -> None:
    one, two = parted(tmp_path)
    expect("diff.json", run("diff", one.root, two.root, "--json").out, one.root)


def test_equal_logs(run: Run, made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.root, tmp_path / "copy")
    done = run("diff", made.root, tmp_path / "copy")
    assert (done.code, done.err) == (0, "")
    assert "common    LSN 1 to 13, 2 lives" in done.out and "equal" in done.out


def test_a_shorter_log(run: Run, made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.root, tmp_path / "copy")
    made.unit(T0 + 6000, (e.XADD, 0, b"orders", T0 + 6000, 0, (b"item", b"milk")))
    made.write()
    done = run("diff", made.root, tmp_path / "copy")
    assert done.code == exits.DIFFERS
    assert "parted    behind LSN 13: B ends there" in done.out
    assert f"A beyond  orders: 1 entries added, {T0 + 6000}-0 to {T0 + 6000}-0" in done.out
    assert "B beyond  nothing" in done.out


def test_the_same_life_with_other_bytes(run: Run, tmp_path: Path) -> None:
    sides = []
    for value in b"1", b"2":
        made = Made(tmp_path / value.decode())
        made.roll(T0)
        made.unit(T0, (e.EPOCH, 1, 0xA1))
        made.unit(T0, (e.SET, 0, b"k", value, -1))
        sides.append(made.write())
    done = run("diff", *sides)
    assert done.code == exits.DIFFERS
    assert "parted    behind LSN 1: the life is the same and the bytes are not" in done.out


def test_logs_of_different_stores(run: Run, made: Made, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "other") as db:
        db.set("k", "1")
    done = run("diff", made.root, tmp_path / "other", "--json")
    told = json.loads(done.out)
    assert (done.code, told["equal"], told["last_lsn"]) == (exits.DIFFERS, False, 0)
    assert told["reason"] == "they are logs of different stores"


def test_a_log_whose_first_segments_were_released(run: Run, tmp_path: Path) -> None:
    """One frame that both have proves that everything before it is the same."""
    root, copy = tmp_path / "db", tmp_path / "copy"
    options: dict[str, Any] = {"save": (), "checkpoint_bytes": 0, "fsync": "no"}
    with tidelog.open(root, segment_bytes=4096, **options) as db:
        for n in range(300):
            db.xadd("s", {"n": n, "fill": "x" * 50})
    shutil.copytree(root, copy)
    with tidelog.open(copy, retain_bytes=0, **options) as db:
        db.checkpoint()
    done = run("diff", root, copy, "--json")
    told = json.loads(done.out)
    assert 1 < told["first_lsn"] <= told["last_lsn"] == 301
    assert (told["a"]["first_lsn"], told["b"]["first_lsn"]) == (1, told["first_lsn"])
    assert [life["first_lsn"] for life in told["b"]["lives"]][0] == 1


def test_damage_is_one_line(run: Run, made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.root, tmp_path / "copy")
    made.flip(220, number=0)
    done = run("diff", made.root, tmp_path / "copy")
    assert (done.code, done.err.count("\n")) == (exits.DAMAGED, 1)


@pytest.mark.parametrize("more", [["--key", "k"], ["--full"]])
def test_options_of_states_need_state(run: Run, made: Made, more: list[str]) -> None:
    assert run("diff", made.root, made.root, *more).code == exits.USAGE
    assert run("diff", f"{made.root}@3", made.root).code == exits.USAGE


# --- states


def test_output_of_states(run: Run, tmp_path: Path) -> None:
    one, two = parted(tmp_path)
    done = run("diff", one.root, two.root, "--state")
    assert (done.code, done.err) == (exits.DIFFERS, "")
    expect("diff-state.txt", done.out, one.root)
    done = run("diff", f"{one.root}@7", f"{two.root}@13", "--state", "--full")
    expect("diff-state-lsn.txt", done.out, one.root)


def test_json_of_states(run: Run, tmp_path: Path) -> None:
    one, two = parted(tmp_path)
    done = run("diff", one.root, two.root, "--state", "--json")
    expect("diff-state.json", done.out, one.root)


def test_one_store_at_one_moment_has_no_difference(run: Run, made: Made) -> None:
    done = run("diff", made.root, f"{made.root}@13", "--state")
    assert (done.code, done.out.splitlines()[-1]) == (0, "no difference")


def test_a_path_with_an_at_sign(run: Run, tmp_path: Path) -> None:
    made = orders(tmp_path / "data@7")
    done = run("diff", made.root, f"{made.root}@13", "--state")
    assert (done.code, done.out.splitlines()[-1]) == (0, "no difference")


def test_keys(run: Run, made: Made) -> None:
    rows = objects(run, f"{made.root}@3", made.root, "--key", "o*")
    assert {row["key"] for row in rows} == {"orders"}


def test_more_than_ten_of_a_kind(run: Run, tmp_path: Path) -> None:
    made = Made(tmp_path / "data")
    made.roll(T0)
    made.unit(T0, (e.XADD_NODE, 0, b"s", 1, 0, (b"n", b"0")))
    for n in range(12):
        made.unit(T0, (e.XADD, 0, b"s", 2 + n, 0, (b"n", b"%d" % n)))
    done = run("diff", f"{made.write()}@1", made.root, "--state")
    assert "  and 2 more: entry\n" in done.out
    done = run("diff", f"{made.root}@1", made.root, "--state", "--full")
    assert done.out.count("only in B") == 12 and " more: " not in done.out


SETID = "XSETID s 2000000000000-0 ENTRIESADDED 50 MAXDELETEDID 7-0"


def changes(db: Any) -> dict[str, tuple[str, Any]]:
    """Changes by name, each with the kind of difference that it makes."""
    return {
        "a new key": ("key", lambda: db.set("new", "1")),
        "a string": ("value", lambda: db.set("n", "2", keepttl=True)),
        "an expiry": ("expires_ms", lambda: db.pexpireat("n", 1 << 43)),
        "a key of another type": ("type", lambda: (db.delete("n"), db.xadd("n", {"a": 1}))),
        "an entry": ("entry", lambda: db.xadd("s", {"n": "new"})),
        "a deletion": ("entry", lambda: db.xdel("s", "5-0")),
        "a counter": ("max_deleted_id", lambda: db.execute_command(*SETID.split())),
        "a group": ("group", lambda: db.xgroup_create("s", "new")),
        "a position": ("group_last_id", lambda: db.xgroup_setid("s", "g", "20-0")),
        "a consumer": ("consumer", lambda: db.xgroup_createconsumer("s", "g", "new")),
        "an acknowledgement": ("pending", lambda: db.xack("s", "g", "1-0")),
        "a claim": ("pending", lambda: db.xclaim("s", "g", "y", 0, ["2-0"])),
        "a release": ("pending", lambda: db.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, "3-0")),
        "a dedup ID": ("dedup", lambda: db.execute_command("XADD", "s", "IDMP", "p", "i", "*", "n", 1)),
        "an option": ("dedup_maxsize", lambda: db.execute_command("XCFGSET", "s", "IDMP-MAXSIZE", 7)),
    }  # fmt: skip


def test_each_kind_of_difference_is_told(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "db"
    told: list[tuple[str, str, int]] = []
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0) as db:
        db.set("n", "1")
        for n in range(1, 31):
            db.xadd("s", {"n": n}, id=f"{n}-0")
        db.xgroup_create("s", "g", id="0")
        db.xreadgroup("g", "x", {"s": ">"}, count=6)
        for name, (kind, change) in changes(db).items():
            begun = int(db.info()["next_lsn"]) - 1
            change()
            told.append((name, kind, begun))
        ends = [begun for _, _, begun in told[1:]] + [int(db.info()["next_lsn"]) - 1]
    for (name, kind, begun), end in zip(told, ends, strict=True):
        rows = objects(run, f"{root}@{begun}", f"{root}@{end}")
        assert kind in {row["difference"] for row in rows}, name
        text = run("diff", f"{root}@{begun}", f"{root}@{end}", "--state", "--full").out
        assert text.splitlines()[-1] == f"{len(rows)} differences", name


def test_no_difference_means_equal_digests(run: Run, tmp_path: Path) -> None:
    """Random moments of a random history: no difference if and only if both have one digest."""
    seed = random.randrange(1 << 32)
    pick = random.Random(seed)
    root = tmp_path / "db"
    digests: dict[int, str] = {}
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0) as db:
        db.xgroup_create("s", "g", id="0", mkstream=True)
        for _ in range(25):
            match pick.randrange(5):
                case 0:
                    db.xadd("s", {"n": pick.randrange(3)})
                case 1:
                    db.xreadgroup("g", pick.choice("xy"), {"s": ">"}, count=1)
                case 2:
                    db.xtrim("s", maxlen=2, approximate=False)
                case 3:
                    db.set("k", pick.choice("12"))
                case _:
                    db.delete("k")
            digests[int(db.info()["next_lsn"]) - 1] = db.digest()
    moments = sorted(digests)
    for _ in range(30):
        a, b = pick.choice(moments), pick.choice(moments)
        rows = objects(run, f"{root}@{a}", f"{root}@{b}")
        assert (not rows) is (digests[a] == digests[b]), (seed, a, b, rows)
