"""The worker process of test_on_dead. Started as `python on_dead_worker.py DIRECTORY PLACE BACKEND`.

Jobs of its queue die by their only delivery. At PLACE, `handler` or `on_dead`, it writes a line and waits to be killed.
"""

import sys
import threading
from typing import Any

import tidelog


def stop(where: str, job: Any) -> None:
    """Say where, and wait to be killed."""
    print(where, job.value, flush=True)
    threading.Event().wait()


def handle(job: Any) -> None:
    if sys.argv[2] == "handler":
        stop("handler", job)
    raise LookupError("no such address")


options: Any = {"shared": sys.argv[3] == "shared", "max_deliveries": 1, "retry_after": 0.1}
queue: Any = tidelog.queue(sys.argv[1], "jobs", **options)
with queue as jobs:
    jobs.run(handle, workers=1, on_dead=lambda job: stop("on_dead", job))
