"""The side of the bench about delayed jobs: its rows are there, and every job is worked off."""

from pathlib import Path

import pytest

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.subjects import later as subject


def test_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOBS", "SINGLY", "DURABLY", "LIMITED"):
        monkeypatch.setattr(subject, name, 500)
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as bench:
        rows = list(subject.rows(bench))
    assert [row.name for row in rows] == [
        "delayed jobs: put_many",
        "delayed jobs: put one",
        "delayed jobs: consume and ack by 100",
        "delayed jobs: consume and ack by 100, scattered",
        "delayed jobs: put one",
        "delayed jobs: memory of a backlog, memory_budget=32 MiB",
        "delayed jobs: open",
        "delayed jobs: first fetch, nothing is due",
        "limits: consume and ack by 100 with concurrency",
        "limits: consume and ack by 100 with rate",
    ]
    assert all(row.measured > 0 and len(row.baselines) == 1 and row.target for row in rows)
