"""tidelog aof ls"""

import json
from pathlib import Path

from tests.tools.conftest import Run, expect
from tests.tools.made import Made

import tidelog
from tidelog.tools import exits


def test_output(run: Run, made: Made) -> None:
    done = run("aof", "ls", made.root)
    assert (done.code, done.err) == (0, "")
    expect("ls.txt", done.out, made.root)


def test_json(run: Run, made: Made) -> None:
    expect("ls.json", run("aof", "ls", made.root, "--json").out, made.root)


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
    done = run("aof", "ls", made.root)
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
