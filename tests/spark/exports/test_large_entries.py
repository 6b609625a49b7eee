"""Entries of 100 MB: a task's memory is at most four times the largest entry above what it had before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tidelog

NBYTES = 100_000_000
SLACK = 30_000_000
SCRIPT = """
import json, sys
sys.path[:0] = {path!r}
from tidelog.spark.exports.export import export
from tidelog.spark.exports.task import run

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

def run_all(tasks, advance):
    found, more = [], []
    for task in tasks:
        open("/proc/self/clear_refs", "w").write("5")  # the peak begins again
        before = peak()
        found.append(run(task))
        more.append(peak() - before)
    print(json.dumps(max(more)))
    return found

export(sys.argv[1], sys.argv[2], format=sys.argv[3], runner=run_all)
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with tidelog.open(tmp_path_factory.mktemp("large") / "store", fsync="no") as db:
        value = os.urandom(NBYTES)
        for name in ("a", "big", "big", "c"):
            db.xadd(name, {"f": value if name == "big" else "small"})
        return db.snapshot().path


@pytest.mark.slow
@pytest.mark.parametrize(("form", "times"), [("parquet", 4), ("orc", 4), ("json", 6), ("csv", 6)])
def test_memory(snapshot: Path, tmp_path: Path, form: str, times: int) -> None:
    script = SCRIPT.format(path=sys.path)
    command = [sys.executable, "-c", script, str(snapshot), str(tmp_path / "to"), form]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    more = json.loads(done.stdout)
    print(form, more / NBYTES)
    assert more < times * NBYTES + SLACK
    if form == "parquet":
        files = (tmp_path / "to/entries").iterdir()
        sizes = [
            len(v)
            for file in files
            for row in pq.read_table(file)["fields"].to_pylist()
            for v in row[0].values()
        ]
        assert sorted(sizes)[-2:] == [NBYTES, NBYTES]
