"""A machine that can take the power of a file system must do it; another one says why it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.exemptions import NO_MOUNTS, SMALL_DISK, demanded, exempt, must_run, verdict
from tests.rounds import rest_slow

from tidelog.crash.calls import CALLS
from tidelog.tools.crash.blocks import BLOCKS, XFS_BLOCKS
from tidelog.tools.crash.shutdowns import MACHINE, XFS

NEEDED = (MACHINE, XFS, BLOCKS, XFS_BLOCKS)
ROOT = "000001ffffffffff"
CONTAINER = "00000000a80425fb"  # the capabilities that a container usually gives its root


def machine(place: Path, capabilities: str, *devices: str, known: str = "ext4 xfs") -> Path:
    """The part of a machine that is looked at."""
    status = place / "proc" / "self" / "status"
    status.parent.mkdir(parents=True)
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities}\nThreads:\t1\n")
    (place / "proc" / "filesystems").write_text("".join(f"\t{name}\n" for name in known.split()))
    (place / "dev").mkdir()
    for device in devices:
        (place / "dev" / device).write_bytes(b"")
    return place


@pytest.mark.parametrize(
    ("capabilities", "devices", "layers"),
    [
        (ROOT, ("loop-control", "fuse"), {MACHINE, XFS, BLOCKS, XFS_BLOCKS}),
        (ROOT, ("loop-control",), {MACHINE, XFS}),
        (ROOT, ("fuse",), set()),
        (CONTAINER, ("loop-control", "fuse"), set()),
    ],
)
def test_what_must_run(
    capabilities: str, devices: tuple[str, ...], layers: set[str], tmp_path: Path
) -> None:
    place = machine(tmp_path, capabilities, *devices)
    assert {layer for layer in NEEDED if must_run(layer, place)} == layers


def test_calls_must_fail_where_a_compiler_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert must_run(CALLS)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not must_run(CALLS)


def test_a_kernel_without_xfs(tmp_path: Path) -> None:
    place = machine(tmp_path, ROOT, "loop-control", "fuse", known="ext4")
    assert {layer for layer in NEEDED if must_run(layer, place)} == {MACHINE, BLOCKS}


def test_a_layer_that_should_have_run_is_a_failure(tmp_path: Path) -> None:
    place = machine(tmp_path, ROOT, "loop-control")
    lines, wrong = verdict({MACHINE: "mkfs.ext4 failed", BLOCKS: "no FUSE"}, place, {})
    assert wrong
    assert lines == [
        f"machine: not run, although this machine must: mkfs.ext4 failed ({NO_MOUNTS}=1 says that a CI cannot)",
        "blocks: not run: no FUSE",
    ]
    assert verdict({BLOCKS: "no FUSE"}, place, {}) == (["blocks: not run: no FUSE"], False)
    assert verdict({}, place, {"CI": "true"}) == ([], False)


@pytest.mark.parametrize(
    ("capabilities", "environ", "wanted"),
    [
        (ROOT, {}, True),
        (ROOT, {NO_MOUNTS: "1"}, True),
        (CONTAINER, {}, False),
        (CONTAINER, {"CI": "false"}, False),
        (CONTAINER, {"CI": "true"}, True),
        (CONTAINER, {"CI": "true", NO_MOUNTS: "1"}, False),
    ],
)
@pytest.mark.parametrize("layer", [MACHINE, SMALL_DISK])
def test_a_test_is_skipped_only_where_it_may_be(
    layer: str, capabilities: str, environ: dict[str, str], wanted: bool, tmp_path: Path
) -> None:
    place = machine(tmp_path, capabilities, "loop-control")
    assert demanded(layer, place, environ) == wanted
    ends = pytest.fail.Exception if wanted else pytest.skip.Exception
    with pytest.raises(ends, match=f"{layer}: not run.*: no loop device"):
        exempt(layer, "no loop device", place, environ)


@pytest.mark.parametrize("workers", rest_slow([(), ("-n", "1")], 1))
def test_an_exemption_is_printed(workers: tuple[str, ...], tmp_path: Path) -> None:
    """As the tests that mount something end where nothing can be mounted, under the settings of all tests."""
    test = tmp_path / "test_mounts.py"
    test.write_text(
        "from pathlib import Path\n"
        "from tests.crash import exemptions\n"
        "def test_mounts():\n"
        f"    exemptions.exempt('machine', 'no loop device', Path({str(tmp_path)!r}), {{}})\n"
    )
    machine(tmp_path, CONTAINER)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *workers, str(test)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert "\nexempt: machine: not run: no loop device (1 tests)\n" in done.stdout, done.stdout
    assert done.returncode == 0
