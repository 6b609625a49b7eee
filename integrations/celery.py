"""A broker and a result backend for Celery.

    import tidelog.integrations.celery                   # registers the scheme `tidelog` for both

    app = Celery("app", broker="tidelog:///app-data", backend="tidelog:///app-data")

The broker is the transport of integrations/kombu.py. A result is a string that expires after `result_expires`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from celery.app.backends import BACKEND_ALIASES
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import ImproperlyConfigured
from kombu.utils.encoding import ensure_bytes

from tidelog.client.opening import connect
from tidelog.client.store import SharedStore
from tidelog.integrations import kombu as _kombu
from tidelog.resp.urls import shown

SCHEME: Final = "tidelog://"
# importing it registers the scheme for brokers
transport = _kombu.Transport


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


BACKEND_ALIASES["tidelog"] = "tidelog.integrations.celery:TidelogBackend"
