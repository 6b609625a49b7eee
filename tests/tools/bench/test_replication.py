"""The sources of the figures of replication: pairs that are in step, links that are cut, clients that are confirmed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tidelog.tools.bench.baselines.redis_server import RedisServer
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.our_server import TidelogServer
from tidelog.tools.bench.processes import confirmed, pair, stream_latency
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.leading import Leading
from tidelog.tools.bench.processes.pair import Kind, Pair
from tidelog.tools.bench.processes.relay import Relay
from tidelog.tools.bench.redis_benchmark import Load
from tidelog.tools.bench.subjects import replication as subject
from tidelog.tools.bench.wire import STREAM, connected

ENTRY = {"qty": "7"}
KINDS = {"tidelog": TidelogServer, "redis-server": RedisServer}


@pytest.fixture(params=KINDS)
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    kind: Kind = KINDS[request.param]
    for name in ("leader", "follower"):
        (tmp_path / name).mkdir()
    with Pair(kind, tmp_path / "leader", tmp_path / "follower", EVERYSEC) as one:
        yield one


def test_a_pair_is_in_step_when_it_says_so(two: Pair) -> None:
    assert 0 < two.attached_s < pair.PATIENCE_S
    two.leader.client.xadd(STREAM, ENTRY)  # type: ignore[arg-type]
    assert two.catch_up() >= 0 and not two.behind()
    assert two.follower.client.xlen(STREAM) == 1
    found = subject._loaded(two.leader, two.catch_up)(Load(5, pipeline=4), 2_000)
    assert found[0] >= 0 and found[1] > 0
    assert two.follower.client.xlen(STREAM) == 0, "each slice begins with an empty stream"


def test_a_follower_that_never_comes_is_an_error(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "PATIENCE_S", 0.05)
    two.follower.command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(TimeoutError, match="has not reached"):
        two.catch_up()


def test_entries_are_read_from_the_follower(two: Pair) -> None:
    two.leader.client.xadd(STREAM, {"before": "the run"})
    two.catch_up()
    found = stream_latency.measure(two.leader.port, 300, 1.0, two.follower.port)
    assert 0 < found["p50"] <= found["p99"]
    assert 0 < found["carried"] <= found["produced"] * 1.1  # both are measured at about 300/s
    two.catch_up()
    assert two.follower.client.xlen(STREAM) == 301


def test_every_call_is_confirmed(two: Pair) -> None:
    with ExitStack() as closings:
        side = confirmed.confirming(two.leader, 3, closings)
        side.run(12)
        assert two.leader.client.xlen(STREAM) == two.follower.client.xlen(STREAM) == 12
        side.run(2)  # fewer than there are connections
    two.catch_up()
    assert two.follower.client.xlen(STREAM) == 14


def test_a_write_that_is_not_confirmed_is_an_error(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        confirmed, "REQUEST", confirmed.REQUEST.replace(b"$4\r\n5000\r\n", b"$1\r\n1\r\n")
    )
    two.follower.command("REPLICAOF", "NO", "ONE")
    with connected(two.leader.port) as line, pytest.raises(RuntimeError, match="not confirmed"):
        confirmed.add([line], 5)


def test_a_relay_is_cut_and_comes_back_at_its_port(two: Pair) -> None:
    with Relay(two.leader.port) as relay:
        pair.attach(two.follower, relay.port, 0)
        two.leader.client.xadd(STREAM, ENTRY)  # type: ignore[arg-type]
        two.catch_up()
        relay.cut()
        two.leader.client.xadd(STREAM, ENTRY)  # type: ignore[arg-type]
        with pytest.raises(OSError):
            connected(relay.port)
        assert two.behind()
        relay.mend()
        two.catch_up()
    assert two.follower.client.xlen(STREAM) == 2


def test_an_embedded_leader_is_followed(tmp_path: Path) -> None:
    (tmp_path / "follower").mkdir()
    with Fresh(Leading, tmp_path / "store") as leader:
        alone = leader.call("add_for", 0.05)
        assert alone["rate"] > 0 and alone["lsn"] >= 1_000
        port = leader.call("serve")
        follower = TidelogServer(tmp_path / "follower", EVERYSEC)
        try:
            pair.attach(follower, port, int(alone["lsn"]))
            found = leader.call("add_for", 0.05)
            pair.wait_for(follower, int(found["lsn"]))
            # the first record is the life's
            assert follower.client.xlen(STREAM) == found["lsn"] - 1
        finally:
            follower.close()


@pytest.mark.parametrize("per_frame", [1, subject.FRAME])
def test_the_log_to_catch_up_with_has_these_records(tmp_path: Path, per_frame: int) -> None:
    import tidelog

    subject._write(tmp_path / "store", 1_024, per_frame, tmp_path / "copy")
    assert subject._replayed(tmp_path / "copy", 1_024) > 0
    with tidelog.open(tmp_path / "store") as db:
        assert db.xlen(STREAM) == db.xlen("returns") == 512
        assert db.info()["next_lsn"] - 1 == 1_025


def test_without_redis_server_our_own_figures_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with Bench(tmp_path, rounds=1, slice_s=0.01, quick=True) as bench:
        with subject._pairs(bench) as pairs:
            assert list(pairs) == ["tidelog"]
            found: list[Any] = list(subject._confirmed(bench, pairs))
        assert [row.baselines for row in found] == [{}, {}]
        assert subject._redis_sync(bench, 1_000) == {}
        assert bench.missing == {"redis-server": "redis-server is not in PATH"}
