"""A process that puts into a queue which several processes share, or works on it.

`python -m tidelog.tools.bench.processes.sharing SYSTEM ROLE PLACE FSYNC SECONDS` prints "ready", waits for a line,
works for so long, and prints one JSON object: how many jobs it put or finished; for the roles `ping` and `pong`, the
latencies in seconds from before a put to its delivery in the other process.

Systems: tidelog, redis-py and rq (PLACE is the port of redis-server), huey, litequeue. A job has 100 bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

VALUE: Final = b"v" * 100
NAME: Final = "jobs"
EMPTY_S: Final = 0.001  # a worker of a queue that cannot block looks again after this time
PAUSE_S: Final = 0.003  # between two pings
STARTED_S: Final = 60.0


class System(Protocol):
    """One queue, as one process uses it."""

    def put(self, value: bytes) -> object:
        """Put one job."""

    def take(self) -> bytes | None:
        """Take one job and acknowledge it. Returns its value; None if none came for a while."""


class Tidelog:
    def __init__(self, place: str, fsync: str) -> None:
        # here: the processes of other systems do not load it
        import tidelog

        self._queue = tidelog.queue(place, NAME, shared=True, codec="bytes", fsync=fsync)
        self._jobs = self._queue.consume(block=1)
        self.put = self._queue.put

    def take(self) -> bytes | None:
        job = self._jobs.following()
        if job is None:
            self._jobs = self._queue.consume(block=1)
            return None
        job.ack()
        value: bytes = job.value
        return value


class Redis:
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


class Rq:
    """Jobs of RQ, deleted when they are done. Its workers run each job in a new process; that is left out."""

    def __init__(self, place: str, fsync: str) -> None:
        import redis
        import rq
        from rq.exceptions import DequeueTimeout

        self._client: Any = redis.Redis(port=int(place), protocol=2)
        self._queue: Any = rq.Queue(NAME, connection=self._client)
        self._empty = DequeueTimeout

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


class Huey:
    def __init__(self, place: str, fsync: str) -> None:
        from huey.storage import SqliteStorage  # type: ignore[import-untyped]

        self._storage = SqliteStorage(NAME, str(Path(place) / "huey.db"), fsync=fsync == "always")
        self.put = self._storage.enqueue

    def take(self) -> bytes | None:
        found: bytes | None = self._storage.dequeue()
        if found is None:
            time.sleep(EMPTY_S)
        return found


class Lite:
    def __init__(self, place: str, fsync: str) -> None:
        from litequeue import LiteQueue  # type: ignore[import-untyped]

        self._queue = LiteQueue(Path(place) / "queue.db")
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


SYSTEMS: Final[dict[str, Callable[[str, str], System]]] = {
    "tidelog": Tidelog,
    "redis-py": Redis,
    "rq": Rq,
    "huey": Huey,
    "litequeue": Lite,
}


class Peer(AbstractContextManager["Peer"]):
    """One such process, which is ready when this is made."""

    def __init__(self, system: str, role: str, place: str, fsync: str, seconds: float) -> None:
        words = [sys.executable, "-m", __name__, system, role, place, fsync, str(seconds)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self._process.wait(STARTED_S)
            raise RuntimeError(f"the {role} process of {system} could not start")

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Its answer, at its end."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()


def main(system: str, role: str, place: str, fsync: str, seconds: str) -> None:
    """Be one such process."""
    queue = SYSTEMS[system](place, fsync)
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + float(seconds)
    answer: Any = _WORK[role](queue, until)
    print(json.dumps(answer), flush=True)


def _put(queue: System, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        queue.put(VALUE)
        count += 1
    return count


def _take(queue: System, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        count += queue.take() is not None
    return count


def _ping(queue: System, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        queue.put(b"%d" % time.monotonic_ns())
        count += 1
        time.sleep(PAUSE_S)
    return count


def _pong(queue: System, until: float) -> list[float]:
    found: list[float] = []
    while time.monotonic() < until:
        value = queue.take()
        if value is not None:
            found.append((time.monotonic_ns() - int(value)) / 1e9)
    return found


_WORK: Final[dict[str, Callable[[System, float], object]]] = {
    **{"put": _put, "take": _take, "ping": _ping, "pong": _pong}
}

if __name__ == "__main__":
    main(*sys.argv[1:])
