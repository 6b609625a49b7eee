"""A process that works on a shared queue until it gets the value "end", and says what it gets.

python stuck_worker.py STORE FACE WORKERS LEASE MAX_DELIVERIES

FACE is "threads" or "asyncio". Its workers share one name, as those of `run` do.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import tidelog


def say(job: Any) -> None:
    sys.stdout.write(f"{job.value} {job.deliveries}\n")  # in one piece, as threads write at once
    sys.stdout.flush()


def work(queue: Any) -> None:
    for job in queue.consume("worker"):
        with job:
            say(job)
            if job.value == "end":
                return


async def awork(queue: Any) -> None:
    async for job in queue.consume("worker"):
        async with job:
            say(job)
            if job.value == "end":
                return


async def main(store: str, workers: int, options: dict[str, Any]) -> None:
    async with await tidelog.aconnect(store) as db:
        queue = db.queue("mails", **options)
        await asyncio.gather(*(awork(queue) for _ in range(workers)))


if __name__ == "__main__":
    _, store, face, workers, lease, most = sys.argv
    options: dict[str, Any] = {"retry_after": float(lease), "max_deliveries": int(most)}
    if face == "asyncio":
        asyncio.run(main(store, int(workers), options))
    else:
        with tidelog.connect(store) as db:
            args = (db.queue("mails", **options),)
            threads = [threading.Thread(target=work, args=args) for _ in range(int(workers))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
