"""A fixture of several tests of the bench."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def believing(tmp_path: Path) -> str:
    """The PYTHONPATH of processes whose checkpoints trust a commit that failed: each is a new interpreter."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "from tidelog.snapshot.rows.environment import Writing\n"
        "from tidelog.snapshot.errors import CheckpointError\n"
        "commit = Writing.commit\n"
        "def believed(self):\n"
        "    try:\n"
        "        commit(self)\n"
        "    except CheckpointError:\n"
        "        pass\n"
        "Writing.commit = believed\n"
    )
    return str(site)
