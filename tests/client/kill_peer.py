"""A putter or a worker of a shared queue, until it is killed. Tells each step on standard output, one line each.

put VALUE ID        the put was acknowledged          lost VALUE    its outcome is unknown
start ID VALUE NS   the job was delivered, at this time of the system's monotonic clock
done ID NS          its acknowledgement returned      late ID       its lease was lost      unknown ID
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import tidelog


def tell(*words: object) -> None:
    """One line, in one write."""
    sys.stdout.buffer.write(" ".join(map(str, words)).encode() + b"\n")
    sys.stdout.buffer.flush()


def put(queue: Any, name: str) -> None:
    """Put numbered values for ever."""
    number = 0
    while True:
        number += 1
        value = f"{name}-{number}"
        try:
            tell("put", value, queue.put(value))
        except tidelog.OutcomeUnknown:
            tell("lost", value)


def work(queue: Any, name: str, pick: random.Random) -> None:
    """Take jobs for ever, and end them in some way."""
    for job in queue.consume(name, batch=1):
        tell("start", job.id, job.value, time.monotonic_ns())
        roll = pick.random()
        try:
            if roll < 0.1:
                job.nack("again", delay=0.01)
            elif roll < 0.15:
                job.release()
            elif job.ack():
                tell("done", job.id, time.monotonic_ns())
            else:
                tell("late", job.id)
        except tidelog.OutcomeUnknown:
            tell("unknown", job.id)


def main() -> None:
    """`kill_peer.py put|work PATH NAME SEED POLICY`."""
    role, path, name, seed, policy = sys.argv[1:]
    options: Any = {"retry_after": 0.5, "max_deliveries": 1_000_000}
    with tidelog.queue(path, "q", shared=True, fsync=policy, **options) as queue:
        if role == "put":
            put(queue, name)
        else:
            work(queue, name, random.Random(int(seed)))


if __name__ == "__main__":
    main()
