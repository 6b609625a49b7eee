"""A storm of three servers: writes, kills, cut links, handovers, restarts and copies, at random.

After each few steps of it everything is put right: then one server leads, both others have a link and hold the same,
and nothing that was confirmed is gone. At the end no link is left, and no snapshot that was made for a follower.

A step draws from its own numbers, so a seed is the same steps on any machine, whatever came of those before.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.replication.processes import Node, ended
from tests.replication.proxy import Proxy
from tests.rounds import new_seeds, slow_and_soak
from tests.until import until

import tidelog
from tidelog.aof import identity
from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import snapshots

OPTIONS = (
    "appendfsync=everysec",
    "enable-debug-command=yes",
    "segment-bytes=64kb",
    "retain-bytes=0",
    "repl-backlog-ttl=0",  # a follower that was away while the log was folded needs a copy
    "repl-timeout=3",
    "shutdown-timeout=1",
)
ROUND = 60  # steps of storm, before everything is put right
KEPT = "kept"  # the stream of what must never be lost
STREAMS = ("orders", "mails", "jobs")
# An answer that did not come says nothing about what happened.
NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, redis.ResponseError)


class Server:
    """One of the three, and the proxy through which the others reach it."""

    def __init__(self, root: Path) -> None:
        self.node = Node(root)
        self.proxy = Proxy(self.node.port)
        self.node.options = (*OPTIONS, f"replica-announce-port={self.proxy.port}")
        self.up = False

    def start(self) -> None:
        if not self.up:
            self.node.start()
            self.up = True

    def end(self, number: int) -> None:
        if self.up:
            self.up = False
            self.node.end(number)

    @contextmanager
    def client(self, timeout: float = 0.5) -> Iterator[Any]:
        with redis.Redis(
            port=self.node.port, socket_timeout=timeout, retry=Retry(NoBackoff(), 0)
        ) as client:
            yield client

    def info(self) -> dict[str, Any]:
        with self.client(5.0) as client:
            told: dict[str, Any] = client.info("replication")
        return told


class Storm:
    """The servers, what was confirmed, and what happens to them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.seed, self.step = seed, 0
        self.servers = [Server(root / name) for name in ("one", "two", "three")]
        self.confirmed: list[int] = []
        self.counts: Counter[str] = Counter()
        self._leads = self.servers[0]  # it took a write last
        for server in self.servers:
            server.start()
        for server in self.servers[1:]:
            server.node.follow(self.servers[0].proxy.port)

    def close(self) -> None:
        for server in self.servers:
            server.proxy.close()

    # --- what may happen

    def write(self) -> None:
        """Some commands to a server that may lead."""
        r = self.r
        server = r.choice((r.choice(self.servers), self._leads, self._leads))
        with suppress(*NO_ANSWER), server.client() as client:
            for number in range(self.step * 100, self.step * 100 + r.randint(1, 40)):
                client.xadd(KEPT, {"n": number})
                self.confirmed.append(number)
                self._leads = server
                with suppress(redis.ResponseError):  # a group that is there already, or is not
                    self._command(client, r.choice(STREAMS))
                self.counts["written"] += 1

    def _command(self, client: Any, key: str) -> None:
        r = self.r
        match r.randrange(8):
            case 0:
                client.set(
                    f"{key}:{r.randrange(9)}", "x" * r.randrange(20_000), px=r.choice((1, 50_000))
                )
            case 1:
                client.delete(key)
            case 2:
                client.xgroup_create(key, f"g{r.randrange(3)}", "0", mkstream=True)
            case 3:
                client.xreadgroup(f"g{r.randrange(3)}", "c", {key: ">"}, count=r.randint(1, 9))
            case 4:
                client.xtrim(key, maxlen=r.randint(0, 50))
            case _:
                client.xadd(key, {"pad": "x" * r.randrange(2_000)})

    def fold(self) -> None:
        with suppress(*NO_ANSWER), self._leads.client(5.0) as client:
            client.execute_command("SAVE")

    def fall_behind(self) -> None:
        """A follower is away while the log that it needs goes."""
        server = self.r.choice([each for each in self.servers if each is not self._leads])
        server.end(signal.SIGKILL)
        with suppress(*NO_ANSWER), self._leads.client() as client:
            client.set("large", self.r.randbytes(300_000))
        self.fold()
        server.start()

    def kill(self) -> None:
        self.r.choice(self.servers).end(signal.SIGKILL)

    def stop(self) -> None:
        self.r.choice(self.servers).end(signal.SIGTERM)

    def start(self) -> None:
        self.r.choice(self.servers).start()

    def cut(self) -> None:
        self.r.choice(self.servers).proxy.cut()

    def stall(self) -> None:
        """Nothing passes to or from this server's followers until everything is put right, or for a while."""
        proxy = self.r.choice(self.servers).proxy
        if proxy.open.is_set():
            proxy.open.clear()
        else:
            proxy.open.set()

    def fail_over(self) -> None:
        words = self.r.choice(((), ("TIMEOUT", self.r.choice((1, 300, 3000))), ("ABORT",)))
        with suppress(*NO_ANSWER), self.r.choice(self.servers).client() as client:
            client.execute_command("FAILOVER", *words)
            self.counts["handover " + ("ended" if words == ("ABORT",) else "begun")] += 1

    def follow_directly(self) -> None:
        """A follower follows the leader itself, and no longer through another follower."""
        with suppress(*NO_ANSWER):
            told = [(server, server.info()) for server in self.servers if server.up]
            leaders = [server for server, info in told if info["role"] == "master"]
            others = [server for server, info in told if info["role"] == "slave"]
            if len(leaders) == 1 and others:
                self.r.choice(others).node.follow(leaders[0].proxy.port)

    def blow(self) -> None:
        """The storm, until everything is put right."""
        steps: list[tuple[float, Callable[[], None]]] = [
            (20, self.write),
            (1, self.fold),
            (1, self.fall_behind),
            (1, self.kill),
            (0.5, self.stop),
            (4, self.start),
            (2, self.cut),
            (1, self.stall),
            (3, self.fail_over),
            (0.5, self.follow_directly),
        ]
        for _ in range(ROUND):
            self.step += 1
            self.r = random.Random(f"{self.seed} {self.step}")
            (step,) = self.r.choices([each for _, each in steps], [often for often, _ in steps])
            self.counts[step.__name__] += 1
            step()

    # --- and is put right

    def settle(self) -> None:
        """Everything runs and is connected: one leads, and the others hold what it holds."""
        for server in self.servers:
            server.proxy.open.set()
            server.start()

        def roles() -> list[str]:
            told = [server.info() for server in self.servers]
            return sorted(
                each["role"] if each["master_failover_state"] == "no-failover" else "handing over"
                for each in told
            )

        until(lambda: roles() == ["master", "slave", "slave"], "the handover does not end")
        (leader,) = [server for server in self.servers if server.info()["role"] == "master"]
        others = [server for server in self.servers if server is not leader]
        with leader.client(60.0) as client:
            client.xadd(KEPT, {"n": 0})  # the numbers of steps begin at 100
        for server in others:
            until(server.node.is_linked, "a link hangs")
        until(
            lambda: sum(server.info()["connected_slaves"] for server in self.servers) == 2,
            "a link is left",
        )
        lsn = leader.node.lsn()
        until(
            lambda: all(server.node.lsn() >= lsn for server in others),
            "a follower does not catch up",
        )
        # The leader deletes expired keys meanwhile, so a moment can differ, but not for long.
        until(
            lambda: len({server.node.digest() for server in self.servers}) == 1,
            "they do not hold the same",
        )
        with leader.client(60.0) as client:
            found = {int(fields[b"n"]) for _, fields in client.xrange(KEPT)}
            assert not set(self.confirmed) - found, "what was confirmed is gone"
        self.counts["rounds"] += 1


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", slow_and_soak(3, 40))
def test_a_storm(tmp_path: Path, rounds: int) -> None:
    (seed,) = new_seeds(1)
    storm = Storm(tmp_path, seed)
    with ended(*(server.node for server in storm.servers)):
        try:
            for _ in range(rounds):
                storm.blow()
                storm.settle()
            for server in storm.servers:
                server.end(signal.SIGTERM)
            until(lambda: not any(each.proxy.links for each in storm.servers), "a link is left")
        finally:
            storm.close()
            for server in storm.servers:
                text = server.node.errors.read_text()
                storm.counts["copies"] += text.count("gets the snapshot")
                storm.counts["led"] += text.count(" leads from LSN ")
                storm.counts["went back"] += text.count("FAILOVER: aborted")
            print(storm.counts)
    digests = set()
    for server in storm.servers:
        with tidelog.open(server.node.root) as db:
            digests.add(db.digest())
            assert not snapshots(RealDisk(), server.node.root / identity.SNAPSHOTS)
    assert len(digests) == 1
