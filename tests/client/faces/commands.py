"""A queue of QUEUE commands, sent by redis-py, with the methods of `Queue` that the stateful models call.

It is a client as one in another language would be: it knows the commands and their replies. Only dead jobs and what
became of a job are shown by classes of the package.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self

import redis

from tidelog.engine import ids
from tidelog.jobs.codecs import codec_of
from tidelog.jobs.options import job_number
from tidelog.jobs.rows import DeadJob, moment
from tidelog.jobs.verbs.job import AskJob

SHOWN: Final = 10_000
OPEN, ACKED, GIVEN, LOST = "open", "acked", "given", "lost"


class CommandStore:
    """The queues and schedules of a server, over one connection."""

    def __init__(self, port: int) -> None:
        self.client: Any = redis.Redis(port=port, protocol=2, single_connection_client=True)

    def close(self) -> None:
        self.client.close()

    def queue(self, name: str, **options: Any) -> CommandQueue:
        return CommandQueue(self.client, name, options)

    def schedule(self, name: str, *, every: float, queue: str, catch_up: str) -> None:
        words = ("EVERY", round(every * 1000), "CATCHUP", catch_up)
        self.client.execute_command("QUEUE", "SCHEDULE", "ADD", name, queue, "null", *words)


class CommandQueue:
    """One queue. Its values are JSON."""

    def __init__(self, client: Any, name: str, options: dict[str, Any]) -> None:
        self.client, self.name = client, name
        self.begun: set[str] = set()  # workers whose names were told
        self._options: list[Any] = ["CODEC", "json"]  # its name is kept with dead jobs
        for option, value in options.items():
            if value is not None:
                number = round(value * 1000) if option == "retry_after" else value
                self._options += (option.replace("_", ""), number)
        self.dead = CommandDead(self)

    def call(self, verb: str, *words: Any) -> Any:
        return self.client.execute_command("QUEUE", verb, self.name, *words, *self._options)

    def __len__(self) -> int:
        return int(self.call("LEN"))

    # --- putting

    def put(self, value: Any, *, headers: dict[str, str] | None = None, **given: Any) -> str:
        more: list[Any] = _words(given)
        if headers:
            more += ("HEADERS", len(headers), *(word for pair in headers.items() for word in pair))
        return str(self.call("PUT", json.dumps(value), *more).decode())

    def put_many(self, values: Iterable[Any], **given: Any) -> int:
        texts, stored = list(map(json.dumps, values)), 0
        while stored < len(texts):
            left = texts[stored:]
            stored += self.call("PUTMANY", len(left), *left, *_words(given))
        return stored

    def new(self, value: Any, **given: Any) -> list[Any]:
        return [self.name, json.dumps(value), *_words(given), *self._options]

    def cancel(self, id: str) -> bool:
        return bool(self.call("CANCEL", id))

    def move(self, id: str, **given: Any) -> bool:
        return bool(self.call("MOVE", id, *_words(given)))

    def pause(self) -> bool:
        return bool(self.call("PAUSE"))

    def resume(self) -> bool:
        return bool(self.call("RESUME"))

    def paused_at(self) -> int | None:
        found: int | None = self.call("PAUSED")
        return found

    def job(self, id: str) -> Any:
        return AskJob(job_number(id)).result(self.call("JOB", id))

    def purge(self) -> int:
        total, more = 0, 1
        while more:
            dropped, more = self.call("PURGE")
            total += dropped
        return total

    # --- taking

    def get(self, worker: str, block: float) -> CommandJob | None:
        with self.consume(worker, 1, block) as consumer:
            return next(consumer, None)

    def consume(
        self, worker: str, batch: int = 1, block: float = 0, time_limit: float | None = None
    ) -> CommandConsumer:
        assert block == 0
        return CommandConsumer(self, worker, batch, time_limit)

    # --- looking

    def stats(self) -> Any:
        found = pairs(self.call("STATS", "MORE"))
        found["in_flight"] = pairs(found["in_flight"])
        ranks = pairs(found["by_priority"])
        found["by_priority"] = {int(rank): count for rank, count in ranks.items()}
        for name, value in found.items():
            if isinstance(value, bytes):
                found[name] = value.decode() if name in ("name", "group") else float(value)
        return SimpleNamespace(**found)

    def peek(self, count: int, scheduled: bool) -> list[Any]:
        assert scheduled
        rows = self.call("PEEK", "COUNT", count, "SCHEDULED")
        return [SimpleNamespace(id=id.decode(), value=json.loads(row[1])) for id, row, _ in rows]


class CommandConsumer:
    """The jobs of one worker until there is none. Jobs that were taken and not looked at go back at its end."""

    def __init__(
        self, queue: CommandQueue, worker: str, batch: int, time_limit: float | None
    ) -> None:
        self._queue, self.worker = queue, worker
        self._words: list[Any] = ["COUNT", batch]
        if time_limit is not None:
            self._words += ("LIMIT", round(time_limit * 1000))
        self._unseen: deque[list[Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._unseen:
            id, count, _row = self._unseen.popleft()
            self._queue.call("RELEASE", self.worker, id, count)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> CommandJob:
        queue = self._queue
        while True:
            if not self._unseen:
                words = [] if self.worker in queue.begun else ["HISTORY"]
                found = queue.call("TAKE", self.worker, *self._words, *words)
                queue.begun.add(self.worker)
                if found is None:
                    raise StopIteration
                self._unseen.extend(found)
            id, count, row = self._unseen.popleft()
            fields = pairs(row)
            try:
                value = json.loads(fields["value"])
            except (KeyError, ValueError) as error:
                assert queue.call("FAIL", self.worker, id, count, str(error))
                continue
            return CommandJob(queue, self.worker, id.decode(), count, value, fields)


class CommandJob:
    """A job in hand."""

    def __init__(
        self,
        queue: CommandQueue,
        worker: str,
        id: str,
        deliveries: int,
        value: Any,
        fields: dict[str, bytes],
    ) -> None:
        self._queue, self.worker, self.id, self.deliveries = queue, worker, id, deliveries
        self.value, self.state = value, OPEN
        texts = {name: text.decode() for name, text in fields.items() if name != "value"}
        self.headers = {
            name.removeprefix("header."): text
            for name, text in texts.items()
            if name.startswith("header.")
        }
        self.origin, self.key = texts.get("origin"), texts.get("key")
        self.priority = int(texts.get("priority", 0))

    @property
    def enqueued_at(self) -> datetime:
        return moment(int(self.id.partition("-")[0]))

    def _end(self, verb: str, *words: Any, state: str = GIVEN) -> bool:
        if self.state != OPEN:
            return verb == "DONE" and self.state == ACKED
        held = bool(self._queue.call(verb, self.worker, self.id, self.deliveries, *words))
        self.state = state if held else LOST
        return held

    def ack(self) -> bool:
        return self._end("DONE", state=ACKED)

    def nack(self, reason: str, delay: float | None = None) -> bool:
        return self._end("RETRY", reason, *_words({"delay": delay}))

    def fail(self, reason: str) -> bool:
        return self._end("FAIL", reason)

    def release(self) -> bool:
        return self._end("RELEASE")

    def extend(self, seconds: float) -> bool:
        return self._end("EXTEND", math.ceil(seconds * 1000), state=OPEN)

    def progress(self, fraction: float, text: str) -> bool:
        return self._end("PROGRESS", fraction, "TEXT", text, state=OPEN)

    def done_and(self, *puts: list[Any]) -> bool:
        words = [word for put in puts for word in (len(put), *put)]
        return self._end("DONEAND", len(puts), *words, state=ACKED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is None:
            self.ack()
        elif isinstance(error, (Exception, SystemExit)):
            self.nack(f"{type(error).__name__}: {error}")
        else:
            self.release()
        return isinstance(error, Exception)


class CommandDead:
    """The dead jobs of a queue."""

    def __init__(self, queue: CommandQueue) -> None:
        self._queue, self._codec = queue, codec_of("json")

    def _call(self, verb: str, *words: Any) -> Any:
        return self._queue.client.execute_command("QUEUE", "DEAD", self._queue.name, verb, *words)

    def list(self) -> list[DeadJob]:
        rows = self._call("LIST", "-", SHOWN)
        return [
            DeadJob(ids.parse(id), tuple(row), self._codec, self._queue.name) for id, row in rows
        ]

    def __iter__(self) -> Any:
        return iter(self.list())

    def redrive(
        self,
        id: str | None = None,
        where: Callable[[DeadJob], bool] | None = None,
        dry_run: bool = False,
    ) -> int:
        chosen = [id] if id is not None else self._chosen(where)
        return len(chosen) if dry_run else self._change("REDRIVE", chosen)

    def purge(self, only: Sequence[str] | None = None, older_than: float | None = None) -> int:
        if older_than is not None:
            second, micro = self._queue.client.time()
            until = second + micro / 1e6 - older_than
            only = self._chosen(lambda job: job.died_at.timestamp() <= until)
        return self._change("PURGE", self._chosen() if only is None else only)

    def _chosen(self, where: Callable[[DeadJob], bool] | None = None) -> Sequence[str]:
        return [job.id for job in self.list() if where is None or where(job)]

    def _change(self, verb: str, chosen: Sequence[str]) -> int:
        return int(self._call(verb, *chosen)) if chosen else 0


def pairs(flat: Sequence[Any]) -> dict[str, Any]:
    """A reply of names and values."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _words(given: dict[str, Any]) -> list[Any]:
    """The options of a put."""
    words: list[Any] = []
    for name, value in given.items():
        if value is None:
            continue
        if name in ("delay", "ttl"):
            words += (name, round(value * 1000))
        else:
            words += ({"dedup_id": "DEDUP", "dedup": "MODE"}.get(name, name), value)
    return words
