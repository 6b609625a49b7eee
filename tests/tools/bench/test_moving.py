"""The subject about dump files: every row is measured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.subjects import moving


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as run:
        yield run


@pytest.mark.slow
def test_every_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "ENTRIES", 10_000)  # a fifth of it, as the run is a quick one
    monkeypatch.setattr(moving, "PENDING", 5_000)
    monkeypatch.setattr(moving, "LARGE", 10_000)
    rows = {row.name: row for row in moving.rows(bench)}
    assert len(rows) == 8
    assert not bench.missing
    assert "redis-server" in rows["import of that file"].baselines
    assert all(row.measured > 0 for row in rows.values())
