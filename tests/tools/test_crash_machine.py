"""`tidelog crash machine`: real power cuts where a file system can be mounted, and the reason where not."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.exemptions import exempt
from tests.tools.conftest import Run

from tidelog.crash.explore import Finding, Report
from tidelog.crash.forked import Forked
from tidelog.crash.killed import Effort, kill
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Fault, Kind
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import unpack
from tidelog.disk.real import RealFile
from tidelog.tools import exits
from tidelog.tools.crash import blocks, cutting, shutdowns
from tidelog.tools.crash.blocks import BLOCKS, RECORDED, Recorded, cut_blocks
from tidelog.tools.crash.cutting import REAL
from tidelog.tools.crash.fuse import Event, Flushed, Noted, Written
from tidelog.tools.crash.shutdowns import KINDS, MACHINE, CannotMount, Cuts, file_system


def test_a_user_who_is_not_root_gets_the_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = run("crash", "machine")
    assert done.code == exits.SYSTEM
    assert done.err == ""
    rows = done.out.splitlines()[2:6]
    assert [row.split()[0] for row in rows] == [*REAL]
    assert all(row.endswith("-  only root may mount a file system") for row in rows)
    done = run("crash", "machine", "--json")
    assert done.code == exits.SYSTEM
    layers = json.loads(done.out)["layers"]
    assert {layer: counts["not_run"] for layer, counts in layers.items()} == dict.fromkeys(
        REAL, "only root may mount a file system"
    )


def test_a_plain_run_names_the_layers_that_it_cannot_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = run("crash", "--layers", "log,L3", "--jobs", "1", "--minutes", "0.01", "--seed", "1")
    assert (done.code, done.err) == (exits.OK, "")
    log, *rows = done.out.splitlines()[2:7]
    assert log.startswith("log ")
    assert [row.split()[0] for row in rows] == [*REAL]
    assert all(row.endswith("-  only root may mount a file system") for row in rows)
    assert run("crash", "--layers", "L3").code == exits.SYSTEM


def test_a_layer_that_cannot_run_does_not_hide_the_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(layer: str, room: Path, *more: object) -> Callable[[str, str], Report]:
        if layer in RECORDED:
            raise CannotMount("no FUSE")
        done = Report()
        done.of(layer).tried = done.of(layer).distinct = 3
        return lambda policy, seed: done

    monkeypatch.setattr(cutting, "_cut", refused)
    done = run("crash", "machine", "--minutes", "0", "--json")
    assert done.code == exits.OK
    layers = json.loads(done.out)["layers"]
    assert [layers[layer]["not_run"] for layer in REAL] == [None, None, "no FUSE", "no FUSE"]
    assert [layers[layer]["tried"] for layer in REAL] == [3, 3, 0, 0]


def test_a_missing_command_is_the_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    done = run("crash", "machine")
    assert done.code == exits.SYSTEM
    reasons = [row.rpartition("-  ")[2] for row in done.out.splitlines()[2:6]]
    assert reasons == [
        "the command mkfs.ext4 is missing",
        "the command mkfs.xfs is missing",
        "the command mkfs.ext4 is missing",
        "the command mkfs.xfs is missing",
    ]


def here(work: Callable[[Path], object], scratch: Path, layer: str = MACHINE) -> object:
    """The answer of a process whose mounts end with it. Ends the test where nothing can be mounted."""
    forked: Forked[Path, object] = Forked(work)
    try:
        return forked.ask(scratch)
    except CannotMount as error:
        exempt(layer, str(error))
    finally:
        forked.close()


@pytest.mark.slow
def test_power_cuts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "crash", "machine", "--minutes", "0", "--seed", "1", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode in (exits.OK, exits.SYSTEM), done.stderr
    for layer in KINDS:
        counts = json.loads(done.stdout)["layers"][layer]
        if not counts["not_run"]:
            assert counts["there"] > counts["tried"] == 10 >= counts["distinct"] > 7
    for layer in RECORDED:
        counts = json.loads(done.stdout)["layers"][layer]
        if not counts["not_run"]:
            assert counts["there"] > counts["tried"] == counts["distinct"] == 10
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    for layer, counts in json.loads(done.stdout)["layers"].items():
        if counts["not_run"]:
            exempt(layer, counts["not_run"])


@pytest.mark.slow
def test_a_log_without_fdatasync_is_found_and_tried_again(tmp_path: Path) -> None:
    steps: list[Step] = [["set", 0, 600]] * 3

    def unsynced(scratch: Path) -> Finding:
        with pytest.MonkeyPatch.context() as patch, file_system(scratch) as made:
            patch.setattr(RealFile, "fdatasync", lambda self: None)
            scene = Scene("always", (steps, steps), "1")
            (finding,) = kill(
                scene,
                made.place,
                random.Random(1),
                Effort(100, again=0),
                runs_of=lambda scene, _: Cuts(scene, made),
                layer=MACHINE,
            ).findings
        return finding

    finding = here(unsynced, tmp_path)
    assert isinstance(finding, Finding)
    assert (finding.layer, finding.kind) == (MACHINE, Kind.LOST.value)
    trace = unpack(finding.trace, "x")
    assert here(lambda scratch: shutdowns.try_again(scratch, trace, finding), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("layer", RECORDED)
def test_blocks_flushes_and_promises_are_noted_in_one_order(layer: str, tmp_path: Path) -> None:
    steps: list[Step] = [["set", 0, 600]]

    def recorded(scratch: Path) -> list[Event]:
        life = Recorded(Scene("always", (steps, steps), "1"), scratch, RECORDED[layer])
        assert len(life.units) == 2
        assert list(scratch.iterdir()) == []
        return life.events

    events = here(recorded, tmp_path, layer)
    assert isinstance(events, list)
    promises = [n for n, event in enumerate(events) if isinstance(event, Noted)]
    issued = next(n for n in promises if events[n].event == (0, 0, 1))
    kept = next(n for n in promises if events[n].event == (1, 1, 1))
    # Between the call and its return its blocks were written, and then flushed.
    kinds = [type(event) for event in events[issued:kept]]
    assert Written in kinds
    assert Flushed in kinds[kinds.index(Written) :]


@pytest.mark.slow
@pytest.mark.parametrize("layer", RECORDED)
def test_a_store_without_fdatasync_is_found_on_its_blocks_and_tried_again(
    layer: str, tmp_path: Path
) -> None:
    def unsynced(scratch: Path) -> list[Finding]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RealFile, "fdatasync", lambda self: None)
            return cut_blocks(layer, "always", "1", scratch, 60).findings

    found = here(unsynced, tmp_path, layer)
    assert isinstance(found, list)
    (finding,) = found
    assert finding.layer == layer
    assert finding.kind in (Kind.LOST.value, Kind.REFUSED.value)
    trace = unpack(finding.trace, "x")
    again = here(lambda scratch: blocks.try_again(scratch, trace, layer), tmp_path, layer)
    assert isinstance(again, Fault)
    assert again.kind.value == finding.kind
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_disk_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def refused(scratch: Path) -> str:
        # It raises CannotMount where nothing can be mounted.
        Recorded(Scene("always", ([], []), "1"), scratch / "first", RECORDED[BLOCKS])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shutdowns, "COMMANDS", ())
            small = RECORDED[BLOCKS]._replace(nbytes=4096)
            with pytest.raises(CannotMount, match="mkfs.ext4 failed") as caught:
                Recorded(Scene("always", ([], []), "1"), scratch / "second", small)
        return str(caught.value)

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    assert here(refused, tmp_path, BLOCKS)
    assert [each for name in ("first", "second") for each in (tmp_path / name).iterdir()] == []
