"""The scratch directory of crashes: several runs clear those of killed ones, and none takes that of a living one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.testing.scratch import LOCK, PREFIX, scratch


def test_a_run_that_ends_keeps_its_directory_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run that begins meanwhile does not remove it, too."""
    told: list[str] = []
    remove_tree = recipe.remove_tree

    def remove(disk: Disk, path: Path) -> None:
        monkeypatch.setattr(recipe, "remove_tree", remove_tree)
        with scratch(told.append, tmp_path):
            assert (path / LOCK).exists()
        remove_tree(disk, path)

    with scratch(told.append, tmp_path):
        monkeypatch.setattr(recipe, "remove_tree", remove)
    assert told == [] and [*tmp_path.iterdir()] == []


def test_the_directory_of_a_killed_run_is_removed_and_told(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / LOCK).touch()
    told: list[str] = []
    with scratch(told.append, tmp_path):
        assert not left.exists()
    assert told == [f"removed {left}, which a killed run left"]
