"""Turns: work that is too long for one run is done in shares, and the number of commits says which share a run does."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

SHARES: Final = 5


def share_of(turn: int, stride: int = 1) -> int:
    """The share that is tried in a turn, from 1 on: each of them once in each SHARES turns from a multiple of it on.

    stride   another one than SHARES and its multiples. Two kinds of work with different strides do not always meet with
             the same shares: all pairs come within SHARES * SHARES turns
    """
    return (turn * stride + turn // SHARES * (stride - 1)) % SHARES + 1


def this_turn() -> int:
    """The number of commits up to the one that is checked out.

    In a clone without all of them the number says nothing, so there the name of the commit is taken for a number. 0
    outside a repository, as in a source archive.
    """
    if git("rev-parse", "--is-shallow-repository") == "true":
        return int(git("rev-parse", "HEAD")[:12] or "0", 16)
    return int(git("rev-list", "--count", "HEAD") or "0")


def git(*words: str) -> str:
    """The output of a git command in this repository, stripped; empty if it fails."""
    found = subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return found.stdout.strip() if found.returncode == 0 else ""
