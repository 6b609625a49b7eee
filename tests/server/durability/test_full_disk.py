"""A full disk is seen from outside: INFO, /health and metrics say so while writes are refused, and recover."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.rounds import rest_slow
from tests.server.conftest import Running, Start
from tests.server.durability.faulty_disk import Gate, full, simulated
from tests.server.ports import free_port
from tests.server.wire import Client, calls, connect
from tests.small_disk import resize, small_disk
from tests.until import PATIENCE_S, until

import tidelog

KIB = 1 << 10
POLICIES = ("always", "everysec", "no")


class Watched:
    """The facts that a running server tells about itself."""

    def __init__(self, running: Running, http_port: int) -> None:
        self.running = running
        self._url = f"http://127.0.0.1:{http_port}"
        self.redis: Any = running.client()

    def health(self) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=PATIENCE_S) as got:
                return got.status, json.load(got)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def refuses(self) -> float:
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=PATIENCE_S) as got:
            [line] = [row for row in got if row.startswith(b"tidelog_log_refuses_writes ")]
        return float(line.split()[1])

    def written(self) -> str:
        return str(self.redis.info("persistence")["aof_last_write_status"])

    def recovers(self) -> bool:
        """Wait until it says that all is well again, as it does by itself."""
        until(lambda: self.health()[0] == 200)
        return self.says_ok()

    def says_ok(self) -> bool:
        """Whether it says that all is well. All that can be asked must agree."""
        status, told = self.health()
        ok = self.written() == "ok"
        assert (status == 200) is ok and (told["status"] == "ok") is ok, (status, told, ok)
        assert self.refuses() == (0.0 if ok else 1.0)
        assert bool(self.redis.info("tidelog")["refusal"]) is not ok
        return ok


def fill(client: Client, key: str, size: int = 9000) -> Any:
    """XADDs until one is refused: its error."""
    while True:
        answer = client.call(b"XADD", key.encode(), b"*", b"a", b"x" * size)
        if isinstance(answer, tuple):
            return answer[1]


@pytest.fixture(params=POLICIES)
def simulated_disk(request: pytest.FixtureRequest) -> Iterator[tuple[Watched, Gate]]:
    http_port = free_port()
    with simulated(request.param, metrics_port=http_port) as (running, gate):
        watched = Watched(running, http_port)
        with watched.redis:
            yield watched, gate


def test_while_writes_are_refused(simulated_disk: tuple[Watched, Gate]) -> None:
    watched, gate = simulated_disk
    with closing(connect(watched.running.port)) as client:
        assert calls(client, "XADD s 1-1 a 1") == [b"1-1"]
        assert watched.says_ok()
        full(gate)
        assert watched.says_ok()  # nothing has been refused yet
        assert fill(client, "s").startswith(b"MISCONF")
        assert not watched.says_ok()
        reason = watched.health()[1]["reason"]
        assert reason.startswith("writes are refused: /db/aof") and "no space for" in reason
        gate.fails.clear()
        # Nobody writes any more: a probe has sent the writers elsewhere.
        assert watched.recovers()
        assert calls(client, "XADD t 1-1 a 1") == [b"1-1"]
        full(gate)
        fill(client, "s")
        assert not watched.says_ok()
        gate.fails.clear()
        assert calls(client, "XADD t 1-2 a 1") == [b"1-2"]
        assert watched.says_ok()  # at once


def test_the_first_write_of_a_life(simulated_disk: tuple[Watched, Gate]) -> None:
    """There is no segment yet, and none can be made."""
    watched, gate = simulated_disk
    full(gate)
    with closing(connect(watched.running.port)) as client:
        [refused] = calls(client, "XADD s 1-1 a 1")
        assert isinstance(refused, tuple) and refused[1].startswith(b"MISCONF")
        assert not watched.says_ok()
        gate.fails.clear()
        assert watched.recovers()
        assert calls(client, "DBSIZE", "XADD s 1-1 a 1") == [0, b"1-1"]


def test_one_unit_that_was_too_much(simulated_disk: tuple[Watched, Gate]) -> None:
    """The status is that of the last write: others still fit."""
    watched, gate = simulated_disk
    with closing(connect(watched.running.port)) as client:
        assert calls(client, "XADD s 1-1 a 1") == [b"1-1"]
        full(gate)
        big = client.call(b"XADD", b"s", b"*", b"a", bytes(4096 * KIB))
        assert isinstance(big, tuple) and big[1].startswith(b"MISCONF")
        assert not watched.says_ok()
        assert calls(client, "XADD s 2-1 a 1") == [b"2-1"]
        assert watched.says_ok()


@pytest.mark.parametrize("simulated_disk", rest_slow(POLICIES, 1), indirect=True)
def test_a_unit_larger_than_any_is_no_full_disk(simulated_disk: tuple[Watched, Gate]) -> None:
    watched, _ = simulated_disk
    large = 129 << 20
    with closing(connect(watched.running.port)) as client:
        refused = client.call(b"XADD", b"s", b"1-1", b"a", bytes(large))
        assert isinstance(refused, tuple) and refused[1].startswith(b"ERR not stored")
    assert watched.says_ok()


# --- a real one


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    with small_disk(tmp_path / "small") as at:
        yield at


@pytest.mark.parametrize("fsync", POLICIES)
def test_on_a_small_file_system(small: Path, start: Start, fsync: str) -> None:
    http_port = free_port()
    watched = Watched(
        start(small / "store", fsync=fsync, save=(), metrics_port=http_port), http_port
    )
    with watched.redis, closing(connect(watched.running.port)) as client:
        fill(client, "s")
        fill(client, "s", 1)
        assert not watched.says_ok()
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            watched.redis.xadd("s", {"a": "1"})
        length = watched.redis.xlen("s")
        resize(small, "16m")
        assert watched.recovers()
        assert watched.redis.xadd("s", {"a": "1"})
        assert watched.redis.xlen("s") == length + 1
        (small / "filler").write_bytes(b"")
        resize(small, "3m")
        fill(client, "s")
        fill(client, "s", 1)
        assert not watched.says_ok()
        resize(small, "16m")
        assert watched.redis.xadd("s", {"a": "1"})
        assert watched.says_ok()
    watched.running.serving.close()
    watched.running.db.close()
    with tidelog.open(small / "store") as db:
        assert db.verify() == []
