"""How long writes stand still while a leader hands over: clients that go to the other server when this one refuses."""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Final

import redis

from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.wire import STREAM

RUN_S: Final = 0.5  # of writes, before and after each handover
AGAIN_S: Final = 0.002  # pause of a client that was refused


class _Writers:
    """Threads that write one record at a time to the server that takes it. `at`: when each write was confirmed."""

    def __init__(self, servers: tuple[Served, Served], count: int) -> None:
        self.at: list[float] = []
        self._servers = servers
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        clients = [server.connect() for server in self._servers]
        now = 0
        while not self._ended.is_set():
            try:
                clients[now].xadd(STREAM, {"qty": "7"}, maxlen=1000)
                self.at.append(time.perf_counter())
            except (redis.ReadOnlyError, redis.ConnectionError):
                now = 1 - now
                time.sleep(AGAIN_S)
        for client in clients:
            client.close()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def stood_still_s(leader: Served, follower: Served, clients: int, times: int) -> float:
    """Median seconds, of so many handovers back and forth, of the longest time without a confirmed write."""
    found = []
    for _ in range(times):
        writers = _Writers((leader, follower), clients)
        time.sleep(RUN_S)
        begun = time.perf_counter()
        leader.command("FAILOVER")
        while follower.client.info("replication")["role"] != "master":
            time.sleep(AGAIN_S)
        time.sleep(RUN_S)
        writers.end()
        at = sorted(moment for moment in writers.at if moment > begun - RUN_S / 2)
        found.append(max(later - earlier for earlier, later in zip(at, at[1:], strict=False)))
        leader, follower = follower, leader
        while follower.client.info("replication").get("master_link_status") != "up":
            time.sleep(AGAIN_S)
        while not leader.client.info("replication")["connected_slaves"]:
            time.sleep(AGAIN_S)
    return median(found)
