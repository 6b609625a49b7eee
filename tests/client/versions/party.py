"""A process of either version, which puts jobs into a shared queue, or works on them: both versions run this file.

party.py put STORE NAME COUNT     prints each value whose put was acknowledged
party.py work STORE               prints each value that was done; SIGTERM ends it
party.py awork STORE              the same, for asyncio
party.py crowd STORE NAME CLIENTS many clients that put until SIGTERM, and print as `put` does
party.py open STORE               starts the owner
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from typing import Any

import tidelog

# Long enough for a process that is stopped meanwhile.
OPTIONS: dict[str, Any] = {"retry_after": 30, "max_deliveries": 20}
TIMEOUT_S = 60


def put(store: str, name: str, count: int) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"delay": 0.05},
        {"priority": 3},
        {"key": "k"},
        {"headers": {"a": "b"}},
    ]
    with tidelog.connect(store, timeout=TIMEOUT_S) as db:
        queue = db.queue("q", **OPTIONS)
        for number in range(count):
            value = f"{name}-{number}"
            try:
                queue.put(value, **kinds[number % len(kinds)])
            except tidelog.OutcomeUnknown:
                continue
            print(value, flush=True)


def crowd(store: str, name: str, clients: int) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    failed: list[BaseException] = []

    def run(client: int) -> None:
        try:
            with tidelog.connect(store, timeout=TIMEOUT_S) as db:
                queue = db.queue("jobs", codec="str")
                number = 0
                while not over.is_set():
                    value = f"{name}-{client}-{number}"
                    number += 1
                    try:
                        queue.put(value)
                    except tidelog.OutcomeUnknown:
                        continue
                    sys.stdout.write(f"{value}\n")
                    sys.stdout.flush()
        except BaseException as error:
            failed.append(error)
            over.set()

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def work(store: str) -> None:
    with tidelog.connect(store, timeout=TIMEOUT_S) as db:
        queue = db.queue("q", **OPTIONS)
        print("ready", flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        for job in queue.consume():
            with job:
                print(job.value, flush=True)


async def awork(store: str) -> None:
    async with tidelog.aconnect(store, timeout=TIMEOUT_S) as db:
        queue = db.queue("q", **OPTIONS)
        print("ready", flush=True)
        this = asyncio.current_task()
        assert this is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
        async for job in queue.consume():
            async with job:
                print(job.value, flush=True)


def main() -> None:
    role, store, *rest = sys.argv[1:]
    if role == "put":
        put(store, rest[0], int(rest[1]))
    elif role == "crowd":
        crowd(store, rest[0], int(rest[1]))
    elif role == "work":
        work(store)
    elif role == "awork":
        try:
            asyncio.run(awork(store))
        except asyncio.CancelledError:
            pass
    else:
        with tidelog.connect(store, timeout=TIMEOUT_S) as db:
            db.ping()


if __name__ == "__main__":
    main()
