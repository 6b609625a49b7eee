"""The subjects about checkpoints: every row is measured, on stores that hold what the row says."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.tools.bench.baselines import redis_saved
from tidelog.tools.bench.baselines.redis_server import RedisServer
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import CONSUMER, GROUP, STREAM
from tidelog.tools.bench.figure import Figure
from tidelog.tools.bench.processes.opened import BY_HAND, DATA, Opened, first
from tidelog.tools.bench.processes.pauses import WRITER, Pauses
from tidelog.tools.bench.processes.stored import BEHIND, pending_store, sensor_store
from tidelog.tools.bench.subjects import budget, checkpoint, cold, restart


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, rounds=1, slice_s=0.002, quick=True) as run:
        yield run


def by_name(rows: Iterator[Figure]) -> dict[str, Figure]:
    found = list(rows)
    named = {row.name: row for row in found}
    assert len(named) == len(found)
    for row in found:
        assert row.target or row.note or row.baselines
        assert row.measured >= 0 and all(figure >= 0 for figure in row.baselines.values())
    return named


@pytest.mark.slow
def test_every_row_of_restart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SOME": 10_000,
        "MANY": 25_000,
        "PENDING": 15_000,
        "QUICK_TIMES": 1,
    }.items():
        monkeypatch.setattr(restart, name, value)  # a fifth of it, as the run is a quick one
    rows = by_name(restart.rows(bench))
    assert len(rows) == 2 * 4 + 2
    row = rows["open and first XADD, 5,000 entries"]
    assert set(row.baselines) == {"an empty store", "redis-server, RDB", "redis-server, AOF"}
    assert row.target_text == "<= an empty store + 50 ms"
    assert "first XACK, one anywhere, 3,000 pending, after a restart" in rows
    assert not bench.missing


@pytest.mark.slow
def test_every_row_of_checkpoint(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        (what, shown, 500 if what == "streams" else 5_000) for what, shown, _ in checkpoint.CASES
    ]
    monkeypatch.setattr(checkpoint, "CASES", cases)
    monkeypatch.setattr(checkpoint, "MANY", 100_000)
    monkeypatch.setattr(checkpoint, "QUICK_TIMES", 1)
    monkeypatch.setattr(checkpoint, "QUICK_COST_TIMES", 1)
    monkeypatch.setattr(checkpoint, "APART", 50_000)
    rows = by_name(checkpoint.rows(bench))
    assert len(rows) == 3 * 6 + 2
    for what in ("1,000 dirty entries", "1,000 dirty pending entries", "100 dirty streams"):
        row = rows[f"longest pause, checkpoint of {what}"]
        assert set(row.baselines) == {"quiet", "redis-server, BGSAVE", "redis-server, quiet"}
        assert rows[f"whole time, checkpoint of {what}"].measured > 0
    assert rows["checkpoint of 10,000 dirty entries, 20,000 stored"].against == "2,000 stored"
    assert 5 < rows["checkpoint/data.mdb per entry"].measured < 100
    assert not bench.missing


@pytest.mark.slow
def test_every_row_of_cold(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold, "STORED", 25_000)
    monkeypatch.setattr(cold, "RESIDENT", 25_000)
    monkeypatch.setattr(cold, "SLICES", 2)
    monkeypatch.setattr(cold, "READ", 50)
    rows = by_name(cold.rows(bench))
    assert set(rows["scan of cold entries by XRANGE"].baselines) == {"resident", "redis-py"}
    assert {"XRANGE of one cold entry, median", "XRANGE of one cold entry, p99"} < set(rows)
    assert not bench.missing


def test_every_row_of_budget(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "BACKLOG", 250_000)
    rows = by_name(budget.rows(bench))
    assert len(rows) == 2 * len(budget.PHASES)
    for phase, _, _ in budget.PHASES:
        assert rows[f"{phase}, memory_budget=64 MiB"].measured > 0
        assert rows[f"anonymous memory while {phase}, memory_budget=64 MiB"].measured > 1


def test_a_stored_store_is_made_once_and_lies_in_its_checkpoint(bench: Bench) -> None:
    made = sensor_store(bench, 5_000)
    assert sensor_store(bench, 5_000) is made
    assert (made.path / DATA).stat().st_size > 10_000
    with tidelog.open(made.path, fsync=EVERYSEC) as db:
        assert db.xlen(STREAM) == 5_000
        assert all(len(db.xrange(STREAM, id, id)) == 1 for id in made.ids[:50])
        assert db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=1)


def test_what_was_added_last_is_dropped_again(bench: Bench) -> None:
    made = sensor_store(bench, 5_000)
    with closing(Opened(str(made.path))) as store:
        last = store.db.xrevrange(STREAM, count=1)
        store.add(2_500)
        store.drop_newest(2_500)
        assert store.db.xlen(STREAM) == 5_000
        assert store.db.xrevrange(STREAM, count=1) == last


def test_a_pending_store_holds_what_it_says(bench: Bench) -> None:
    made = pending_store(bench, 3_000)
    with tidelog.open(made.path, fsync=EVERYSEC) as db:
        assert db.xpending(STREAM, GROUP)["pending"] == 3_000
        assert db.xlen(STREAM) == 3_000 + BEHIND
        assert db.xack(STREAM, GROUP, *made.ids[:10]) == 10


def test_first_calls_do_something_and_leave_an_empty_tail(bench: Bench) -> None:
    made = pending_store(bench, 2_000)
    for what, arguments in (("XLEN", ()), ("XADD", ()), ("XREADGROUP", ()), ("XACK", made.ids[:1])):
        found = first(str(made.path), what, *arguments)
        assert 0 < found["call"] < found["both"]
    with tidelog.open(made.path, fsync=EVERYSEC) as db:
        assert db.xlen(STREAM) == 2_000 + BEHIND + 1
        assert db.xpending(STREAM, GROUP)["pending"] == 2_000


@pytest.mark.parametrize(
    ("busy", "what"),
    [
        (True, "entries"),
        (False, "pending"),
        (True, "streams"),
        pytest.param(False, "entries", marks=pytest.mark.slow),
        pytest.param(True, "pending", marks=pytest.mark.slow),
        pytest.param(False, "streams", marks=pytest.mark.slow),
    ],
)
def test_a_writer_beside_a_checkpoint(tmp_path: Path, what: str, busy: bool) -> None:
    with closing(Pauses(str(tmp_path / "store"))) as pauses:
        count = 100 if what == "streams" else 2_000
        pauses.dirty(what, count)
        found = pauses.beside(busy)
        assert found["seconds"] > 0
        for phase in ("during", "quiet"):
            assert 0 < found[phase]["p99.9"] <= found[phase]["worst"]
        assert pauses.db.xlen(WRITER) >= found["during"]["calls"] + found["quiet"]["calls"]
        if what == "pending":
            assert pauses.db.xpending("pending", GROUP)["pending"] == 2_000
        else:
            assert pauses.db.dbsize() == (count if what == "streams" else 1) + 2


def test_bytes_per_entry_are_those_of_the_file(tmp_path: Path) -> None:
    with closing(Opened(str(tmp_path / "store"), **BY_HAND)) as opened:
        found = opened.add_apart(10_000, 2)
        assert opened.db.xlen(STREAM) == 10_000
        assert round(found["length"] * 10_000) == (tmp_path / "store" / DATA).stat().st_size


def test_redis_is_given_the_same_data(tmp_path: Path) -> None:
    with closing(RedisServer(tmp_path, EVERYSEC)) as server:
        redis_saved.feed(server, redis_saved.adding_to_one(3_000))
        redis_saved.feed(server, redis_saved.adding(20, (f"s:{number}" for number in range(20))))
        assert server.client.xlen(STREAM) == 3_000
        assert server.client.dbsize() == 21
        found: Any = server.client.xrevrange(STREAM, count=1)
        ((_, fields),) = found
        assert set(fields) == {b"temperature", b"humidity"}
