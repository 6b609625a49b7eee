"""Exports by the command, without the processes of its own that it starts for them."""

from __future__ import annotations

import pytest
from tests.spark.exports.test_export import in_this_process


@pytest.fixture
def tasks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export with `--master none` runs its tasks here: each process takes half a second to load PyArrow."""
    monkeypatch.setattr("tidelog.spark.exports.run.in_processes", lambda: in_this_process)
