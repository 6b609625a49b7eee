"""The worker process of test_queue_sigkill: works until it is killed, or until nothing is left.

Started as `python kill_worker.py DIRECTORY POLICY RETRY_AFTER NAME...`, one thread for each name. Two queues are
worked off, `jobs` with done_and (the effect goes to `effects`), `plain` with a `with` block. It reports each event
to the parent as one line on standard output each, in one write(2), so what the parent has read did happen.

    s N ID       job N of `jobs` is in a worker's hands
    k N          done_and of job N returned True
    l N          done_and of job N returned False
    p N          job N of `plain` is in a worker's hands
    end          nothing is left
"""

import os
import random
import sys
import threading
import time
from typing import Any

import tidelog

DELIVERIES = 100_000


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def do_jobs(db: Any, retry_after: float, name: str, dice: random.Random) -> None:
    queue = db.queue("jobs", retry_after=retry_after, max_deliveries=DELIVERIES)
    effects = db.queue("effects")
    batch = dice.choice((1, 1, 5))
    with queue.consume(name, batch, None) as consumer:
        for job in consumer:
            number = job.value["n"]
            tell(f"s {number} {job.id}")
            way = dice.random()
            if way < 0.1:
                job.nack("on purpose", delay=dice.choice((0.0, 0.01)))
            elif way < 0.15:
                job.release()
            else:
                if way < 0.3:
                    time.sleep(dice.random() * 0.01)  # the work
                put = [effects.new({"job": number, "part": part}) for part in range(number % 3 + 1)]
                tell(f"{'k' if job.done_and(*put) else 'l'} {number}")


def do_plain(db: Any, retry_after: float, name: str, dice: random.Random) -> None:
    queue = db.queue("plain", retry_after=retry_after, max_deliveries=DELIVERIES)
    with queue.consume(name, dice.choice((1, 10)), None) as consumer:
        for job in consumer:
            with job:
                tell(f"p {job.value['n']}")


def main() -> None:
    directory, policy, retry_after, seed, *names = sys.argv[1:]
    db: Any = tidelog.open(directory, fsync=policy, segment_bytes=1 << 20)
    dice = random.Random(int(seed))
    threads = []
    for name in names:
        for work in (do_jobs, do_plain):
            own = random.Random(dice.random())
            threads.append(
                threading.Thread(target=work, args=(db, float(retry_after), name, own), daemon=True)
            )
    tell("ready")
    for thread in threads:
        thread.start()
    queues = [db.queue(name) for name in ("jobs", "plain")]
    while any(queue.stats().depth for queue in queues):
        assert all(thread.is_alive() for thread in threads), "a worker ended by itself"
        time.sleep(0.005)
    tell("end")
    os._exit(0)


if __name__ == "__main__":
    main()
