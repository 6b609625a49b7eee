"""Task queues beside each other: one that pip installs is measured, and one that fails is named."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from bench.baselines.task_queues import PEERS
from bench.run import Run
from bench.subjects import peers

HUEY = next(peer for peer in PEERS if peer.server is None)
BROKEN = replace(HUEY, name="broken", module="raise LookupError('told to fail')")


@pytest.mark.slow
def test_a_peer_is_measured_and_one_that_fails_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "CACHE": run.directory / "environments",
        "PEERS": (BROKEN, HUEY),
        "QUICK": (50, 5.0, 5.0, 0.2),
        "IMPORTS": 1,
    }.items():
        monkeypatch.setattr(peers, name, value)
    rows = list(islice(peers.rows(run), len(peers.FIGURES)))
    assert [row.name for row in rows] == [f"synced: {figure}" for figure in peers.FIGURES]
    for row in rows:
        assert list(row.baselines) == ["huey, SQLite (fsync=True)"]
        assert min(row.measured, *row.baselines.values()) > 0
        assert "huey, SQLite: a job is forgotten" in row.note
    assert list(run.missing) == ["broken (fsync=True)"]
    assert "LookupError: told to fail" in run.missing["broken (fsync=True)"]
    assert not list(run.directory.glob("*peer"))


def test_every_peer_says_its_durability_and_what_it_needs() -> None:
    for peer in PEERS:
        assert peer.requirements and peer.fsync[0] != peer.fsync[1]
        used = "$port" in peer.module
        assert used == (peer.server is not None) and used != ("$place" in peer.module)
