"""Every subject measures its rows. A cheap one always, Spark in `make test-soak`, the others in `make test-slow`."""

from __future__ import annotations

from typing import Any

import pytest
from bench import subjects
from bench.race import Value
from bench.run import QUEUES, Run
from bench.servers import Load
from bench.subjects import peers, queue, replication, server, shared, spark, startup

QUICK = ("xadd",)
CHEAP = (*QUICK, "startup")
DEAR = ("spark",)
SUBJECTS = [
    name
    if name in QUICK
    else pytest.param(name, marks=pytest.mark.soak if name in DEAR else pytest.mark.slow)
    for name in subjects.SUBJECTS
]
# The least that each module can do.
ONE_LOAD = ((Load(50, pipeline=16), 0.5),)
SMALL: list[tuple[Any, dict[str, Any]]] = [
    (queue, {"FILLED": 10_000, "QUEUES": {"sqlite3": QUEUES["sqlite3"]}}),
    # the others: test_peers.py
    (peers, {"PEERS": (), "QUICK": (50, 5.0, 5.0, 0.2), "IMPORTS": 1}),
    (
        replication,
        {"QUICK_LOAD_S": 0.1, "QUICK_LOAD_ROUNDS": 1, "QUICK_SECONDS": 0.2, "LOADS": ONE_LOAD}
        | {"QUICK_RUN_S": 0.8, "QUICK_RUNS": 1, "QUICK_HANDOVERS": 1},
    ),
    (
        server,
        {"RATES": (1_000,), "TRIAL_S": 0.8, "QUICK_RUN_S": 0.8, "QUICK_RUNS": 1}
        | {"SLICE_TIMES": 1, "LOADS": {"everysec": ONE_LOAD}},
    ),
    (shared, {"CONNECTS": 2}),
    (spark, {"QUICK_LATE": 3}),
    (startup, {"TIMES": 2}),
]


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_row_is_measured(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "scaled", lambda self, count: max(count // 200, 1_000))
    for module, values in SMALL:
        for constant, value in values.items():
            monkeypatch.setattr(module, constant, value)
    rows = list(subjects.rows(name, run))
    assert len({row.name for row in rows}) == len(rows) >= 2
    for row in rows:
        assert row.measured > 0 or row.unit == "B", row
        assert row.other is None and row.gain is None
        if row.target and row.target[0].of is not None and row.baselines:
            assert row.ratio is not None, row
    if name not in CHEAP:  # these may lack queues that only the bench needs
        assert not run.missing


def test_a_put_is_compared_with_the_fastest_queue() -> None:
    rates = {"tidelog": 30, "huey": 10, "litequeue": 20, "rq": 5, "redis-py": 40}
    values = {name: Value(rate) for name, rate in rates.items()}
    put, bare = shared.figures("put", dict(values), "everysec")
    assert (put.met, put.target[0].of) == (False, "litequeue")
    assert (bare.met, bare.target[0].of) == (True, "redis-py")
    taken, _ = shared.figures("consume and ack", values, "everysec")
    assert set(taken.baselines) == {"huey", "litequeue", "rq"} and not taken.target
