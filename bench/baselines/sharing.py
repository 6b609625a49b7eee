"""Queues that several processes share, each as one of these processes uses it: tidelog's, and others.

`place` is a directory; for redis-py and RQ the port of a redis-server. A job has 100 bytes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

VALUE: Final = b"v" * 100
NAME: Final = "jobs"
EMPTY_S: Final = 0.001  # a worker of a queue that cannot block looks again after this time
PAUSE_S: Final = 0.003  # between two pings


class Shared(ABC):
    """One queue. All of these work for a number of seconds."""

    @abstractmethod
    def put(self, value: bytes) -> object:
        """Put one job."""

    @abstractmethod
    def take(self) -> bytes | None:
        """Take one job and acknowledge it. Returns its value; None if none came for a while."""

    def puts(self, seconds: float) -> int:
        """The number of jobs that were put."""
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            self.put(VALUE)
            count += 1
        return count

    def takes(self, seconds: float) -> int:
        """The number of jobs that were taken and acknowledged."""
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            count += self.take() is not None
        return count

    def pings(self, seconds: float) -> None:
        """Put jobs that say when they were put, with pauses."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.put(b"%d" % time.monotonic_ns())
            time.sleep(PAUSE_S)

    def pongs(self, seconds: float) -> list[float]:
        """Seconds from before each put to its delivery here."""
        until, found = time.monotonic() + seconds, []
        while time.monotonic() < until:
            value = self.take()
            if value is not None:
                found.append((time.monotonic_ns() - int(value)) / 1e9)
        return found

    def close(self) -> None: ...


class Tidelog(Shared):
    def __init__(self, place: str, fsync: str) -> None:
        # here: the processes of other systems do not load it
        import tidelog

        self._queue: Any = tidelog.queue(place, NAME, shared=True, codec="bytes", fsync=fsync)
        self._jobs = iter(self._queue.consume(block=1))

    def put(self, value: bytes) -> object:
        return self._queue.put(value)

    def take(self) -> bytes | None:
        job = next(self._jobs, None)
        if job is None:
            self._jobs = iter(self._queue.consume(block=1))
            return None
        job.ack()
        value: bytes = job.value
        return value

    def close(self) -> None:
        self._queue.close()


class Redis(Shared):
    """The commands that a queue on streams needs, through redis-py."""

    def __init__(self, place: str, fsync: str) -> None:
        import redis

        self._client: Any = redis.Redis(port=int(place), protocol=2)
        try:
            self._client.xgroup_create(NAME, "workers", "0", mkstream=True)
        except redis.ResponseError:
            pass  # another process has created it

    def put(self, value: bytes) -> object:
        return self._client.xadd(NAME, {"value": value})

    def take(self) -> bytes | None:
        found = self._client.xreadgroup("workers", str(id(self)), {NAME: ">"}, 1, 1000)
        if not found:
            return None
        ((_, ((id_, fields),)),) = found
        pipe = self._client.pipeline(transaction=True)
        pipe.xack(NAME, "workers", id_)
        pipe.xdel(NAME, id_)
        pipe.execute()
        value: bytes = fields[b"value"]
        return value


class Rq(Shared):
    """Jobs of RQ, deleted when they are done. Its workers run each job in a new process; that is left out."""

    def __init__(self, place: str, fsync: str) -> None:
        import redis
        import rq
        from rq.exceptions import DequeueTimeout

        self._client: Any = redis.Redis(port=int(place), protocol=2)
        self._queue: Any = rq.Queue(NAME, connection=self._client)
        self._empty: type[Exception] = DequeueTimeout

    def put(self, value: bytes) -> object:
        return self._queue.enqueue_call("builtins.len", (value,))

    def take(self) -> bytes | None:
        try:
            found = self._queue.dequeue_any([self._queue], 1, self._client)
        except self._empty:
            return None
        if found is None:
            return None
        job = found[0]
        value: bytes = job.args[0]
        job.delete()
        return value


class Huey(Shared):
    """It has no ack: an entry is forgotten when it is handed out."""

    def __init__(self, place: str, fsync: str) -> None:
        from huey.storage import SqliteStorage

        self._storage: Any = SqliteStorage(
            NAME, str(Path(place) / "huey.db"), fsync=fsync == "always"
        )

    def put(self, value: bytes) -> object:
        return self._storage.enqueue(value)

    def take(self) -> bytes | None:
        found: bytes | None = self._storage.dequeue()
        if found is None:
            time.sleep(EMPTY_S)
        return found


class Lite(Shared):
    def __init__(self, place: str, fsync: str) -> None:
        from litequeue import LiteQueue

        self._queue: Any = LiteQueue(Path(place) / "queue.db")
        if fsync == "always":
            self._queue.conn.execute("PRAGMA synchronous = FULL")

    def put(self, value: bytes) -> object:
        return self._queue.put(value.decode())

    def take(self) -> bytes | None:
        found = self._queue.pop()
        if found is None:
            time.sleep(EMPTY_S)
            return None
        self._queue.done(found.message_id)
        value: str = found.data
        return value.encode()
