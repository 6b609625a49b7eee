"""The side of the bench about priorities, keys and limits: its rows are there, and every job is worked off."""

from pathlib import Path

import pytest

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.subjects import limits as subject


def test_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOBS", "SINGLY"):
        monkeypatch.setattr(subject, name, 400)
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as bench:
        rows = list(subject.rows(bench))
    steps = ("put one", "consume and ack one", "put_many", "consume and ack by 100")
    sides = ("one priority", "ten priorities")
    named = [f"limits: {step}, {side}" for step in steps for side in sides]
    limits = ("concurrency", "concurrency_per_key without keys", "concurrency_per_key")
    named += [f"limits: consume and ack by 100, {limit}" for limit in limits]
    assert [row.name for row in rows] == named
    assert all(row.measured > 0 and len(row.baselines) == 1 for row in rows)
