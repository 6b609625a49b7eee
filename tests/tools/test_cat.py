"""tidelog cat: entries as text, JSON and CSV, of a store, a snapshot and any moment; strings; bad requests."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tools.conftest import Run
from tests.tools.made import Made

import tidelog
from tidelog.tools import cat, exits


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    with tidelog.open(root / "data") as db:
        for number in range(1, 8):
            db.xadd("orders", {"item": f"tea {number}", "n": str(number)}, id=f"{number}-0")
        db.xadd("orders", {"note": 'she said "a, b"\nand left'}, id="8-0")
        db.xdel("orders", "3-0")
        db.set("session", b"\x00\xffab")
        db.snapshot()
        db.xadd("orders", {"item": "later"}, id="9-0")
    return root / "data"


def ids(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()]


def test_text(run: Run, made: Made) -> None:
    assert run("cat", made.root, "orders").out == (
        '1700000000001-0  item tea n 2\n1700000000002-0  item "\\"green\\" tea" n "\\xff"\n'
    )


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
def test_ranges(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(cat, "BATCH", batch)
    everything = [f"{number}-0" for number in (1, 2, 4, 5, 6, 7, 8, 9)]
    assert ids(run("cat", store, "orders").out) == everything
    assert ids(run("cat", store, "orders", "--reverse").out) == everything[::-1]
    assert ids(run("cat", store, "orders", "--count", 3).out) == everything[:3]
    assert ids(run("cat", store, "orders", "--count", 3, "--reverse").out) == everything[:-4:-1]
    assert ids(run("cat", store, "orders", "--id", "2..5").out) == everything[1:4]
    assert ids(run("cat", store, "orders", "--id", "2..5", "--count", 2, "--reverse").out) == [
        "5-0", "4-0",
    ]  # fmt: skip
    assert ids(run("cat", store, "orders", "--id", "6-0").out) == ["6-0"]
    assert run("cat", store, "orders", "--id", "3-0") == (0, "", "")


def test_json(run: Run, store: Path) -> None:
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in run("cat", store, "orders", "--json").out.splitlines()
    ]
    assert rows[0] == {"id": "1-0", "time_ms": 1, "fields": {"item": "tea 1", "n": "1"}}
    assert rows[-2]["fields"] == {"note": 'she said "a, b"\nand left'}


def test_json_of_entries_that_an_object_cannot_hold(run: Run, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "data") as db:
        db.execute_command("XADD", "odd", "1-0", "a", "1", "a", "2")
        db.execute_command("XADD", "odd", "2-0", b"\xff", "1")
    twice, bytes_ = map(json.loads, run("cat", tmp_path / "data", "odd", "--json").out.splitlines())
    assert twice == {"id": "1-0", "time_ms": 1, "fields": None, "row": ["a", "1", "a", "2"]}
    assert bytes_["row"] == [{"base64": "/w=="}, "1"]
    done = run("cat", tmp_path / "data", "odd", "--csv")
    assert (done.code, done.out) == (
        exits.REFUSED,
        "",
    ) and "the entry 1-0 has a field twice" in done.err
    assert (
        run("cat", tmp_path / "data", "odd", "--csv", "--id", "2-0").out == "id,\udcff\r\n2-0,1\r\n"
    )


def test_csv(run: Run, store: Path) -> None:
    done = run("cat", store, "orders", "--csv")
    head, *rows = csv.reader(io.StringIO(done.out, newline=""))
    assert head == ["id", "item", "n", "note"]
    assert rows[0] == ["1-0", "tea 1", "1", ""]
    assert rows[-2] == ["8-0", "", "", 'she said "a, b"\nand left']
    assert rows[-1] == ["9-0", "later", "", ""]


def test_csv_of_too_many_fields(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cat, "COLUMNS_MAX", 2)
    done = run("cat", store, "orders", "--csv")
    assert (done.code, done.out) == (exits.REFUSED, "") and "--json" in done.err


def test_a_snapshot_and_a_moment(run: Run, store: Path) -> None:
    assert ids(run("cat", store / "snapshots" / "latest", "orders").out)[-1] == "8-0"
    lsn = json.loads(run("digest", store, "--json").out)["lsn"]
    assert ids(run("cat", store, "orders", "--at-lsn", lsn - 1).out)[-1] == "8-0"


def test_strings(run: Run, store: Path) -> None:
    assert run("cat", store, "session").out == '"\\x00\\xffab"\n'
    assert run("cat", store, "session", "--raw").out == "\x00\udcffab"
    assert json.loads(run("cat", store, "session", "--json").out) == {
        "value": {"base64": "AP9hYg=="}, "expires_ms": None,
    }  # fmt: skip
    assert run("cat", store, "session", "--csv").out == "value\r\n\x00\udcffab\r\n"


def test_a_key_that_is_not_there(run: Run, store: Path) -> None:
    done = run("cat", store, "order")
    assert (done.code, done.out) == (exits.NOT_A_STORE, "")
    assert done.err == (
        f"tidelog: there is no key order in database 0 of {store}. Did you mean orders?\n"
    )
    assert "it is in database 0: --db N" in run("cat", store, "orders", "--db", 3).err
    assert run("cat", store, "orders", "--db", 99).code == exits.NOT_A_STORE


# fmt: off
@pytest.mark.parametrize("words", [
    "orders --json --csv", "orders --raw", "session --count 1", "session --reverse", "session --id 1",
    "orders --id x", "orders --count 0", "orders --db -1",
])
# fmt: on
def test_bad_requests(run: Run, store: Path, words: str) -> None:
    done = run("cat", store, *words.split())
    assert (done.code, done.out) == (exits.USAGE, "")


def test_damage_is_one_line(run: Run, made: Made) -> None:
    made.flip(made.offsets[1] + 60)
    made.promise(made.lsn - 1, incarnation=0xB2)
    done = run("cat", made.root, "orders")
    assert (done.code, done.out, done.err.count("\n")) == (exits.DAMAGED, "", 1)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_stream(tmp_path: Path) -> None:
    """50 MB lie in the checkpoint. Its mapped pages do not count, since the system takes them back."""
    with tidelog.open(tmp_path / "data") as db:
        for _ in range(100):
            db.xadd_many("big", [{"f": random.randbytes(250).hex()} for _ in range(1000)])
        db.checkpoint()
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\n"
        "from tidelog.tools import cli\n"
        "own = lambda: int(Path('/proc/self/status').read_text().split('RssAnon:')[1].split()[0])\n"
        f"cli.run(['cat', {str(tmp_path / 'data')!r}, 'big', '--count', '1'])\n"
        "before = own()\n"
        f"code = cli.run(['cat', {str(tmp_path / 'data')!r}, 'big'])\n"
        "print(code, own() - before, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.count("\n") == 100_001
    code, grown_kib = map(int, done.stderr.split())
    assert code == 0 and grown_kib < 25_000
