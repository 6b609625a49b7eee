"""Real Redis Sentinels, as processes, that watch one leader."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.sentinel import MasterNotFoundError, Sentinel
from tests.server.ports import free_port
from tests.until import WaitRanOut, until

NAME = "orders"
# A leader that a busy machine keeps from answering for so long is no leader any more.
DOWN_AFTER_MS = 6000  # a machine may have no time for a leader for so long
PATIENCE_S = 120.0  # an election that fails is repeated after twice the failover-timeout
# Sentinel ignores what a follower told longer ago than five pings. So with these values it compares offsets that were
# told after the leader's death.
PERIODS = ("INFO-PERIOD", 100, "PING-PERIOD", 250, "PUBLISH-PERIOD", 200, "ASK-PERIOD", 100)


class Sentinels:
    """Some sentinels, of which most must agree. `client` is redis-py's."""

    def __init__(self, root: Path, leader: int, count: int, down_after_ms: int) -> None:
        """`leader`: the port of the leader."""
        program = shutil.which("redis-server")
        if program is None:
            pytest.fail(
                "there is no redis-server on this machine: install redis 7.0", pytrace=False
            )
        self._root = root
        self.ports = [free_port() for _ in range(count)]
        self._processes: list[subprocess.Popen[bytes]] = []
        for port in self.ports:
            config = root / f"sentinel-{port}.conf"
            config.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {root}\n"
                f"sentinel monitor {NAME} 127.0.0.1 {leader} {count // 2 + 1}\n"
                f"sentinel down-after-milliseconds {NAME} {down_after_ms}\n"
                f"sentinel failover-timeout {NAME} 4000\n"
            )
            with (root / f"sentinel-{port}.log").open("wb") as log:
                self._processes.append(
                    subprocess.Popen([program, str(config), "--sentinel"], stdout=log, stderr=log)
                )
        until(lambda: all(self._answers(port) for port in self.ports), "a sentinel does not start")
        untyped: Any = Sentinel  # redis-py gives it no types
        self.client: Any = untyped(
            [("127.0.0.1", port) for port in self.ports], socket_timeout=90, protocol=2
        )

    def _answers(self, port: int) -> bool:
        with suppress(redis.ConnectionError):
            return bool(self.ask(port, "DEBUG", *PERIODS) == b"OK")
        return False

    def ask(self, port: int, *words: object) -> Any:
        """SENTINEL ... of one of them."""
        with redis.Redis(port=port, protocol=2, socket_timeout=60) as client:
            return client.execute_command("SENTINEL", *map(str, words))

    def know(self, followers: Iterable[int]) -> None:
        """Until all of them know each other, and these followers and what those tell."""
        others = len(self.ports) - 1
        for port in self.ports:
            self.until(lambda: len(self.ask(port, "SENTINELS", NAME)) == others)
            self.until(lambda: self._linked(port) >= set(followers))

    def followers(self, port: int) -> list[dict[bytes, bytes]]:
        """The followers as one of the sentinels knows them."""
        return [_pairs(each) for each in self.ask(port, "REPLICAS", NAME)]

    def _linked(self, port: int) -> set[int]:
        """Ports of followers that one of the sentinels sees, linked to their leader."""
        return {
            int(each[b"port"])
            for each in self.followers(port)
            if each[b"flags"] == b"slave" and each[b"master-link-status"] == b"ok"
        }

    def until(self, true: Callable[[], object]) -> None:
        """Return as soon as `true()` is. If that takes too long, say what the sentinels have logged."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() >= deadline:
                raise WaitRanOut(self.logs())
            time.sleep(0.01)

    def failovers(self) -> int:
        """How many the first of the sentinels has seen."""
        return (self._root / f"sentinel-{self.ports[0]}.log").read_text().count("+switch-master")

    def leader(self) -> int:
        """The port of the leader; 0 while there is none."""
        with suppress(MasterNotFoundError):
            return int(self.client.discover_master(NAME)[1])
        return 0

    def agree(self, leader: int) -> bool:
        """Whether all of them name this leader."""
        named = [self.ask(port, "GET-MASTER-ADDR-BY-NAME", NAME) for port in self.ports]
        return all(int(port) == leader for _, port in named)

    def logs(self) -> str:
        """Their log files, for a test that fails."""
        return "\n".join(path.read_text() for path in sorted(self._root.glob("sentinel-*.log")))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def _pairs(reply: Any) -> dict[bytes, bytes]:
    """A reply of pairs as a dict; redis-py makes one of some replies already."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


@contextmanager
def sentinels(
    root: Path, leader: int, count: int = 1, down_after_ms: int = DOWN_AFTER_MS
) -> Iterator[Sentinels]:
    """Started, and killed at the end."""
    made = Sentinels(root, leader, count, down_after_ms)
    try:
        yield made
    finally:
        made.close()
