"""The clients that servers are measured with: they do what they say, and count what they should."""

import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidelog.tools.bench.baselines.redis_saved import adding_to_one, feed
from tidelog.tools.bench.baselines.redis_server import RedisServer
from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.processes import crowd, idle, stream_latency
from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.race import race
from tidelog.tools.bench.redis_benchmark import Load, parsed
from tidelog.tools.bench.subjects import server as subject
from tidelog.tools.bench.wire import STREAM, packed

CSV = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"XADD orders * user 100042 qty 7","23952.10","1.451","0.304","1.215","2.863","6.575","18.543"
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with closing(RedisServer(tmp_path / "redis", "everysec")) as one:
        yield one


def test_the_rate_that_redis_benchmark_tells() -> None:
    assert parsed(CSV.splitlines()) == 23952.10
    with pytest.raises(RuntimeError, match="printed no rate"):
        parsed(["WARNING: Could not fetch server CONFIG"])


def test_a_slice_of_redis_benchmark_adds_what_it_counts(server: Served) -> None:
    load = Load(20, pipeline=10)
    assert 0 < load.run(server.port, 1_000) < 10_000_000
    fields = {b"user": b"100042", b"qty": b"7"}
    entries: Any = server.client.xrange(STREAM)
    assert [entry for _, entry in entries] == [fields] * 1_000
    rates = race([load.against(server)], rounds=2, slice_s=0.01)
    assert rates["redis-server"] > 0
    assert server.client.xlen(STREAM) == 0, "every slice begins with an empty stream"


def test_redis_benchmark_that_gets_errors_gives_no_figure(server: Served) -> None:
    server.client.set(STREAM, "no stream")
    side = Load(5).against(server)
    with pytest.raises(Exception, match="WRONGTYPE|failed|added"):
        side.slice(100)


def test_summary_leaves_out_what_was_sent_while_warming_up() -> None:
    second = stream_latency.SECOND_NS
    sent = [0, second // 4, *range(second, second + 1_000)]
    spent = [9_000_000_000, 9_000_000_000, *(n * 1_000_000 for n in range(1_000))]
    found = stream_latency.summary(sent, spent)
    assert found == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0}
    with pytest.raises(ValueError, match="no message"):
        stream_latency.summary([5, 6], [1, 1])


def test_messages_reach_the_consumers_and_are_acknowledged(server: Served) -> None:
    stream_latency.prepare(server)
    subject._leave_pending(server, 2_000)
    found = stream_latency.measure(server.port, 500, 1.0)
    assert 0 < found["p50"] <= found["p99"] <= found["p99.9"]
    assert found["carried"] > 0 and found["produced"] > 0
    assert server.client.xlen(STREAM) == 2_500
    assert server.client.xpending(STREAM, stream_latency.GROUP)["pending"] == 2_000


def test_clients_that_get_errors_are_an_error_here(
    server: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    server.client.set(STREAM, "no stream")
    with pytest.raises(RuntimeError, match="a client failed"):
        stream_latency.measure(server.port, 100, 0.2)
    assert "WRONGTYPE" in capfd.readouterr().err


def test_the_rate_is_one_that_every_server_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    most = {1: 8_000.0, 2: 5_100.0}

    def measure(port: int, rate: int, seconds: float) -> dict[str, float]:
        return {"carried": min(rate, most[port]), "produced": float(rate)}

    monkeypatch.setattr(stream_latency, "measure", measure)
    servers = {str(port): _Port(port) for port in most}
    assert subject._carried(servers) == 5_000  # type: ignore[arg-type]
    most[2] = 1.0
    assert subject._carried(servers) == subject.RATES[-1]  # type: ignore[arg-type]


class _Port:
    def __init__(self, port: int) -> None:
        self.port = port


def test_blocked_clients_are_weighed_while_they_wait(server: Served) -> None:
    found = idle.cost(server, 50, 0.2)
    assert 500 < found["each"] < 200_000
    assert 0 <= found["cpu"] < 500
    assert idle.waking(server, 20) > 0
    assert server.client.info("clients")["blocked_clients"] == 0
    assert not server.client.exists(STREAM)


def test_one_large_command_is_measured_when_it_did_something(server: Served) -> None:
    crowd.add_large(server, 250)
    assert crowd.trim(server) > 0
    assert server.client.xlen(STREAM) == crowd.KEPT
    with pytest.raises(RuntimeError, match="gave the unexpected reply b':0"):
        crowd.trim(server)
    assert crowd.delete(server, 2_500) > 0
    assert server.client.dbsize() == 1


@pytest.mark.parametrize("name", crowd.CROWDS)
def test_a_crowd_that_never_reads(server: Served, name: str) -> None:
    found = crowd.polite(server, name, 0.1)
    assert 0 < found["p50"] <= found["p99"] <= found["worst"]
    assert server.client.ping()


def test_processor_time_is_that_of_the_server(server: Served) -> None:
    before = server.cpu_s()
    feed(server, adding_to_one(200_000))
    assert 0.02 < server.cpu_s() - before < 30


def test_the_limit_of_open_files_is_raised_and_lowered_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with idle.many_files(before[1]) as clients:
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
        assert clients == before[1] - idle.RESERVED
    with idle.many_files(10) as clients:
        assert clients == 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_without_redis_benchmark_the_other_figures_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("_reading", "_latency", "_idle", "_crowd"):
        monkeypatch.setattr(subject, name, lambda bench: iter(()))
    monkeypatch.setattr(subject, "TidelogServer", _NoServer)
    with Bench(tmp_path, rounds=1, slice_s=0.01) as bench:
        assert not list(subject.rows(bench))
        assert bench.missing == {
            "redis-server": "redis-server is not in PATH",
            "redis-benchmark": "redis-benchmark is not in PATH",
        }


class _NoServer:
    name, port = subject.OURS, 1

    def __init__(self, directory: Path, appendfsync: str) -> None: ...

    def close(self) -> None: ...


def test_commands_are_packed_as_a_server_reads_them() -> None:
    assert packed("XADD", b"\r\n") == b"*2\r\n$4\r\nXADD\r\n$2\r\n\r\n\r\n"
