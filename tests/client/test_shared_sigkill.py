"""kill -9 of the owner, of putters and of workers of one shared queue, again and again.

Every acknowledged put is delivered; an acknowledged job is never delivered again; no put is stored twice; no process
and no socket is left behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest
from tests.client.owners import ended_owner, owner_of, owners
from tests.rounds import slow_and_soak
from tests.until import until

import tidelog
from tidelog.aof.layout import SHARED

CHILD = Path(__file__).with_name("kill_peer.py")
ROLES = ("put", "put", "work", "work", "work")


class Peers:
    """Two putters and three workers, each with its output in a file."""

    def __init__(self, root: Path, policy: str, seed: int) -> None:
        self.root, self.policy, self.pick = root, policy, random.Random(seed)
        self.outputs: list[Path] = []
        self._numbers = count(1)
        self.processes: list[subprocess.Popen[bytes]] = []
        for role in ROLES:
            self.processes.append(self.start(role))

    def start(self, role: str) -> subprocess.Popen[bytes]:
        number = next(self._numbers)
        output = self.root.parent / f"peer{number}.txt"
        self.outputs.append(output)
        seed = str(self.pick.randrange(1 << 30))
        words = [str(CHILD), role, str(self.root), f"{role}{number}", seed, self.policy]
        errors = output.with_suffix(".err")
        with output.open("wb") as told, errors.open("wb") as failed:
            return subprocess.Popen([sys.executable, *words], stdout=told, stderr=failed)

    def kill_one(self) -> None:
        """Kill the owner or a peer, once it has done something, and start another peer in its place."""
        victim = self.pick.randrange(len(ROLES) + 2)
        before = self.lines()
        until(lambda: self.lines() > before + 20, "nobody gets on")
        if victim >= len(ROLES):
            try:
                os.kill(owner_of(self.root), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass  # another owner is about to begin
            return
        process = self.processes[victim]
        assert process.poll() is None, self.errors()
        process.kill()
        process.wait(60)
        self.processes[victim] = self.start(ROLES[victim])

    def lines(self) -> int:
        return sum(output.read_bytes().count(b"\n") for output in self.outputs)

    def errors(self) -> str:
        """All that the peers wrote to standard error."""
        return "\n".join(output.with_suffix(".err").read_text() for output in self.outputs)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(60)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
@pytest.mark.parametrize("kills", slow_and_soak(12, 110))
def test_processes_are_killed(tmp_path: Path, policy: str, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    root = tmp_path / "store"
    with ended_owner(root):
        peers = Peers(root, policy, seed)
        try:
            for _ in range(kills):
                peers.kill_one()
        finally:
            peers.end()
        with tidelog.queue(
            root, "q", shared=True, retry_after=0.5, max_deliveries=1_000_000
        ) as queue:
            queue.subscribe()

            def drained() -> bool:
                for job in queue.consume(block=1):
                    taken.append((job.id, job.value))
                    assert job.ack()
                return len(queue) == 0

            taken: list[tuple[str, str]] = []
            until(drained, "jobs are left over")
        check(peers.outputs, taken)
    assert not owners(root)
    assert not (root / SHARED).exists()


def check(outputs: list[Path], taken: list[tuple[str, str]]) -> None:
    """Compare what the peers told with what was left at the end."""
    put: dict[str, str] = {}  # ID -> value
    ids = defaultdict[str, set[str]](set)  # value -> IDs that were seen
    started: list[tuple[int, str]] = []
    done: dict[str, int] = {}
    for output in outputs:
        text = output.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():
            match line.split():
                case ["put", value, id]:
                    put[id] = value
                    ids[value].add(id)
                case ["start", id, value, ns]:
                    started.append((int(ns), id))
                    ids[value].add(id)
                case ["done", id, ns]:
                    assert id not in done, f"{id} was acknowledged twice"
                    done[id] = int(ns)
    for id, value in taken:
        assert id not in done, f"{id} was acknowledged and is still there"
        ids[value].add(id)
    seen = {id for _, id in started} | {id for id, _ in taken}
    assert put.keys() <= seen, f"{len(put.keys() - seen)} acknowledged puts are lost"
    twice = {value: found for value, found in ids.items() if len(found) > 1}
    assert not twice, "these puts were stored twice"
    for at, id in started:
        assert at <= done.get(id, at), f"{id} was delivered after its acknowledgement"
    print(f"{len(put)} puts, {len(started)} deliveries, {len(done)} done")
