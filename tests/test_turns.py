"""No share of the long checks stays unrun for long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests import turns
from tests.mutants.__main__ import STRIDE
from tests.turns import SHARES, share_of, this_turn

ALL = {*range(1, SHARES + 1)}


@pytest.mark.parametrize("stride", [1, STRIDE])
def test_every_share_has_its_turn(stride: int) -> None:
    for begin in range(3 * SHARES):
        assert {share_of(begin + n, stride) for n in range(2 * SHARES - 1)} == ALL
        assert [share_of(SHARES * begin + n, stride) for n in range(SHARES)] != [1] * SHARES
        assert {share_of(SHARES * begin + n, stride) for n in range(SHARES)} == ALL


def test_two_kinds_of_work_meet_with_all_shares() -> None:
    pairs = {(share_of(turn), share_of(turn, STRIDE)) for turn in range(SHARES * SHARES)}
    assert len(pairs) == SHARES * SHARES


def test_the_turn_is_the_number_of_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.setattr(turns, "__file__", str(here / "turns.py"))
    assert this_turn() == 0
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run([*git, "init", "-q", here], check=True)
    for count in (1, 2, 3):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=here, check=True)
        assert this_turn() == count
    name = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True)
    shallow = tmp_path / "shallow"
    subprocess.run([*git, "clone", "-q", "--depth", "1", f"file://{here}", shallow], check=True)
    monkeypatch.setattr(turns, "__file__", str(shallow / "turns.py"))
    assert this_turn() == int(name.stdout[:12], 16)
