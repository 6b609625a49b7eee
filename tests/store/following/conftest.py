"""A leader, and an empty follower of it, in fresh directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.following.leader import follower

import tidelog


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[tidelog.Store]:
    with tidelog.open(tmp_path / "leader", fsync="no", segment_bytes=16384) as db:
        yield db


@pytest.fixture
def copy(tmp_path: Path, leader: tidelog.Store) -> Iterator[tidelog.Store]:
    with follower(tmp_path / "copy", leader, segment_bytes=8192) as db:
        yield db
