"""A machine that can take the power of a file system must do it; another one says why it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.exemptions import must_run, verdict

from tidelog.tools.crash.blocks import BLOCKS
from tidelog.tools.crash.shutdowns import MACHINE, XFS

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
        (ROOT, ("loop-control", "fuse"), {MACHINE, XFS, BLOCKS}),
        (ROOT, ("loop-control",), {MACHINE, XFS}),
        (ROOT, ("fuse",), set()),
        (CONTAINER, ("loop-control", "fuse"), set()),
    ],
)
def test_what_must_run(
    capabilities: str, devices: tuple[str, ...], layers: set[str], tmp_path: Path
) -> None:
    place = machine(tmp_path, capabilities, *devices)
    assert {layer for layer in (MACHINE, XFS, BLOCKS) if must_run(layer, place)} == layers


def test_a_kernel_without_xfs(tmp_path: Path) -> None:
    place = machine(tmp_path, ROOT, "loop-control", known="ext4")
    assert must_run(MACHINE, place) and not must_run(XFS, place)


def test_a_layer_that_should_have_run_is_a_failure(tmp_path: Path) -> None:
    place = machine(tmp_path, ROOT, "loop-control")
    lines, wrong = verdict({MACHINE: "mkfs.ext4 failed", BLOCKS: "no FUSE"}, place)
    assert wrong
    assert lines == [
        "machine: not run, although this machine may mount and has the devices: mkfs.ext4 failed",
        "blocks: not run: no FUSE",
    ]
    assert verdict({BLOCKS: "no FUSE"}, place) == (["blocks: not run: no FUSE"], False)
    assert verdict({}, place) == ([], False)
