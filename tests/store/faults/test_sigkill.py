"""kill -9 at random moments, under every policy: what a call returned for is there after the next open."""

import random
from pathlib import Path

import pytest
from tests.rounds import slow_and_soak
from tests.store.faults.killed import run_and_kill

import tidelog

POLICIES = ("always", "everysec", "no")
UNHEARD = 1  # per thread and round: an XACK returned, and the kill came before its line was written


class Promised:
    """The promises to the killed processes so far, by thread."""

    def __init__(self) -> None:
        self.added: dict[int, int] = {}
        self.delivered: dict[int, set[bytes]] = {}
        self.acked: dict[int, set[bytes]] = {}

    def take(self, lines: list[bytes]) -> None:
        for line in lines:
            kind, _, rest = line.partition(b" ")
            if kind == b"ready":
                continue
            thread_text, _, what = rest.partition(b" ")
            thread = int(thread_text)
            if kind == b"a":
                assert int(what) > self.added.get(thread, -1)
                self.added[thread] = int(what)
            elif kind == b"d":
                self.delivered.setdefault(thread, set()).add(what)
            else:
                self.acked.setdefault(thread, set()).add(what)


def verify(directory: Path, policy: str, promised: Promised) -> None:
    with tidelog.open(directory, fsync=policy) as db:
        for thread, number in promised.added.items():
            stream = f"w:{thread}"
            numbers = [int(fields[b"n"]) for _id, fields in db.xrange(stream)]
            assert numbers == list(range(len(numbers))), "an entry is missing or doubled"
            assert len(numbers) > number, f"{stream}: {number} was acknowledged and is gone"
            acked = promised.acked.get(thread, set())
            pending = {
                row["message_id"]
                for row in db.xpending_range(stream, "g", min="-", max="+", count=10_000_000)
            }
            assert not acked & pending, "an acknowledged XACK came back"
            missing = promised.delivered.get(thread, set()) - acked - pending
            assert len(missing) <= UNHEARD, "a delivery is neither pending nor acknowledged"
            promised.acked[thread] = acked | missing


def rounds(directory: Path, policy: str, count: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    promised = Promised()
    for number in range(count):
        # A fresh directory now and then keeps each recovery short.
        if number % 25 == 0:
            promised, where = Promised(), directory / f"{policy}-{number}"
        promised.take(run_and_kill(where, policy, dice.uniform(0.0, 0.12)))
        verify(where, policy, promised)


@pytest.mark.parametrize("policy", POLICIES)
def test_sigkill_loses_nothing_acknowledged(tmp_path: Path, policy: str) -> None:
    rounds(tmp_path, policy, 2)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", slow_and_soak(34, 200))
@pytest.mark.parametrize("policy", POLICIES)
def test_many_sigkills_lose_nothing_acknowledged(tmp_path: Path, policy: str, count: int) -> None:
    rounds(tmp_path, policy, count)
