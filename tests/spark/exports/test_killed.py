"""An export that is killed at any moment and run again is exactly right."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.rounds import rest_slow
from tests.spark.exports.test_export import exported
from tests.spark.histories import Told

import tidelog
from tidelog import testing
from tidelog.spark.exports.seal import read_export, verify

ENTRIES = 20_000
TASKS = 25
SCRIPT = """
import sys
sys.path[:0] = {path!r}
if __name__ == "__main__":
    from tidelog.spark.exports.export import export
    from tidelog.spark.exports.run import in_processes
    since = sys.argv[3] or None
    print("begun", flush=True)
    done = export(sys.argv[1], sys.argv[2], since=since, tables=("entries", "groups"),
                  options={{"targetPartitionBytes": "100000"}}, runner=in_processes(int(sys.argv[4])))
    print("kept", done.kept, done.existed, flush=True)
"""


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two snapshots of a store."""
    root = tmp_path_factory.mktemp("killed")
    db = tidelog.open(root / "store", fsync="no", clock=testing.Clock(), checkpoint_bytes=0, save=())  # fmt: skip
    for name in ("a", "b", "c"):
        db.xgroup_create(name, "workers", id="0", mkstream=True)
        for start in range(0, ENTRIES // 2, 1000):
            db.xadd_many(name, [{"n": at, "text": "x" * 50} for at in range(start, start + 1000)])
    first = db.snapshot().path
    db.xtrim("a", maxlen=ENTRIES // 4, approximate=False)
    db.rename("b", "d")
    for start in range(0, ENTRIES // 2, 1000):
        db.xadd_many("d", [{"n": at, "text": "y" * 50} for at in range(start, start + 1000)])
    second = db.snapshot().path
    db.close()
    return first, second


def checksum(export: Path) -> str:
    """Of all rows, in order."""
    found = read_export(str(export))
    verify(found, *found.seal.files)
    digest = blake2b(digest_size=16)
    for table in sorted(found.seal.tables):
        rows: list[Any] = []
        for file in found.seal.of_table(table):
            rows += pq.read_table(export / file.name, partitioning=None).to_pylist()
        assert len(rows) == found.seal.tables[table]
        digest.update(repr(rows).encode())
    return digest.hexdigest()


def until(child: subprocess.Popen[str], to: Path, tasks: int) -> None:
    """Wait until this number of tasks is recorded, or the process has ended."""
    while child.poll() is None and len(list(to.glob("_task-*.json"))) < tasks:
        time.sleep(0.001)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kills", rest_slow((2, 18, 19, 20, 21, 22), 1))  # the slow ones: 100
def test_killed_and_run_again(tmp_path: Path, snapshots: tuple[Path, Path], kills: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    r = random.Random(seed)
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(path=sys.path))
    options = {"targetPartitionBytes": "100000"}
    tables = ("entries", "groups")
    base = exported(Told(snapshots[0], {}), tmp_path / "base", options=options, tables=tables)
    wanted = {}
    for since in ("", base.path):
        to = tmp_path / f"calm{bool(since)}"
        told = Told(snapshots[1], {})
        done = exported(told, to, since=since or None, options=options, tables=tables)
        wanted[since] = checksum(Path(done.path)), names(Path(done.path))
    killed = resumed = number = 0
    while killed < kills or not resumed:
        number += 1
        to, since = tmp_path / f"to{number}", r.choice(("", base.path))
        while True:
            child = subprocess.Popen(
                [sys.executable, script, snapshots[1], to, since, r.choice("112")],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # Python complains of the killed pool's semaphores
                text=True,
            )
            assert child.stdout is not None and child.stdout.readline() == "begun\n"
            kill = (killed < kills or not resumed) and r.random() < 0.85
            if kill:
                until(child, to, r.randrange(-1, TASKS))
                time.sleep(r.random() ** 3 / 10)  # not only right after a task
            if kill and child.poll() is None:
                child.send_signal(signal.SIGKILL)
                child.communicate()
                killed += 1
                continue
            out, _ = child.communicate()
            if child.returncode == 0:
                resumed += int(out.split()[1]) > 0
                break
        assert checksum(to) == wanted[since][0]
        assert names(to) == wanted[since][1]
    print(killed, "killed", resumed, "went on with files of before")
    assert json.loads((to / "_manifest.json").read_text())["tidelog"] == "export"
