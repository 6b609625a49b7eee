"""`tidelog crash`: the table, a finding that is kept and replayed, Ctrl-C, and what a killed run left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutants.of_crash import MUTANTS
from tests.tools.conftest import Run

from tidelog.disk.real import RealDisk
from tidelog.testing import scratch as scratches
from tidelog.tools import exits
from tidelog.tools.crash.site import sitecustomize

SITE = Path(sitecustomize.__file__).parent


def crash(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog", "crash", *map(str, args)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
def test_a_planted_fault_is_found_kept_and_replayed(tmp_path: Path) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == "crash/log-no-fdatasync"]
    change = {"file": mutant.file, "anchor": mutant.anchor, "replacement": mutant.replacement}
    planted = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH")))),
        sitecustomize.CHANGE: json.dumps(change),
    }
    args = ("--layers", "store", "--policy", "always", "--jobs", "1", "--seed", "2", "--json")
    done = crash(*args, "--keep", tmp_path / "kept", **planted)
    assert done.returncode == exits.FAILED, done.stderr
    said = json.loads(done.stdout)
    (kept,) = said["findings"]
    counts = said["layers"]["store"]
    assert counts["there"] >= counts["tried"] >= counts["distinct"] > 0
    assert counts["lost"] + counts["refused"] + counts["wrong"] == 1

    again = crash("replay", kept)
    # The life was recorded with the fault in it, so a sound engine cannot mend it.
    assert again.returncode == exits.FAILED, again.stderr
    lines = again.stdout.splitlines()
    assert lines[-1].removeprefix("now: ") == lines[0]


def test_nothing_is_found_and_nothing_is_left(tmp_path: Path) -> None:
    done = crash(
        *("--layers", "store,double", "--policy", "no", "--jobs", "1", "--seed", "1"),
        *("--minutes", "0", "--keep", tmp_path / "kept"),
    )
    assert (done.returncode, done.stderr) == (exits.OK, "")
    head, *rows = done.stdout.splitlines()[1:]
    names = "layer states there tried distinct told refused lost wrong died time not run"
    assert head.split() == names.split()
    assert [row.split()[0] for row in rows[:2]] == ["store", "double"]
    assert not (tmp_path / "kept").exists()


def test_ctrl_c_prints_the_table_so_far(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "crash", "--layers", "store", "--minutes", "60", "--jobs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline().startswith("layers store")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == exits.INTERRUPTED, err
    assert err == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("--layers", "L7"),
            "'L7' is not one of all, L0, L1, L2, L2s, L3, log, small, store, checkpoints, double, ",
        ),
        (("--policy", "never"), "'never' is not one of"),
        (("--model", "kind"), "'kind' is not one of 'strict', 'ordered'"),
        (("--minutes", "-1"), "-1"),
        (("replay", "missing"), "missing/finding.json"),
    ],
)
def test_bad_arguments(run: Run, args: tuple[str, ...], words: str) -> None:
    done = run("crash", *args)
    assert done.code != exits.OK
    assert words in done.err


def test_what_a_killed_run_left_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratches, "TMPFS", tmp_path)
    told: list[str] = []
    killed = tmp_path / "tidelog-crash-killed"
    killed.mkdir()
    (killed / scratches.LOCK).touch()
    (killed / "0").mkdir()
    with scratches.scratch(told.append) as first:
        assert told == [f"removed {killed}, which a killed run left"]
        with scratches.scratch(told.append) as second:
            assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name}
    assert list(tmp_path.iterdir()) == []
    assert len(told) == 1
    assert RealDisk().listdir(tmp_path) == []
