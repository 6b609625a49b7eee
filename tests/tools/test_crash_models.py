"""`tidelog crash --model ordered`: a finding counts if usual file systems can show it, and each is told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.test_crash import SITE, crash

from tidelog.crash.calls import CALLS
from tidelog.crash.explore import Finding
from tidelog.crash.full import FULL
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.mutants import BY_NAME
from tidelog.crash.run import FILES, LAYERS, POWER
from tidelog.tools import exits
from tidelog.tools.crash.command import command, layers_of
from tidelog.tools.crash.cutting import REAL
from tidelog.tools.crash.models import on_ordered
from tidelog.tools.crash.shutdowns import MACHINE
from tidelog.tools.crash.site import sitecustomize


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy", "code", "words"),
    [
        # The log of these systems writes the data of a new file before its name.
        ("recipe/published-unsynced", "no", exits.OK, "not found: all of "),
        (
            "log/no-fdatasync",
            "always",
            exits.FAILED,
            "possible: such a file system may leave this state",
        ),
    ],
)
def test_a_finding_is_told_apart(
    name: str, policy: str, code: int, words: str, tmp_path: Path
) -> None:
    fault = BY_NAME[name]
    change = {"file": fault.file, "anchor": fault.anchor, "replacement": fault.replacement}
    planted = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH")))),
        sitecustomize.CHANGE: json.dumps(change),
    }
    args = ("--layers", fault.layer, "--policy", policy, "--jobs", "1", "--seed", "2")
    done = crash(*args, "--model", "ordered", "--keep", tmp_path / "kept", **planted)
    assert done.returncode == code, done.stderr
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("on an ordered")]
    assert said.startswith(f"on an ordered file system: {words}")
    (kept,) = (tmp_path / "kept").iterdir()
    again = crash("replay", kept, "--model", "ordered", "--json", **planted)
    assert again.returncode == code, again.stderr
    assert json.loads(again.stdout)["found"][-1] == said
    assert crash("replay", kept, "--model", "strict", **planted).returncode == exits.FAILED


@pytest.mark.parametrize(
    ("layer", "power", "words"),
    [
        (KILL, False, "possible: no order of writes is lost in it"),
        (MACHINE, True, "possible: it was found on a file system of the kernel"),
        ("test", True, "not known: the check is not in the finding"),
    ],
)
def test_what_depends_on_no_order(layer: str, power: bool, words: str, tmp_path: Path) -> None:
    finding = Finding(layer, b"", 1, (), power, "lost", "all is gone")
    assert on_ordered(finding, tmp_path / "room") == words


@pytest.mark.parametrize(
    ("names", "layers"),
    [
        ("L0", {*POWER}),
        ("L1", {KILL}),
        ("L2", {ERRORS, CALLS, FULL}),
        ("L2s", {"servers", "replies"}),
        ("L3", {*REAL}),
        ("all", {*LAYERS, *REAL}),
        ("L1,rot,log", {KILL, "rot", "log"}),
    ],
)
def test_names_of_layers(names: str, layers: set[str]) -> None:
    with command.make_context("crash", []) as ctx:
        assert layers_of(ctx, command.params[0], names) == layers
    assert {*POWER, *FILES, FULL, *REAL} == {*LAYERS, *REAL}


def test_the_help_names_them(run: Run) -> None:
    said = " ".join(run("crash", "--help").out.split())
    assert (
        "L1 is kill; L2 is errors calls full; L2s is servers replies; L3 is machine xfs blocks"
        in said
    )
