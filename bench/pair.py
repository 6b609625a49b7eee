"""A leader and its follower, two server processes of one kind: ours, or a redis-server and its replica."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.servers import Served

PATIENCE_S: Final = 300.0
POLLED_S: Final = 0.002
# A follower that is asked every 2 ms is a tenth slower. So it is asked again after this share of the time waited.
SHARE_WAITED: Final = 0.02

Starter = Callable[[Path, str], Served]


class Pair:
    """Both servers. The follower is connected and has everything when this is made.

    name, version    of the leader
    """

    def __init__(self, start: Starter, leader: Path, follower: Path, appendfsync: str) -> None:
        self.leader = start(leader, appendfsync)
        self.name, self.version = self.leader.name, self.leader.version
        try:
            self.follower = start(follower, appendfsync)
        except BaseException:
            self.leader.close()
            raise
        try:
            attach(self.follower, self.leader.port, offset(self.leader))
        except BaseException:
            self.close()
            raise

    def catch_up(self) -> float:
        """Wait until the follower has what the leader has now. Returns the seconds."""
        return wait_for(self.follower, offset(self.leader))

    def close(self) -> None:
        self.follower.close()
        self.leader.close()


def offset(leader: Served) -> int:
    """The end of what a leader has: an LSN, or redis-server's offset."""
    return int(_replication(leader)["master_repl_offset"])


def reached(follower: Served, end: int) -> bool:
    """Whether a follower is connected and has everything through this offset."""
    told = _replication(follower)
    return told.get("master_link_status") == "up" and int(told["slave_repl_offset"]) >= end


def wait_for(follower: Served, end: int) -> float:
    """Wait until a follower has everything through this offset. Returns the seconds. Raises TimeoutError."""
    start = time.perf_counter()
    while not reached(follower, end):
        waited = time.perf_counter() - start
        if waited > PATIENCE_S:
            raise TimeoutError(f"{follower.name}: the follower has not reached offset {end}")
        time.sleep(max(POLLED_S, SHARE_WAITED * waited))
    return time.perf_counter() - start


def attach(follower: Served, port: int, end: int) -> float:
    """Let a server follow the one on this port, and wait until it has everything through `end`. Returns the seconds."""
    start = time.perf_counter()
    follower.command("REPLICAOF", "127.0.0.1", str(port))
    wait_for(follower, end)
    spent = time.perf_counter() - start
    # A redis-server writes its AOF anew after a full resync, and until that is done, SIGTERM does not end it.
    while follower.client.info("persistence").get("aof_rewrite_in_progress"):
        time.sleep(POLLED_S)
    return spent


def _replication(server: Served) -> dict[str, Any]:
    found: dict[str, Any] = server.client.info("replication")
    return found
