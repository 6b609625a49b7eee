"""A leader and its follower, two server processes of one kind: ours, or a redis-server and its replica."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tidelog.tools.bench.processes.served import Served

PATIENCE_S = 300.0
POLLED_S = 0.002
# A follower that is asked every 2 ms is a tenth slower. So it is asked again after this share of the time that it will
# still need at its rate so far, but at most this share of the time waited, since the first rates are guesses.
SHARE_OF_REST = 0.5
SHARE_WAITED = 0.25
SHARE_WAITED_BLINDLY = 0.02  # if it tells no rate

Kind = Callable[[Path, str], Served]


class Pair(AbstractContextManager["Pair"]):
    """Both servers. The follower is connected and has everything when this is made.

    name           of the leader's kind
    attached_s     seconds from REPLICAOF until the follower had everything
    """

    def __init__(self, kind: Kind, leader: Path, follower: Path, appendfsync: str) -> None:
        self.leader = kind(leader, appendfsync)
        self.name = self.leader.name
        try:
            self.follower = kind(follower, appendfsync)
        except BaseException:
            self.leader.close()
            raise
        try:
            hasten(self.leader)
            self.attached_s = attach(self.follower, self.leader.port, offset(self.leader))
        except BaseException:
            self.__exit__()
            raise

    def behind(self) -> bool:
        """Whether the follower lacks something that the leader has now."""
        return not reached(self.follower, offset(self.leader))

    def catch_up(self) -> float:
        """Wait until the follower has what the leader has now. Returns the seconds."""
        return wait_for(self.follower, offset(self.leader))

    def __exit__(self, *error: object) -> None:
        self.follower.close()
        self.leader.close()


def hasten(leader: Served) -> None:
    """Spare a redis-server the 5 s before a full resync, and the 10 s in which its end waits for replicas."""
    if leader.name == "redis-server":
        leader.client.config_set("repl-diskless-sync-delay", 0)
        leader.client.config_set("shutdown-timeout", 0)


def replication(server: Served) -> dict[str, Any]:
    """INFO replication."""
    found: dict[str, Any] = server.client.info("replication")
    return found


def offset(leader: Served) -> int:
    """The end of what a leader has: an LSN, or redis-server's offset."""
    return int(replication(leader)["master_repl_offset"])


def reached(follower: Served, end: int) -> bool:
    """Whether a follower is connected and has everything through this offset."""
    return _is_there(_come_to(follower), end)


def _come_to(follower: Served) -> int | None:
    """The end of what a follower has; None while it is not connected."""
    told = replication(follower)
    return int(told["slave_repl_offset"]) if told.get("master_link_status") == "up" else None


def _is_there(at: int | None, end: int) -> bool:
    return at is not None and at >= end


def wait_for(follower: Served, end: int) -> float:
    """Wait until a follower has everything through this offset. Returns the seconds. Raises TimeoutError."""
    start = time.perf_counter()
    first: tuple[float, int] | None = None  # when it was seen under way first, and where
    while not _is_there(at := _come_to(follower), end):
        waited = time.perf_counter() - start
        if waited > PATIENCE_S:
            raise TimeoutError(f"{follower.name}: the follower has not reached offset {end}")
        pause = SHARE_WAITED_BLINDLY * waited
        if at:
            first = first or (waited, at)
            if at > first[1]:
                rate = (at - first[1]) / (waited - first[0])
                pause = min(SHARE_OF_REST * (end - at) / rate, SHARE_WAITED * waited)
        time.sleep(max(POLLED_S, pause))
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
