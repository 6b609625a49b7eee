"""The clients that servers are measured with: they do what they say, and count what they should."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench import latency
from bench.pair import Pair
from bench.race import race
from bench.run import Run
from bench.servers import Load, RedisServer, Served, adding, parsed
from bench.subjects import server as subject
from bench.wire import GROUP, STREAM

CSV = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"XADD orders * user 100042 qty 7","23952.10","1.451","0.304","1.215","2.863","6.575","18.543"
"""


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with closing(RedisServer(tmp_path_factory.mktemp("redis"), "everysec")) as one:
        yield one


@pytest.fixture
def server(redis: Served) -> Served:
    redis.client.flushall()
    return redis


def test_the_rate_that_redis_benchmark_tells() -> None:
    assert parsed(CSV.splitlines()) == 23952.10
    with pytest.raises(RuntimeError, match="printed no rate"):
        parsed(["WARNING: Could not fetch server CONFIG"])


def test_a_slice_of_redis_benchmark_adds_what_it_counts(server: Served) -> None:
    load = Load(20, pipeline=10)
    assert 0 < load.run(server.port, 1_000) < 10_000_000
    entries: Any = server.client.xrange(STREAM)
    assert [entry for _, entry in entries] == [{b"user": b"100042", b"qty": b"7"}] * 1_000
    server.client.delete(STREAM)
    before = server.cpu_s()
    rates = race([load.against(server)], rounds=2, slice_s=0.01)
    assert rates["redis-server"].this > 0 and server.cpu_s() > before
    assert server.client.xlen(STREAM) == 0, "every slice begins with an empty stream"


def test_redis_benchmark_that_gets_errors_gives_no_figure(server: Served) -> None:
    server.client.set(STREAM, "no stream")
    with pytest.raises(Exception, match="WRONGTYPE|failed|added"):
        Load(5).against(server)


def test_summary_leaves_out_what_was_sent_while_warming_up() -> None:
    second = latency.SECOND_NS
    sent = [0, second // 4, *range(second, second + 1_000)]
    spent = [9_000_000_000, 9_000_000_000, *(n * 1_000_000 for n in range(1_000))]
    found = latency.summary(sent, spent)
    assert found == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0}
    with pytest.raises(ValueError, match="no entry"):
        latency.summary([5, 6], [1, 1])


def test_entries_reach_the_consumers_and_are_acknowledged(server: Served) -> None:
    latency.prepare(server)
    subject.leave_pending(server, 2_000)
    found = latency.measure(server.port, 500, 1.0)
    assert 0 < found["p50"] <= found["p99"] <= found["p99.9"]
    assert found["carried"] > 0 and found["produced"] > 0
    assert server.client.xlen(STREAM) == 2_500
    assert server.client.xpending(STREAM, GROUP)["pending"] == 2_000


def test_clients_that_get_errors_are_an_error_here(
    server: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    server.client.set(STREAM, "no stream")
    with pytest.raises(RuntimeError, match="produce failed|take failed"):
        latency.measure(server.port, 100, 0.2)
    assert "WRONGTYPE" in capfd.readouterr().err


def test_the_rate_is_one_that_every_server_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    most = {1: 8_000.0, 2: 5_100.0}

    def measure(port: int, rate: int, seconds: float) -> dict[str, float]:
        return {"carried": min(rate, most[port]), "produced": float(rate)}

    monkeypatch.setattr(latency, "measure", measure)
    servers: Any = [_Port(1), _Port(2)]
    assert subject.carried(servers) == 5_000
    most[2] = 1.0
    assert subject.carried(servers) == subject.RATES[-1]


class _Port:
    def __init__(self, port: int) -> None:
        self.port = port


def test_a_pair_is_in_step_when_it_says_so(run: Run) -> None:
    def pair(start: Any) -> Pair:
        return Pair(start, run.fresh("leader"), run.fresh("follower"), "everysec")

    with run.servers(pair) as pairs:
        assert [one.name for one in pairs] == ["tidelog", "redis-server"]
        for one in pairs:
            one.leader.feed(adding(2_000))
            one.catch_up()
            assert one.follower.client.xlen(STREAM) == 2_000
            found = latency.measure(one.leader.port, 200, 1.0, one.follower.port)
            assert found["p50"] > 0 and one.follower.client.xlen(STREAM) == 2_200


def test_without_redis_server_our_own_figures_remain(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with run.servers(lambda start: start(run.fresh("server"), "everysec")) as servers:
        assert [server.name for server in servers] == ["tidelog"]
        with pytest.raises(FileNotFoundError, match="redis-benchmark is not in PATH"):
            Load(1).run(servers[0].port, 1)
    assert run.missing == {"redis-server": "redis-server is not in PATH"}
