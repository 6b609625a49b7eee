"""Workers of test_per_key. Started as `python keyed.py BACKEND WAY ROOT`, they take jobs until none came for a while.

A handler adds a line when it begins, and one when it ends, to the file that the environment names DONE.
"""

import asyncio
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import tidelog

OPTIONS: dict[str, Any] = {"concurrency_per_key": 1}
RUN: dict[str, Any] = {"workers": 4, "block": 0.5}
WORK_S = 0.01


def note(word: str, job: Any) -> None:
    file = os.open(os.environ["DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{word} {job.key} {job.value} {os.getpid()}\n".encode())
    os.close(file)


def handle(job: Any) -> None:
    note("begins", job)
    time.sleep(WORK_S)  # the work
    note("ends", job)


async def ahandle(job: Any) -> None:
    note("begins", job)
    await asyncio.sleep(WORK_S)
    note("ends", job)


async def tasks(backend: str, root: Path) -> None:
    open_ = tidelog.aopen if backend == "embedded" else tidelog.aconnect
    async with open_(root) as store:
        await store.queue("q", **OPTIONS).arun(ahandle, **RUN)


def main() -> None:
    backend, way, root = sys.argv[1:4]
    if way == "tasks":
        asyncio.run(tasks(backend, Path(root)))
        return
    open_: Any = tidelog.open if backend == "embedded" else tidelog.connect
    more = {"processes": 2} if way == "processes" else {}
    with open_(root) as store:
        # the handler by the name of its module, from which other processes import it
        handler = import_module("keyed").handle
        store.queue("q", **OPTIONS).run(handler, **RUN, **more)


if __name__ == "__main__":
    main()
