"""A transport for kombu, and so for Celery, on durable queues of a shared store.

    import tidelog.integrations.kombu                    # registers the scheme `tidelog`

    kombu.Connection("tidelog:///app-data")              # a relative path; an absolute one has four slashes
    kombu.Connection("tidelog://", transport_options={"url": "redis://queue.example:6379"})

Each queue of kombu is a queue of the store, and each message a job, which is acknowledged when its message is. If a
process dies, the messages that it had are delivered again. The options of `Store.queue` (`retry_after`,
`max_deliveries`, `max_depth`), `fsync` and the `worker`'s name are transport options. There is no fanout, so Celery's
remote control and events reach nobody; `Transport.cancel` is the cancel of a queue.
"""

from __future__ import annotations

import json
from functools import partial
from queue import Empty
from typing import Any, Final

from kombu.transport import TRANSPORT_ALIASES, virtual

from tidelog.client.opening import connect
from tidelog.client.queue import SharedQueue
from tidelog.client.store import SharedStore
from tidelog.store.errors import TidelogError
from tidelog.store.version import __version__

# A channel whose only queue is empty waits so long on the server instead of asking again and again.
BLOCK_S: Final = 0.5
OPTIONS: Final = ("group", "retry_after", "max_deliveries", "max_depth", "keep")


class QoS(virtual.QoS):  # type: ignore[misc]
    """The messages that were delivered and not acknowledged. Their jobs are in the channel."""

    def ack(self, delivery_tag: str) -> None:
        """The message is done."""
        self.channel.settle(delivery_tag, done=True)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """The message goes back, or is dropped."""
        self.channel.settle(delivery_tag, done=not requeue)
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Give back all messages that were not acknowledged."""
        self._flush()
        for delivery_tag in list(self._delivered):
            self.channel.settle(delivery_tag, done=False)
        self._delivered.clear()
        return []


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel. Its transport has the store."""

    QoS = QoS

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self._jobs: dict[str, Any] = {}  # by delivery tag
        self._unacknowledged: set[str] = set()  # queues whose messages need no acknowledgement

    def settle(self, delivery_tag: str, *, done: bool) -> None:
        """Acknowledge a job, or give it back. If its lease was lost, it is neither."""
        job = self._jobs.pop(delivery_tag, None)
        if job is None:
            return
        if done:
            job.ack()
        else:
            job.release()

    # --- what a virtual channel implements

    def _queue(self, name: str) -> SharedQueue:
        found: SharedQueue = self.connection.queue(name)
        return found

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        limit = limit_of(message)
        given: dict[str, Any] = {} if limit is None else {"time_limit": limit}
        self._queue(queue).put(json.dumps(message).encode(), **given)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        while True:
            job = self._queue(queue).get(self.connection.worker, block=timeout or 0)
            if job is None:
                raise Empty
            try:
                message = json.loads(job.value)
                properties = message["properties"]
                delivery_tag: str = properties["delivery_tag"]
                properties["delivery_info"]["redelivered"] = job.deliveries > 1
            except (ValueError, KeyError, TypeError) as error:
                job.fail(f"no message of kombu: {error!r}")
                continue
            if queue in self._unacknowledged:
                job.ack()
            else:
                self._jobs[delivery_tag] = job
                job.on_cancel(partial(self.connection.cancelled, id_of(message)))
            return message

    def _poll(self, cycle: Any, callback: Any, timeout: float | None = None) -> Any:
        alone = len(self._active_queues) == 1 and self.connection.is_only(self)
        if not alone or timeout == 0:
            return super()._poll(cycle, callback, timeout)
        (queue,) = self._active_queues
        return callback(self._get(queue, min(BLOCK_S, timeout or BLOCK_S)), queue)

    def _size(self, queue: str) -> int:
        return self._queue(queue).stats().waiting

    def _purge(self, queue: str) -> int:
        return self._queue(queue).purge()

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return bool(self.connection.store.exists(queue))

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        self._queue(queue).subscribe()

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue."""
        if no_ack:
            self._unacknowledged.add(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def basic_cancel(self, consumer_tag: str) -> Any:
        """End a consumer."""
        self._unacknowledged.discard(self._tag_to_queue.get(consumer_tag, ""))
        return super().basic_cancel(consumer_tag)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Get one message, or None."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.settle(message.delivery_tag, done=True)
        return message


class Transport(virtual.Transport):  # type: ignore[misc]
    """A connection to a shared store."""

    Channel = Channel
    driver_type = "tidelog"
    driver_name = "tidelog"
    polling_interval = 0.05  # only with several queues or channels
    connection_errors = (*virtual.Transport.connection_errors, TidelogError)
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(("direct", "topic")))

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._store: SharedStore | None = None
        self._queues: dict[str, SharedQueue] = {}
        options = client.transport_options
        self.worker: str | None = options.get("worker")
        self._options = {name: options[name] for name in OPTIONS if name in options}

    @property
    def store(self) -> SharedStore:
        """The shared store, connected at the first call."""
        if self._store is None:
            options = self.client.transport_options
            where = options.get("url") or self.client.virtual_host
            self._store = connect(where, fsync=options.get("fsync"))
        return self._store

    def queue(self, name: str) -> SharedQueue:
        """A queue of the store."""
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = self.store.queue(name, codec="bytes", **self._options)
        return found

    def cancel(self, queue: str, message_id: str) -> bool:
        """Cancel a message that waits or was delivered, by its correlation ID, which is that of a task of Celery. It
        looks through the messages of the queue.

        Returns:
            False if the queue has no such message.
        """
        jobs = self.queue(queue)
        found = jobs.find(text=message_id)
        while True:
            for job in found.jobs:
                if job.state not in ("dead", "cancelled") and id_of(_read(job.value)) == message_id:
                    return jobs.cancel(job.id)
            if not found.until:
                return False
            found = jobs.find(text=message_id, after=found.until)

    def cancelled(self, message_id: str) -> None:
        """A message was cancelled that this connection has delivered. Its acknowledgement will do nothing."""

    def is_only(self, channel: Any) -> bool:
        """Whether no other channel has consumers."""
        return all(other is channel or not other._consumers for other in self.channels)

    def establish_connection(self) -> Any:
        """Connect to the store."""
        assert self.store
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Give back what is not acknowledged, and disconnect."""
        super().close_connection(connection)
        store, self._store = self._store, None
        self._queues.clear()
        if store is not None:
            store.close()

    def driver_version(self) -> str:
        """The version of the client, for kombu."""
        return __version__


def id_of(message: Any) -> str:
    """The correlation ID of a message; empty if it has none."""
    properties = message.get("properties") if isinstance(message, dict) else None
    return str((properties or {}).get("correlation_id") or "")


def limit_of(message: dict[str, Any]) -> float | None:
    """The limit of time, in seconds, that Celery has given to a task."""
    limits = (message.get("headers") or {}).get("timelimit") or (None,)
    return limits[0] or None


def _read(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


TRANSPORT_ALIASES["tidelog"] = "tidelog.integrations.kombu:Transport"
