"""Errors of `tidelog export` reach the terminal as one line, with Spark and without, whatever Java and Python print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.tools.conftest import Run, run

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore
from tidelog.tools import exits

__all__ = ["run"]


def store(root: Path, entries: int = 100) -> Path:
    with tidelog.open(root, fsync="no") as db:
        for at in range(entries):
            db.xadd("orders", {"n": at})
        db.xadd("odd", {"n": b"\xff"})
        db.snapshot()
    return root


def changed(root: Path) -> None:
    with tidelog.open(root, fsync="no") as db:
        db.xadd("orders", {"n": "more"})
        db.snapshot()


@pytest.mark.usefixtures("tasks_in_this_process")
def test_bases_that_cannot_be_continued(run: Run, tmp_path: Path) -> None:
    root, base = store(tmp_path / "store"), tmp_path / "base"
    foreign = store(tmp_path / "foreign")
    assert run("export", root, "--to", base, "--master", "none").code == 0
    early = max((root / "snapshots").glob("0*"))
    changed(root)
    assert run("export", root, "--to", tmp_path / "newer", "--master", "none").code == 0
    restore(RealDisk(), early, tmp_path / "fork", aof=None, until_lsn=int(early.name))
    for _ in range(3):
        changed(tmp_path / "fork")
    half = tmp_path / "half"
    half.mkdir()
    (half / "_plan.json").write_text("{}")
    looks = tmp_path / "looks"
    looks.mkdir()
    (looks / "_manifest.json").write_text((base / "_manifest.json").read_text())
    for snapshot, since, more, told in (
        (foreign, base, (), "and the snapshot is of store"),
        (early, tmp_path / "newer", (), "and the snapshot only through LSN"),
        (tmp_path / "fork", tmp_path / "newer", (), "it is of another history: at LSN"),
        (root, half, (), "begun there and not completed"),
        (root, looks, (), "looks like a complete export, but its file"),
        (root, root, (), "is not an export"),
        (root, base, ("--streams", "orders"), "was made with other filters"),
        (root, base, ("--decode", "utf8"), "was made with other columns"),
        (root, base, ("--format", "csv"), "can only be written as Parquet without partitions"),
    ):
        done = run(
            "export", snapshot, "--to", tmp_path / "to", "--since", since, "--master", "none", *more
        )
        assert (
            done.code in (exits.REFUSED, exits.USAGE, exits.DAMAGED, exits.SYSTEM)
            and done.out == ""
        )
        assert told in done.err and done.err.count("\n") == 1, done.err
        assert done.err.startswith("tidelog: [TIDELOG_")
        assert not (tmp_path / "to").exists()


@pytest.mark.usefixtures("tasks_in_this_process")
def test_files_of_others_are_not_touched(run: Run, tmp_path: Path) -> None:
    root, to = store(tmp_path / "store"), tmp_path / "to"
    to.mkdir()
    (to / "letter.new").write_text("dear")
    done = run("export", root, "--to", to, "--master", "none")
    assert done.code == exits.REFUSED and "is not empty: it contains letter.new" in done.err
    (to / "letter.new").rename(tmp_path / "letter.new")
    bad = run("export", root, "--to", to, "--decode", "utf8", "--master", "none")
    assert bad.code == exits.REFUSED  # it has begun
    (tmp_path / "letter.new").rename(to / "letter.new")
    (to / "notes.txt").write_text("mine")
    done = run(
        "export", root, "--to", to, "--decode", "utf8", "--on-bad-value", "null", "--master", "none"
    )
    assert done.code == exits.REFUSED and "unfinished export of other content" in done.err
    assert (to / "letter.new").read_text() == "dear" and (to / "notes.txt").read_text() == "mine"


class Said(NamedTuple):
    code: int
    out: str
    err: str


def command(*args: object) -> Said:
    """The real command, in a process of its own."""
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\nfrom tidelog.tools import start; start.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)], capture_output=True, text=True
    )
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_the_command_with_a_java_of_its_own(tmp_path: Path) -> None:
    root = store(tmp_path / "store")
    said = command("export", root, "--to", tmp_path / "bad", "--master", "bogus")
    assert said.code == exits.REFUSED and said.out == ""
    assert said.err == (
        "tidelog: [TIDELOG_SPARK] Spark did not start with --master bogus: Master must either be yarn or start with "
        "spark, k8s, or local\n"
    )
    said = command(
        "export", root, "--to", tmp_path / "to", "--decode", "utf8", "--master", "local[2]"
    )
    assert (said.code, said.out) == (exits.REFUSED, "")
    assert said.err.startswith("tidelog: [TIDELOG_BAD_VALUE] ") and said.err.count("\n") == 1
    assert "b'odd' in database 0" in said.err
    said = command("export", root, "--to", tmp_path / "whole", "--master", "local[2]", "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["tables"] == {"entries": 101}
