"""The worker process of test_hooks. Started as `python hooks_worker.py DIRECTORY HOOK BACKEND`.

Its hook writes a line and waits to be killed.
"""

import sys
import threading
from typing import Any

import tidelog

root, place, backend = sys.argv[1:]


def stop(job: Any, *told: Any) -> None:
    """Say where, and wait to be killed."""
    print(place, job.value, flush=True)
    threading.Event().wait()


def handle(job: Any) -> None:
    if place == "on_retry":
        raise LookupError("no such address")


options: Any = {"shared": backend == "shared", "retry": "max=3 base=0.001 jitter=no"}
queue: Any = tidelog.queue(root, "jobs", **options)
with queue as jobs:
    jobs.run(handle, workers=1, **{place: stop})
