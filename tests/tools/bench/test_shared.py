"""The bench of a shared queue: its processes do the work that the figures claim."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.owners import ended_owner

import tidelog
from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.processes.sharing import Peer
from tidelog.tools.bench.subjects import shared


@pytest.mark.slow
@pytest.mark.parametrize("system", ["tidelog", "huey", "litequeue"])
def test_every_job_that_was_put_is_there_or_done(tmp_path: Path, system: str) -> None:
    root = tmp_path / "store"
    root.mkdir()
    with ended_owner(root):
        with (
            Peer(system, "put", str(root), "everysec", 0.3) as putter,
            Peer(system, "take", str(root), "everysec", 0.3) as worker,
        ):
            putter.go()
            worker.go()
            put, done = putter.answer(), worker.answer()
        assert put >= done > 0
        if system == "tidelog":
            with tidelog.queue(root, "jobs", shared=True) as queue:
                assert len(queue) == put - done


@pytest.mark.slow
@pytest.mark.parametrize("system", shared.ON_REDIS)
def test_every_job_on_redis_was_put(tmp_path: Path, system: str) -> None:
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as bench:
        server = bench.redis_server("everysec")
        server.client.flushall()
        with (
            Peer(system, "put", str(server.port), "everysec", 0.3) as putter,
            Peer(system, "take", str(server.port), "everysec", 0.3) as worker,
        ):
            putter.go()
            worker.go()
            assert putter.answer() >= worker.answer() > 0


@pytest.mark.slow
def test_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SYSTEMS", ("tidelog",))
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as bench:
        figures = list(shared._working(bench, "everysec")) + list(shared._connecting(bench))
    assert len(figures) == 4 and all(figure.measured > 0 for figure in figures)


def test_a_put_is_compared_with_the_fastest_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {"tidelog": 30, "huey": 10, "litequeue": 20, "rq": 5, "redis-py": 40}
    monkeypatch.setattr(
        shared, "_run", lambda bench, system, roles, fsync: [rates[system], 0, 1, 0]
    )
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as bench:
        put, bare, taken, _ = shared._working(bench, "everysec")
    assert (put.met, put.target[0].of) == (False, "litequeue")
    assert (bare.met, bare.target[0].of) == (True, "redis-py")
    assert set(taken.baselines) == {"huey", "litequeue", "rq"} and not taken.target
