"""The process that the demo kills: one producer and several workers over one embedded store.

Run as `python -m tidelog.tools.demo_child DIRECTORY` with a JSON `Task` on the first line of standard input.
It may die at any instruction. Everything it has to know after that, it finds in the store:

* how many lines are stored already: the stream's `entries-added` (a batch is one unit, there whole or not at all);
* what a worker was given and did not acknowledge: the worker's own history in the group.

It ends by itself when every line is acknowledged, and at once when standard input closes (the parent is gone).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import tidelog

KEY: Final = "lines"
GROUP: Final = "workers"
STORE_BATCH: Final = 200
READ_BATCH_MAX: Final = 20


@dataclass(frozen=True)
class Task:
    """What the parent tells its child."""

    lines: str  # path of the file with the lines
    workers: int
    fsync: str
    rate: float  # messages per second that all workers together are to take
    seed: int

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


class Life:
    """One run of the child, from opening the store to its own end or a kill."""

    def __init__(self, db: Any, task: Task) -> None:
        self.db = db
        self.task = task
        self.lines = Path(task.lines).read_bytes().splitlines()
        self.all_stored = threading.Event()
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            self.db.xgroup_create(KEY, GROUP, id="0", mkstream=True)
        except tidelog.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        threads = [threading.Thread(target=self.guarded, args=(self.produce,))]
        for number in range(1, self.task.workers + 1):
            threads.append(threading.Thread(target=self.guarded, args=(self.work, number)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def guarded(self, body: Any, *args: Any) -> None:
        try:
            body(*args)
        except BaseException as error:
            self.failures.append(error)
            self.all_stored.set()

    def produce(self) -> None:
        """Store the lines that are not stored yet, faster than they are consumed."""
        stored = self.db.xinfo_stream(KEY)["entries-added"]
        pause_s = STORE_BATCH / (self.task.rate * 3)
        for start in range(stored, len(self.lines), STORE_BATCH):
            batch = self.lines[start : start + STORE_BATCH]
            self.db.xadd_many(KEY, [{"n": start + i, "line": line} for i, line in enumerate(batch)])
            time.sleep(pause_s)
        self.all_stored.set()

    def work(self, number: int) -> None:
        """One worker: first what it was given before the last kill, then new messages."""
        name = f"worker-{number}"
        dice = random.Random(f"{self.task.seed} {name} {os.getpid()}")
        step_s = self.task.workers / self.task.rate
        due = time.monotonic()
        position = "0"
        while not self.failures:
            reply = self.db.xreadgroup(
                GROUP, name, {KEY: position}, count=dice.randint(1, READ_BATCH_MAX), block=100
            )
            messages = reply[0][1] if reply else []
            if not messages:
                if position == "0":
                    position = ">"
                elif self.all_stored.is_set() and not self.db.xpending(KEY, GROUP)["pending"]:
                    return
                continue
            for id, fields in messages:
                hashlib.blake2b(fields[b"line"]).digest()  # the work
                due = max(due + step_s, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
                self.db.xack(KEY, GROUP, id)


def leave_with_the_parent() -> None:
    """A parent that is gone closes our standard input; nobody would read what we do."""

    def wait() -> None:
        # Not sys.stdin: the interpreter cannot end while a thread holds that buffer's lock.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    task = Task(**json.loads(sys.stdin.buffer.readline()))
    leave_with_the_parent()
    with tidelog.open(sys.argv[1], fsync=task.fsync) as db:
        Life(db, task).run()


if __name__ == "__main__":
    main()
