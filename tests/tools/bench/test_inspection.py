"""The subject about the tools that read a log: every row is measured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.subjects import inspection


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as run:
        yield run


@pytest.mark.slow
def test_every_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (
        ("ENTRIES", 10_000),  # a fifth of these, as the run is a quick one
        ("RECORDS", 10_000),
        ("SEGMENTS", 20),
        ("MANY_RECORDS", 20_000),
        ("MANY_KEYS", 2_000),
        ("STREAMS", 100),
        ("REVERSED_MIB", 5),
        ("RUNS", 1),
        ("QUICK_WATCHED_S", 0.5),
    ):
        monkeypatch.setattr(inspection, name, count)
    rows = {row.name: row for row in inspection.rows(bench)}
    assert len(rows) == 23
    assert not bench.missing
    assert "redis-check-aof" in rows["aof verify --no-replay, entries"].baselines
    assert "redis-cli --pipe" in rows["aof export, commands"].baselines
    assert all(row.measured > 0 for row in rows.values()), rows


def test_a_command_that_fails_gives_no_figure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with"):
        inspection._spent("aof", "dump", tmp_path / "none")
