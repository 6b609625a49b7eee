"""A walrus worker: PORT NAME DIES. Takes `jobs`, writes `done`, acknowledges; dies while at job DIES, 0 = never.

It begins with what it had when it died, and takes over what others left.
"""

import os
import signal
import sys
from typing import Any

from walrus import Database  # type: ignore[import-untyped]

IDLE_MS = 200

port, name, dies = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
database: Any = Database(port=port, protocol=2, script_dir=False)
group = database.consumer_group("workers", ["jobs"], consumer=name)
group.create()
jobs = group.jobs
handled = 0


def work(messages: list[Any]) -> None:
    global handled
    for id, fields in messages:
        handled += 1
        if handled == dies:
            os.kill(os.getpid(), signal.SIGKILL)
        database.Stream("done").add({"n": fields[b"n"], "by": name})
        jobs.ack(id)


work(jobs.read(last_id="0"))
while True:
    work(jobs.read(count=10, block=100))
    _, messages, _ = jobs.autoclaim(name, IDLE_MS, count=10)
    work(messages)
