"""A broker and a result backend for Celery.

    import tidelog.integrations.celery                   # registers the scheme `tidelog` for both

    app = Celery("app", broker="tidelog:///app-data", backend="tidelog:///app-data")

The broker is the transport of integrations/kombu.py. A result is a string that expires after `result_expires`.

    revoke(app, result.id)                               # a task that waits, or runs
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from celery.app.backends import BACKEND_ALIASES
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import ImproperlyConfigured
from celery.signals import worker_ready
from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.encoding import ensure_bytes

from tidelog.client.opening import connect
from tidelog.client.store import SharedStore
from tidelog.integrations import kombu as _kombu
from tidelog.resp.urls import shown

SCHEME: Final = "tidelog://"


class Transport(_kombu.Transport):
    """That of kombu, which lets the worker of Celery end a task whose message was cancelled."""

    def cancelled(self, message_id: str) -> None:
        """Revoke the task, and terminate the process that runs it."""
        # here: programs that only put tasks do not load the worker
        from celery.worker import state

        state.revoked.add(message_id)
        request = state.requests.get(message_id)
        if request is not None and _workers:
            request.terminate(_workers[-1].pool)


_workers: list[Any] = []  # the consumer of the worker of this process


@worker_ready.connect  # type: ignore[untyped-decorator]
def _begun(sender: Any, **kwargs: Any) -> None:
    _workers[:] = [sender]


def revoke(app: Any, task_id: str, queue: str | None = None) -> bool:
    """Cancel a task that waits, or runs: then its process is terminated. As `app.control.revoke`, which needs a fanout.

    With `task_acks_late` only: otherwise a task that runs was acknowledged.

    Args:
        app: The Celery app.
        task_id: The ID of the task.
        queue: Name of its queue; None = the default one of the app.

    Returns:
        False if there was nothing to cancel: the queue has no such task.
    """
    with app.connection_for_write() as connection:
        connection.ensure_connection()
        done: bool = connection.transport.cancel(queue or app.conf.task_default_queue, task_id)
    if done:
        app.backend.mark_as_revoked(task_id, "revoked")
    return done


class TidelogBackend(KeyValueStoreBackend):  # type: ignore[misc]
    """Results of Celery's tasks as strings of a shared store."""

    implements_incr = True
    supports_native_join = True

    def __init__(self, url: str | None = None, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not url or not url.startswith(f"{SCHEME}/"):
            raise ImproperlyConfigured(
                f"the backend must be a path such as {SCHEME}/app-data, not {shown(url or '')!r}"
            )
        self.url = url
        self._store: SharedStore | None = None

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    @property
    def store(self) -> SharedStore:
        """The shared store, connected at the first call."""
        if self._store is None:
            self._store = connect(self.url.removeprefix(f"{SCHEME}/"))
        return self._store

    def get(self, key: Any) -> Any:
        """The value of a key, or None."""
        return self.store.get(key)

    def mget(self, keys: Iterable[Any]) -> list[Any]:
        """The values of several keys."""
        return [self.store.get(key) for key in keys]

    def set(self, key: Any, value: Any) -> None:
        """Set a key; it expires after `result_expires`."""
        expires = int(self.expires or 0)
        self.store.set(key, ensure_bytes(value), ex=expires if expires > 0 else None)

    def delete(self, key: Any) -> None:
        """Delete a key."""
        self.store.delete(key)

    def incr(self, key: Any) -> int:
        """Count a key up."""
        return self.store.incr(key)

    def expire(self, key: Any, value: Any) -> bool:
        """Let a key expire after `value` seconds."""
        return bool(self.store.expire(key, int(value)))


TRANSPORT_ALIASES["tidelog"] = "tidelog.integrations.celery:Transport"
BACKEND_ALIASES["tidelog"] = "tidelog.integrations.celery:TidelogBackend"
