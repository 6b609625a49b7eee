"""The scratch directory of crashes: several runs clear those of killed ones, and none takes that of a living one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.disk.real import RealDisk
from tidelog.testing.scratch import LOCK, PREFIX, scratch


def test_a_run_that_ends_and_removes_its_directory_disturbs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has just taken it for that of a killed run."""
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / LOCK).touch()
    unlink = RealDisk.unlink

    def unlink_after_the_owner(disk: RealDisk, path: Path) -> None:
        monkeypatch.undo()
        path.unlink()
        unlink(disk, path)

    monkeypatch.setattr(RealDisk, "unlink", unlink_after_the_owner)
    told: list[str] = []
    with scratch(told.append, tmp_path) as place:
        assert place.is_dir()
    assert told == []


def test_the_directory_of_a_killed_run_is_removed_and_told(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / LOCK).touch()
    told: list[str] = []
    with scratch(told.append, tmp_path):
        assert not left.exists()
    assert told == [f"removed {left}, which a killed run left"]
