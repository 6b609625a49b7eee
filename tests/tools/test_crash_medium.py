"""The directory of `--dir`: its mount is found, its syncs are timed, and nothing is left in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.conftest import Run

from tidelog.tools import exits
from tidelog.tools.crash.medium import mount_of, sync_costs, words_of

MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:22 / /data rw,noatime shared:2 - xfs /dev/vdb rw
24 22 0:23 / /my\\040disk ro - tmpfs none rw
25 22 0:24 / /data rw,nosuid - btrfs /dev/vdc rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind", "source"),
    [
        ("/srv/ann", "ext4", "/dev/vda1"),
        ("/data/x", "btrfs", "/dev/vdc"),  # mounted over the earlier one
        ("/database", "ext4", "/dev/vda1"),
        ("/my disk/x", "tmpfs", "none"),
    ],
)
def test_the_mount_of_a_path(path: str, kind: str, source: str) -> None:
    found = mount_of(Path(path), MOUNTS)
    assert found is not None
    assert (found.kind, found.source) == (kind, source)
    assert mount_of(Path(path), "") is None


def test_syncs_are_timed_and_nothing_is_left(tmp_path: Path) -> None:
    assert min(sync_costs(tmp_path)) > 0
    assert "fdatasync" in words_of(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_kills_in_a_directory_with_other_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    args = (
        "--policy",
        "no",
        "--jobs",
        "1",
        "--seed",
        "1",
        "--minutes",
        "0",
        "--dir",
        str(tmp_path),
    )
    done = run("crash", "--layers", "kill", *args)
    assert (done.code, done.err) == (exits.OK, "")
    assert f"directory {tmp_path}: " in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_directory_for_layers_that_use_none(run: Run, tmp_path: Path) -> None:
    done = run("crash", "--layers", "store", "--dir", str(tmp_path))
    assert done.code == exits.USAGE
    assert "--dir is for the layers rot, errors, calls, kill" in done.err
