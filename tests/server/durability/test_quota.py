"""A served store at its quota: clients are refused what adds data, and nothing else."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.replication.stores import equal
from tests.server.conftest import Running, Start
from tests.server.ports import free_port
from tests.until import PATIENCE_S, until

import tidelog

QUOTA = 2 << 20
BIG = b"x" * 60_000
ADDING = (
    *("XADD s * a 1", "SET k v", "INCR k", "COPY s t", "QUEUE PUT q job"),
    "QUEUE PUT q job DELAY 60000",
)
FULL = "MISCONF the store is full: it has "


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except redis.ResponseError as error:
        assert FULL in str(error), error
        return True
    return False


def fill(client: Any) -> None:
    """Have more data in the checkpoint than the quota, so that no checkpoint makes room."""
    client.config_set("maxdisk", "0")
    for _ in range(1 + QUOTA // len(BIG)):
        client.xadd("filling", {"raw": BIG})
    client.save()
    client.config_set("maxdisk", QUOTA)


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as got:
        [line] = [row for row in got if row.startswith(name.encode() + b" ")]
    return float(line.split()[1])


def test_clients_are_refused_what_adds_and_go_on_when_there_is_room(start: Start) -> None:
    http = free_port()
    running = start(maxdisk=QUOTA, metrics_port=http)
    client: Any = running.client()
    client.xadd("s", {"a": 1})
    client.xadd("s", {"a": 2})
    client.xgroup_create("s", "g", id="0")
    client.execute_command("QUEUE", "PUT", "q", "job")
    assert metric(http, "tidelog_disk_full") == 0
    fill(client)
    assert metric(http, "tidelog_disk_full") == 1
    assert metric(http, "tidelog_disk_quota_bytes") == QUOTA
    assert QUOTA < metric(http, "tidelog_disk_bytes") < 4 * QUOTA
    told = client.info("tidelog")
    assert (told["maxdisk"], told["disk_full"]) == (QUOTA, 1)
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/health", timeout=PATIENCE_S) as got:
        assert got.status == 200  # a restart would not help

    many: list[tuple[str, ...]] = [("XADD", "s", "*", "a", str(n)) for n in range(300)]
    for transaction in (False, True):
        pipe = client.pipeline(transaction)
        for words in many:
            pipe.execute_command(*words)
        assert refused(pipe.execute)
    for text in ADDING:
        assert refused(partial(client.execute_command, *text.split())), text
    assert client.xlen("s") == 2 and client.exists("k", "t") == 0

    [[_, entries]] = client.xreadgroup("g", "c", {"s": ">"}, count=2)
    assert client.xack("s", "g", entries[0][0]) == 1
    pipe = client.pipeline()
    pipe.xack("s", "g", entries[1][0])
    pipe.xadd("done", {"of": entries[1][0]})
    assert pipe.execute()[0] == 1  # an outcome beside its ack
    assert client.execute_command("QUEUE", "STATS", "q")
    client.xtrim("filling", maxlen=1, approximate=False)
    until(lambda: not refused(lambda: client.set("k", "v")))
    assert metric(http, "tidelog_disk_full") == 0


def test_config_set_changes_it_at_once(start: Start) -> None:
    client: Any = start().client()
    client.xadd("s", {"raw": BIG})
    assert client.config_get("maxdisk") == {"maxdisk": "0"}
    client.config_set("maxdisk", "1mb")
    while not refused(lambda: client.xadd("s", {"raw": BIG})):
        pass
    client.config_set("maxdisk", "20mb")
    assert not refused(lambda: client.xadd("s", {"raw": BIG}))
    client.config_set("maxdisk", "1mb")
    assert refused(lambda: client.xadd("s", {"raw": BIG}))
    client.config_set("maxdisk", "0")
    assert not refused(lambda: client.xadd("s", {"raw": BIG}))
    with pytest.raises(redis.ResponseError, match="maxdisk"):
        client.config_set("maxdisk", "1000")


def test_a_shared_queue_at_the_quota(start: Start) -> None:
    running = start(maxdisk=QUOTA)
    with tidelog.connect(f"redis://127.0.0.1:{running.port}") as db:
        queue = db.queue("q", codec="bytes")
        put = 0
        with pytest.raises(
            tidelog.StoreFull, match=r"^the store is full: it has 2,\d{3},\d{3} bytes"
        ):
            while True:
                queue.put(BIG)
                put += 1
        with pytest.raises(tidelog.StoreFull):
            while True:
                queue.put(b"small", delay=60)
        done = 0
        for job in queue.consume(block=0):
            with job:
                done += 1
        assert done == put
        until(lambda: _fits(queue))


def _fits(queue: Any) -> bool:
    try:
        queue.put(BIG)
    except tidelog.StoreFull:
        return False
    return True


def test_a_follower_refuses_nothing_until_it_leads(start: Start, tmp_path: Path) -> None:
    leader: Running = start()
    url = f"tidelog://127.0.0.1:{leader.port}"
    with tidelog.follow(tmp_path / "follower", url, fsync="no", maxdisk=1 << 20) as follower:
        for _ in range(50):
            leader.db.xadd("s", {"raw": BIG})
        equal(leader.db, follower)
        assert follower.xlen("s") == 50 and follower.info()["disk_full"] is True
        follower.promote()

        def refuses() -> bool:
            try:
                follower.set("a", 1)
            except tidelog.StoreFull:
                return True
            return False

        until(refuses)
        follower.delete("s")
        until(lambda: not refuses())
