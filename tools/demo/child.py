"""The process that the demo kills. It puts the lines into one queue and processes them with several workers.

Run as `python -m tidelog.tools.demo.child DIRECTORY` with a JSON `Task` on the first line of standard input. It may
die at any instruction. After that, the next child finds everything it needs in the store:

* how many lines were put already: the stream's `entries-added` (a batch is one unit, stored whole or not at all);
* the jobs that a worker held: the queue delivers them to the worker's name again, and counts the delivery.

A line's result, its digest, is a job of a second queue, put by `done_and` in one unit with the acknowledgement. One
line, the poisoned one, makes its worker raise at every delivery, until the queue makes it a dead job.

The child ends by itself when no line is waiting, in flight or paused. It ends at once when standard input closes,
because the parent has ended.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import tidelog

LINES: Final = "lines"
RESULTS: Final = "results"
PUT_BATCH: Final = 200
# A job whose worker is killed too often becomes a dead job. To make this rare, the workers hold only a few jobs at a
# time, each for a short time.
IN_HAND_MAX: Final = 40  # of all workers together
STEP_SECONDS_MAX: Final = 0.05  # of one line
MAX_DELIVERIES: Final = 4
# In seconds. The pauses before the retries of the poisoned line are once, twice and four times this.
RETRY_AFTER: Final = 0.25
POISON: Final = "poisoned"
NOBODY: Final = -1  # for `Task.poisoned`
WHOLE_LOG: Final = 1 << 62  # bytes of log to keep: all of it, because the proof reads all of it


@dataclass(frozen=True)
class Task:
    """The settings that the parent sends to its child."""

    lines: str  # path of the file with the lines
    workers: int
    fsync: str
    rate: float  # lines per second that all workers together should reach
    seed: int
    poisoned: int  # number of the line that every worker fails to finish, or NOBODY

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def encode(value: tuple[int, bytes]) -> bytes:
    """A line's number and text, or its number and digest, as the value of a job."""
    return b"%d %b" % value


def decode(raw: bytes) -> tuple[int, bytes]:
    number, _, text = raw.partition(b" ")
    return int(number), text


def result(line: bytes) -> bytes:
    """The result that a worker computes from a line."""
    return hashlib.blake2b(line, digest_size=8).hexdigest().encode()


def lines_of(db: tidelog.Store) -> tidelog.Queue:
    """The queue of the lines."""
    return db.queue(
        LINES, codec=(encode, decode), max_deliveries=MAX_DELIVERIES, retry_after=RETRY_AFTER
    )


class Life:
    """One run of the child, from opening the store to its own end or a kill."""

    def __init__(self, db: tidelog.Store, task: Task) -> None:
        self.task = task
        self.texts = Path(task.lines).read_bytes().splitlines()
        self.lines = lines_of(db)
        self.results = db.queue(RESULTS, codec=(encode, decode))
        self.lines.subscribe()
        self.put_before: int = db.xinfo_stream(LINES)["entries-added"]
        self.all_put = threading.Event()
        self.failures: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self.guarded, args=(self.produce,))]
        for number in range(1, self.task.workers + 1):
            threads.append(threading.Thread(target=self.guarded, args=(self.work, number)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def guarded(self, body: Callable[..., None], *args: Any) -> None:
        try:
            body(*args)
        except BaseException as error:
            self.failures.append(error)
            self.all_put.set()

    def produce(self) -> None:
        """Put the lines that are not stored yet, faster than the workers process them."""
        pause_s = PUT_BATCH / (self.task.rate * 3)
        for start in range(self.put_before, len(self.texts), PUT_BATCH):
            self.lines.put_many(enumerate(self.texts[start : start + PUT_BATCH], start))
            time.sleep(pause_s)
        self.all_put.set()

    def work(self, number: int) -> None:
        """One worker, until every line is done or dead."""
        name = f"worker-{number}"
        dice = random.Random(f"{self.task.seed} {name} {os.getpid()}")
        step_s = min(STEP_SECONDS_MAX, self.task.workers / self.task.rate)
        most = max(1, IN_HAND_MAX // self.task.workers)
        due = time.monotonic()
        while not self.failures and not (self.all_put.is_set() and not len(self.lines)):
            for job in self.lines.consume(name, batch=dice.randint(1, most), block=0.1):
                with job:
                    n, line = job.value
                    if n == self.task.poisoned:
                        raise ValueError(POISON)
                    digest = result(line)
                    due = max(due + step_s, time.monotonic())
                    time.sleep(max(0.0, due - time.monotonic()))
                    job.done_and(self.results.new((n, digest)))


def leave_with_the_parent() -> None:
    """End this process when standard input closes, which means that the parent has ended."""

    def wait() -> None:
        # Do not read sys.stdin: the interpreter cannot end while a thread holds the lock of its buffer.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    task = Task(**json.loads(sys.stdin.buffer.readline()))
    leave_with_the_parent()
    # The queue stores the failures of the poisoned line. Do not print them, because they would look like failures of
    # the demo.
    logging.getLogger("tidelog.queue").addHandler(logging.NullHandler())
    try:
        with tidelog.open(sys.argv[1], fsync=task.fsync, retain_bytes=WHOLE_LOG) as db:
            Life(db, task).run()
    except (OSError, tidelog.TidelogError) as error:  # a full disk
        sys.exit(str(error))


if __name__ == "__main__":
    main()
