"""The process that the demo kills: it puts the lines into one queue, and works on them with several workers.

Run as `python -m tidelog.tools.demo.child DIRECTORY` with a JSON `Task` on the first line of standard input.
It may die at any instruction. Everything it has to know after that, it finds in the store:

* how many lines were put already: the stream's `entries-added` (a batch is one unit, there whole or not at all);
* what a worker had in hand: the queue gives it back to the worker's name, and counts the delivery.

A line's result, its digest, is a job of a second queue, put by `done_and` in one unit with the acknowledgement. One
line makes its worker raise, delivery after delivery, until the queue gives it up.

It ends by itself when no line is waiting, in hand or paused, and at once when standard input closes (the parent is
gone).
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
# A job that is killed too often in somebody's hands dies, so there are not too many in hand, and not for long.
IN_HAND_MAX: Final = 40  # of all workers together
STEP_SECONDS_MAX: Final = 0.05  # of one line
MAX_DELIVERIES: Final = 4
RETRY_AFTER: Final = (
    0.25  # seconds: the pauses of the poisoned line are this, twice and four times as long
)
POISON: Final = "poisoned"
NOBODY: Final = -1  # for `Task.poisoned`
WHOLE_LOG: Final = 1 << 62  # bytes: none of it is released, since the proof reads all of it


@dataclass(frozen=True)
class Task:
    """What the parent tells its child."""

    lines: str  # path of the file with the lines
    workers: int
    fsync: str
    rate: float  # lines per second that all workers together are to take
    seed: int
    poisoned: int  # number of the line that no worker gets through, or NOBODY

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def encode(value: tuple[int, bytes]) -> bytes:
    """A line's number and text, or its number and digest, as the value of a job."""
    return b"%d %b" % value


def decode(raw: bytes) -> tuple[int, bytes]:
    number, _, text = raw.partition(b" ")
    return int(number), text


def result(line: bytes) -> bytes:
    """What a worker makes of a line."""
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
        """Put the lines that are not there yet, faster than they are worked on."""
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
    # The failures of the poisoned line are on record; on the terminal they would look like the demo's own.
    logging.getLogger("tidelog.queue").addHandler(logging.NullHandler())
    try:
        with tidelog.open(sys.argv[1], fsync=task.fsync, retain_bytes=WHOLE_LOG) as db:
            Life(db, task).run()
    except (OSError, tidelog.TidelogError) as error:  # a full disk
        sys.exit(str(error))


if __name__ == "__main__":
    main()
