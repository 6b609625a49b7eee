"""tidelog as a worker: through its public interface alone, as an application would use it."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
from itertools import islice
from pathlib import Path
from typing import Any, Final

import tidelog
from bench.baselines.peer import Peer
from bench.messages import BATCH
from bench.wire import GROUP, STREAM
from tidelog import testing

CONSUMER: Final = "worker-1"
QUEUE: Final = "jobs"
DRAINED: Final = 100  # batch size when a slice consumes the jobs that it has put itself
# Settings of a store that writes a checkpoint only on request or when it is closed.
BY_HAND: Final[dict[str, Any]] = {"checkpoint_bytes": 0, "save": ()}


class Streams(Peer):
    """An embedded store with one stream and one group."""

    def __init__(self, directory: str, messages: str, fsync: str, **options: Any) -> None:
        super().__init__(messages)
        self.db: Any = tidelog.open(Path(directory) / "store", fsync=fsync, **options)
        self.db.xgroup_create(STREAM, GROUP, "0", mkstream=True)

    def add(self, count: int) -> None:
        xadd = self.db.xadd
        for fields in self.messages.some(count):
            xadd(STREAM, fields)

    def add_batches(self, count: int) -> None:
        messages = self.messages.some(count)
        for start in range(0, count, BATCH):
            pipeline = self.db.pipeline(transaction=False)
            for fields in messages[start : start + BATCH]:
                pipeline.xadd(STREAM, fields)
            pipeline.execute()

    def add_many(self, count: int) -> None:
        messages = self.messages.some(count)
        for start in range(0, count, BATCH):
            self.db.xadd_many(STREAM, messages[start : start + BATCH])

    def add_threads(self, count: int, threads: int) -> None:
        """`count` XADDs, one at a time in each of `threads` threads."""
        workers = [
            threading.Thread(target=self.add, args=(count // threads,)) for _ in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def before_take(self, count: int, at_once: int) -> None:
        self.add_many(count)

    def take(self, count: int, at_once: int) -> None:
        for _ in range(count // at_once):
            reply = self.db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=at_once)
            self._done([id for id, _ in reply[0][1]])

    def _done(self, ids: list[bytes]) -> None:
        self.db.xack(STREAM, GROUP, *ids)

    def close(self) -> None:
        self.db.close()


class Commands(Streams):
    """The stream commands that a queue uses, called directly. The difference is the cost of the queue itself."""

    def _done(self, ids: list[bytes]) -> None:
        self.db.xackdel(STREAM, GROUP, *ids, ref_policy="ACKED")


class Jobs(Peer):
    """An embedded store with queues, whose jobs are gone when they are done.

    queues    name -> options of the queue
    moved     the clock of the store is moved by hand, so that delayed jobs become due without waiting

    Slices name a queue, and may give options of `put`; besides these, `levels`: the jobs have the priorities below this
    in turn, `keys`: the number of keys that they have in turn, `within`: the longest of their random delays, seconds.
    """

    def __init__(
        self,
        directory: str,
        messages: str,
        fsync: str,
        codec: str = "bytes",
        queues: dict[str, dict[str, Any]] | None = None,
        moved: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(messages)
        self._clock = testing.Clock() if moved else None
        if self._clock is not None:
            options["clock"] = self._clock
        self.db: Any = tidelog.open(Path(directory) / "store", fsync=fsync, **options)
        kinds = queues or {QUEUE: {}}
        self.queues: dict[str, Any] = {
            name: self.db.queue(name, codec=codec, **each) for name, each in kinds.items()
        }
        self._dice = random.Random(1)

    # --- putting

    def add(self, count: int, queue: str = QUEUE, **options: Any) -> None:
        put = self.queues[queue].put
        if options.keys() & {"levels", "within"}:
            for at, value in enumerate(self.messages.some_values(count)):
                put(value, **self._option(at, options))
        elif options:
            for value in self.messages.some_values(count):
                put(value, **options)
        else:
            for value in self.messages.some_values(count):
                put(value)

    def _option(self, at: int, options: dict[str, Any]) -> dict[str, Any]:
        if "levels" in options:
            return {"priority": at % int(options["levels"])}
        return {"delay": 1 + self._dice.random() * float(options["within"])}

    def add_batches(self, count: int, queue: str = QUEUE, **options: Any) -> None:
        """One `put_many` of all, or one for each priority or key; it makes the batches."""
        put_many, values = self.queues[queue].put_many, self.messages.some_values(count)
        if "levels" in options:
            parts: list[dict[str, Any]] = [{"priority": at} for at in range(options["levels"])]
        elif "keys" in options:
            parts = [{"key": f"customer-{at}"} for at in range(options["keys"])]
        else:
            parts = [options]
        for at, part in enumerate(parts):
            put_many(values[at * count // len(parts) : (at + 1) * count // len(parts)], **part)

    def _forget(self, count: int, queue: str = QUEUE, **options: Any) -> None:
        self.queues[queue].purge()

    def add_here(self, count: int) -> None:
        """`add`, after which as many jobs wait as before."""
        self.add(count)

    def after_add_here(self, count: int) -> None:
        self.take(count, DRAINED)

    def add_and_forget(self, count: int, queue: str = QUEUE, **options: Any) -> None:
        """`add`, after which no job waits."""
        self.add(count, queue, **options)

    def batches_and_forget(self, count: int, queue: str = QUEUE, **options: Any) -> None:
        """`add_batches`, after which no job waits."""
        self.add_batches(count, queue, **options)

    after_add_and_forget = after_batches_and_forget = _forget

    # --- working

    def before_take(self, count: int, at_once: int, queue: str = QUEUE, **options: Any) -> None:
        if "within" in options:
            self.add(count, queue, **options)
        else:
            self.add_batches(count, queue, **options)
        if self._clock is not None:
            self._clock.advance(float(options.get("delay", options.get("within", 0))) + 2)

    def take(self, count: int, at_once: int, queue: str = QUEUE, **options: Any) -> None:
        """Consume `count` jobs with one consumer. They are all acknowledged when it is closed.

        Raises RuntimeError when the queue has fewer.
        """
        taken = 0
        with self.queues[queue].consume(CONSUMER, batch=at_once, block=0) as jobs:
            for job in islice(jobs, count):
                with job:
                    taken += 1
        if taken != count:
            raise RuntimeError(f"only {taken} of {count} jobs were delivered")

    def left(self, queue: str = QUEUE) -> int:
        """Entries in the queue's stream."""
        found: int = self.db.xlen(queue)
        return found

    def trim(self) -> None:
        """Make the C library return free memory to the system, if it supports that."""
        gc.collect()
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if malloc_trim is not None:
            malloc_trim(0)

    def checkpoint(self) -> None:
        """Make the checkpoint that a filling triggers now, so that it does not run during a race."""
        self.db.checkpoint()

    def close(self) -> None:
        self.db.close()
