"""`tidelog export`: whole, incremental, interrupted; its errors are one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.tools.conftest import Run

import tidelog
from tidelog.tools import exits


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        for at in range(1, 101):
            db.xadd("orders", {"n": at}, id=f"{at}-0")
        db.xadd("mails", {"to": "ann"}, id="7-0")
        db.snapshot()
    return tmp_path / "store"


def test_whole_then_since(run: Run, store: Path, tmp_path: Path) -> None:
    monday, tuesday = tmp_path / "monday", tmp_path / "tuesday"
    tables = "--table", "entries", "--table", "streams"
    done = run("export", store, "--to", monday, "--master", "none", *tables)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{monday}: 101 rows of entries, 2 rows of streams, through LSN ")
    with tidelog.open(store, fsync="no") as db:
        db.xtrim("orders", maxlen=50, approximate=False)
        db.xadd("orders", {"n": 101}, id="101-0")
        db.snapshot()
    done = run("export", store, "--to", tuesday, "--since", monday, "--master", "none", "--json")
    facts = json.loads(done.out)
    assert facts["tables"] == {"entries": 1, "removed": 50, "keys": 0}
    assert (facts["existed"], facts["path"]) == (False, str(tuesday))
    again = run("export", store, "--to", tuesday, "--since", monday, "--master", "none", "--json")
    assert json.loads(again.out) == facts | {"existed": True}


def test_filters_and_folders(run: Run, store: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    done = run(
        *("export", store, "--to", to, "--master", "none", "--streams", "orders"),
        *("--start-id", "11", "--columns", "id,stream,fields", "--decode", "utf8"),
        *("--partition-by", "stream,date"),
    )
    assert done.code == 0, done.err
    (file,) = to.glob("entries/*/*/*.parquet")
    assert file.parent.name == "date=1970-01-01"
    assert file.parent.parent.name == f"stream_key=k-{b'orders'.hex()}"
    found = pq.read_table(file, partitioning=None).to_pylist()
    assert len(found) == 90 and found[0]["fields"] == [{"name": "n", "value": "11"}]


def test_errors_are_one_line(run: Run, store: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("dear")
    nothing = tmp_path / "nothing"
    for args, code, text in (
        ((nothing, "--to", to), exits.NOT_A_STORE, "nothing is neither a store nor a snapshot"),
        ((store, "--to", tmp_path / "full"), exits.REFUSED, "is not empty: it contains letter.txt"),
        ((store, "--to", to, "--since", nothing), exits.REFUSED, "is not an export"),
        ((store, "--to", to, "--columns", "id,colour"), exits.USAGE, "has no column colour"),
        ((store, "--to", to, "--start-id", "x"), exits.USAGE, "an ID as ms or ms-seq"),
        (
            (store, "--to", "nosuch://bucket/x"),
            exits.REFUSED,
            "nosuch://bucket/x: the URL cannot be used",
        ),
        ((store, "--to", store / "STORE" / "to"), exits.NOT_A_STORE, "STORE/to"),
    ):
        done = run("export", *args, "--master", "none")
        assert (done.code, done.out) == (code, ""), done.err
        assert text in done.err and done.err.count("\n") == 1, done.err
        assert done.err.startswith("tidelog: ")
    done = run("export", store, "--to", to, "--table", "orders", "--master", "none")
    assert done.code == exits.USAGE and not to.exists()


def test_delta(run: Run, store: Path, tmp_path: Path) -> None:
    done = run("export", store, "--to", f"delta:{tmp_path / 'lake'}", "--master", "none")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{tmp_path / 'lake'}: 101 rows, committed as version 0\n"
    again = run("export", store, "--to", f"delta:{tmp_path / 'lake'}", "--master", "none")
    assert again.out == f"{done.out[:-1]} (exported before; nothing was written)\n"
