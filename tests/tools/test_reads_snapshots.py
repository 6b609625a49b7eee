"""Every command that reads a store takes a snapshot in its place, and changes nothing in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.test_help import LEAVES

import tidelog

# Words of the command line; S is the snapshot, T a file or directory to write, J the ID of the entry.
# fmt: off
READING = {
    "info":               "S",
    "digest":             "S",
    "verify":             "S",
    "state":              "S",
    "cat":                "S orders",
    "why":                "S orders J",
    "top":                "S --once",
    "diff":               "S S --state",
    "aof ls":             "S",
    "aof dump":           "S",
    "aof stats":          "S",
    "aof export":         "S --resp -o T",
    "queue ls":           "S",
    "queue status":       "S mails D",
    "queue find":         "S mails",
    "queue watch":        "S --looks 1",
    "queue stats":        "S mails",
    "queue peek":         "S mails",
    "queue failures":     "S mails",
    "queue schedule ls":  "S",
    "queue dead ls":      "S mails",
    "queue dead show":    "S mails D",
    "queue dead redrive": "S mails --dry-run",
    "queue dead purge":   "S mails --dry-run",
    "queue purge":        "S mails --dry-run",
    "rdb export":         "S T",
    "export":             "S --to T --master none",
    "snapshot show":      "S",
    "snapshot verify":    "S",
    "snapshot copy":      "S T",
    "snapshot restore":   "S T",
}
OTHERS = {
    "report":          "it reads snapshots through Spark; tests/tools/test_report.py",
    "aof plot":        "it draws the log, and a snapshot has none",
    "aof verify":      "it checks the log, and a snapshot has none",
    "repair":          "it mends stores",
    "replica status":  "a snapshot follows nobody",
    "replica verify":  "a snapshot follows nobody",
    "replica promote": "a snapshot follows nobody",
    "doctor":          "it advises on a store, and on the process that serves it",
    "snapshot create": "it reads the log behind the checkpoint",
    "snapshot ls":     "it lists the snapshots of a store",
    "snapshot prune":  "it deletes snapshots of a store",
    "queue schedule add":    "it writes",
    "queue schedule pause":  "it writes",
    "queue schedule resume": "it writes",
    "queue schedule rm":     "it writes",
    "queue put":       "it writes",
    "queue forget":    "it writes",
    "queue cancel":    "it writes",
    "queue move":      "it writes",
    "queue pause":     "it writes",
    "queue resume":    "it writes",
    "queue rm":        "it writes",
    "import":          "it reads the data of a Redis",
    "serve":           "it writes",
    "config":          "a snapshot is not served",
    "worker":          "it writes",
    "console":         "a snapshot is not served",
    "demo":            "it makes a store of its own",
    "completion":      "it reads no store",
}
# fmt: on


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A snapshot that lies elsewhere than its store, with the IDs of an entry and of a dead job."""
    root = tmp_path_factory.mktemp("snapshot")
    with tidelog.open(root / "data") as db:
        db.xadd("orders", {"item": "tea"}, id="1-0")
        mails = db.queue("mails")
        mails.put("hello")
        job = mails.get()
        assert job is not None and job.fail("no such address")
        (dead,) = mails.dead
        mails.put("again")
        made = db.snapshot()
    path = shutil.move(made.path, root / Path(made.path).name)
    shutil.rmtree(root / "data")
    return Path(path), {"J": "1-0", "D": dead.id}


def test_every_command_is_known() -> None:
    # The crash bench makes stores of its own.
    leaves = {name for name in LEAVES if not name.startswith("crash ")}
    assert {*READING, *OTHERS} == leaves
    assert not READING.keys() & OTHERS.keys()


# Export loads pyarrow.
@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "export")) for name in READING],
)
def test_it_reads_a_snapshot(
    run: Run, snapshot: tuple[Path, dict[str, str]], tmp_path: Path, command: str
) -> None:
    path, ids = snapshot
    before = {each.name: each.read_bytes() for each in path.iterdir()}
    told = {"S": str(path), "T": str(tmp_path / "made"), **ids}
    done = run(*command.split(), *(told.get(word, word) for word in READING[command].split()))
    assert done.code == 0, done.err
    assert {each.name: each.read_bytes() for each in path.iterdir()} == before
