"""The process of test_later_sigkill: puts delayed jobs, moves, cancels and does them until it is killed.

Started as `python later_worker.py DIRECTORY POLICY FIRST SEED PUTS`. One thread puts the jobs FIRST, FIRST+1, ...,
another does what is due with done_and (the effect goes to `effects`). A schedule puts a job each second. It reports to
the parent on standard output, each line in one write(2), so what the parent has read did happen.

    p N       job N was put              t N      job N is about to be put
    c N       job N was cancelled        d N      job N is about to be cancelled
    s KEY     job KEY (a number, or a tick) is in the worker's hands
    k KEY     done_and of job KEY returned True
    ready     the threads are about to start
    end       nothing is scheduled or left, and there was a tick
"""

import os
import random
import sys
import threading
import time
from typing import Any

import tidelog


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def puts(db: Any, first: int, count: int, dice: random.Random) -> None:
    queue = db.queue("jobs", max_deliveries=100_000, retry_after=0.2)
    for number in range(first, first + count):
        tell(f"t {number}")
        id = queue.put({"n": number}, delay=dice.choice((0.0, 0.01, 0.05, 0.3)))
        tell(f"p {number}")
        way = dice.random()
        if way < 0.2:
            queue.move(id, delay=dice.choice((0.0, 0.02, 0.2)))
        elif way < 0.4:
            tell(f"d {number}")
            if queue.cancel(id):
                tell(f"c {number}")


def work(db: Any) -> None:
    queue = db.queue("jobs", max_deliveries=100_000, retry_after=0.2)
    effects = db.queue("effects")
    for job in queue.consume(batch=1):
        key = job.headers.get("tick") or job.value["n"]
        tell(f"s {key}")
        if job.done_and(effects.new({"key": key})):
            tell(f"k {key}")


def main() -> None:
    directory, policy, first, seed, count = sys.argv[1:]
    db: Any = tidelog.open(directory, fsync=policy, segment_bytes=1 << 20)
    db.schedule("each-second", every=1, queue="jobs", value={}, catch_up="all")
    dice = random.Random(int(seed))
    threads = [
        threading.Thread(target=puts, args=(db, int(first), int(count), dice), daemon=True),
        *(threading.Thread(target=work, args=(db,), daemon=True) for _ in range(2)),
    ]
    tell("ready")
    for thread in threads:
        thread.start()
    queue = db.queue("jobs")
    threads[0].join()
    while (stats := queue.stats()).scheduled or stats.depth or not db.schedules.list()[0].ticks:
        assert all(thread.is_alive() for thread in threads[1:]), "a worker ended by itself"
        time.sleep(0.005)
    tell("end")
    os._exit(0)


if __name__ == "__main__":
    main()
