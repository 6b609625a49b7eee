"""Workers of test_poisons, one of whose jobs kills their process.

Started as `python poisoned.py BACKEND FACE BATCH ROOT`. It takes jobs with four threads or tasks until none came for
IDLE_S. A job named `poison...` kills the process, as soon as three others are running there, if they come in time.
A handler of any other job adds its name, as a line, to the file that the environment names DONE.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import tidelog

OPTIONS: dict[str, Any] = {"retry_after": 1.0, "max_deliveries": 3}
OTHERS = 3
IDLE_S = 4.0
RUN: dict[str, Any] = {"workers": 4, "block": IDLE_S, "drain": 0}

running = threading.Semaphore(0)


def end_of(name: str) -> None:
    """The work of a job, in a thread."""
    if not name.startswith("poison"):
        running.release()
        time.sleep(0.5)  # the work, during which the process is killed
        done = os.open(os.environ["DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(done, name.encode() + b"\n")
        os.close(done)
        return
    for _ in range(OTHERS):
        running.acquire(timeout=0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def handle(job: Any) -> None:
    end_of(job.value)


async def ahandle(job: Any) -> None:
    await asyncio.to_thread(end_of, job.value)


async def tasks(backend: str, root: Path, run: dict[str, Any]) -> None:
    open_ = tidelog.aopen if backend == "embedded" else tidelog.aconnect
    async with open_(root) as store:
        await store.queue("q", **OPTIONS).arun(ahandle, **run)


def threads(backend: str, root: Path, run: dict[str, Any]) -> None:
    open_: Any = tidelog.open if backend == "embedded" else tidelog.connect
    with open_(root) as store:
        store.queue("q", **OPTIONS).run(handle, **run)


def main() -> None:
    backend, face, batch, root = sys.argv[1:5]
    run = RUN | {"batch": int(batch)}
    if face == "tasks":
        asyncio.run(tasks(backend, Path(root), run))
    else:
        threads(backend, Path(root), run)


if __name__ == "__main__":
    main()
