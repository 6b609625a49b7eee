"""kill -9 of a server under load from 20 clients: whatever it has answered is there after the next start."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rounds import slow_and_soak
from tests.server.durability.load import Load, check

import tidelog

CHILD = Path(__file__).with_name("kill_child.py")
CLIENTS = 20


def rounds(root: Path, policy: str, count: int, seed: int) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    load = Load(CLIENTS)
    for _ in range(count):
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(root), policy], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        try:
            port = int(child.stdout.readline())
            load.start(port, pick.randint(20, 600))
            assert load.enough.wait(60)
            child.send_signal(signal.SIGKILL)
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        load.stop()
        with tidelog.open(root, read_only=True) as db:
            check(db, load.promised)


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_what_was_answered_is_there(tmp_path: Path, policy: str) -> None:
    rounds(tmp_path / "store", policy, 2, seed=1)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", slow_and_soak(10, 50))
@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_many_rounds(tmp_path: Path, policy: str, count: int) -> None:
    rounds(tmp_path / "store", policy, count, seed=2)
